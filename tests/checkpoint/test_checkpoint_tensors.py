"""States as tensors: safetensors, and the errors of from_tensors."""

import pytest
import torch
import torch.distributed.checkpoint as dcp
from helpers.jobs import draws, everything, start

import fastseed
from fastseed import checkpoint
from fastseed.checkpoint import Stateful


@pytest.fixture
def job():
    return start()


def test_tensors_and_back(job):
    state = fastseed.state_dict(rng=True)
    tensors = checkpoint.to_tensors(state)
    assert list(tensors) == ["fastseed_job", "fastseed_rank_3"]
    for tensor in tensors.values():
        assert tensor.dtype == torch.uint8 and tensor.dim() == 1 and tensor.device.type == "cpu"
    again = checkpoint.from_tensors({"model.weight": torch.rand(3), **tensors, 5: None})
    assert list(again) == list(state)
    for key, held in state.items():
        assert torch.equal(held, again[key]) if key.startswith("rng.") else held == again[key]


def test_safetensors(job, tmp_path):
    library = pytest.importorskip("safetensors.torch")
    state = checkpoint.to_tensors(fastseed.state_dict(rng=True))
    library.save_file({"weight": torch.ones(2), **state}, tmp_path / "all.safetensors")
    expected = draws(job)
    found = library.load_file(tmp_path / "all.safetensors")
    fastseed.load_state_dict(checkpoint.from_tensors(found))
    assert draws(job) == expected
    with library.safe_open(tmp_path / "all.safetensors", "pt") as file:  # only what is needed
        keys = [key for key in file.keys() if key.startswith("fastseed_")]  # noqa: SIM118
        found = {key: file.get_tensor(key) for key in keys}
    fastseed.load_state_dict(checkpoint.from_tensors(found))
    assert draws(job) == expected


@pytest.mark.parametrize("key", ["fastseed_job", "fastseed_rank_3"])
@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda t: None, "must be a 1-D uint8 tensor with data, got None"),
        (lambda t: t.long(), "must be a 1-D uint8 tensor"),
        (lambda t: t.to("meta"), "must be a 1-D uint8 tensor with data, got"),
        (lambda t: t[:0], "its checksum is wrong"),
        (lambda t: torch.where(torch.arange(len(t)) == 60, t ^ 1, t), "its checksum is wrong"),
    ],
)
def test_damaged_tensors_are_refused(job, key, change, says):
    tensors = checkpoint.to_tensors(fastseed.state_dict(rng=True))
    before = everything(job)
    tensors[key] = change(tensors[key])
    with pytest.raises(ValueError, match=r"fastseed.checkpoint.from_tensors: ") as caught:
        checkpoint.from_tensors(tensors)
    assert key in str(caught.value) and says in str(caught.value)
    assert everything(job) == before


def test_tensors_of_two_saves_are_refused(job):
    tensors = checkpoint.to_tensors(fastseed.state_dict(rng=True))
    fastseed.reseed(1, 8)
    later = checkpoint.to_tensors(fastseed.state_dict(rng=True))
    with pytest.raises(ValueError, match=r"of one save: epoch is 7 in fastseed_job and 8 in"):
        checkpoint.from_tensors({**later, "fastseed_job": tensors["fastseed_job"]})


@pytest.mark.parametrize(
    "change", [{"rng.3.numpy": [1]}, {"task": None}, {"format": "other"}, {"x": 1.5}]
)
def test_invalid_states_are_refused(job, change):
    with pytest.raises((TypeError, ValueError), match=r"fastseed\.[\w.]+: state"):
        checkpoint.to_tensors({**fastseed.state_dict(rng=True), **change})


@pytest.mark.parametrize(
    ("names", "says"), [((), r"it has no entry"), (("a", "b"), r"it has \['a\.', 'b\.'\]")]
)
def test_a_source_without_one_state_is_refused(tmp_path, names, says):
    fastseed.init(42, rank=0, world_size=1)
    held = {"model": {"w": torch.ones(1)}, **{name: Stateful(rng=True) for name in names}}
    dcp.save(held, checkpoint_id=tmp_path / "x", no_dist=True)
    with pytest.raises(ValueError, match=rf"the entry of one Stateful \({says}"):
        Stateful(source=tmp_path / "x").state_dict()


def test_an_object_that_has_loaded_saves_the_state(tmp_path):
    """The idiom of torch.distributed.checkpoint: one object for loading and for later saves."""
    fastseed.init(42, rank=0, world_size=1)
    fastseed.reseed(1, 7)
    dcp.save({"rng": Stateful(rng=True)}, checkpoint_id=tmp_path / "a", no_dist=True)
    app = {"rng": Stateful(rng=True, source=tmp_path / "a")}
    dcp.load(app, checkpoint_id=tmp_path / "a", no_dist=True)
    dcp.save(app, checkpoint_id=tmp_path / "b", no_dist=True)
    expected = torch.rand(3)
    again = {"rng": Stateful(source=tmp_path / "b")}
    dcp.load(again, checkpoint_id=tmp_path / "b", no_dist=True)
    assert torch.equal(torch.rand(3), expected)


def test_a_folder_that_cannot_be_read_is_named(tmp_path):
    fastseed.init(42, rank=0, world_size=1)
    (tmp_path / ".metadata").write_bytes(b"no pickle")
    for folder in (tmp_path, tmp_path / "absent"):
        with pytest.raises(ValueError, match=rf"checkpoint\.Stateful: cannot read '{folder}' \("):
            Stateful(source=folder).state_dict()
