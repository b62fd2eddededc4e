"""States as tensors: safetensors, and the errors of from_tensors."""

from __future__ import annotations

import os
import pickle

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


def test_coordinates_as_a_tensor(job):
    state = fastseed.state_dict()
    tensors = checkpoint.to_tensors(state)
    assert list(tensors) == ["fastseed_job"]
    assert checkpoint.from_tensors(tensors) == state


def test_several_ranks_as_tensors():
    union, single = {}, {}
    for rank in (0, 3, 11):
        fastseed.init(42, rank=rank, world_size=12)
        fastseed.reseed(1, 2)
        single[rank] = checkpoint.to_tensors(fastseed.state_dict(rng=True))
        union.update(fastseed.state_dict(rng=True))
    tensors = checkpoint.to_tensors(union)
    assert list(tensors) == ["fastseed_job", *(f"fastseed_rank_{r}" for r in (0, 3, 11))]
    for rank, own in single.items():
        assert all(torch.equal(tensors[key], own[key]) for key in own), rank
    back = checkpoint.from_tensors(tensors)
    assert back.keys() == union.keys()


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
        (lambda t: None, "must be a 1-D uint8 tensor, got None"),
        (lambda t: t.long(), "must be a 1-D uint8 tensor"),
        (lambda t: t[:-1], "its checksum is wrong"),
        (lambda t: t[:0], "its checksum is wrong"),
        (lambda t: torch.zeros_like(t), "its checksum is wrong"),
        (lambda t: torch.where(torch.arange(len(t)) == 60, t ^ 1, t), "its checksum is wrong"),
    ],
)
def test_damaged_tensors_are_refused(job, key, change, says):
    tensors = checkpoint.to_tensors(fastseed.state_dict(rng=True))
    before = everything(job)
    tensors[key] = change(tensors[key])
    with pytest.raises(ValueError, match=r"fastseed.checkpoint.from_tensors: tensors\[") as caught:
        checkpoint.from_tensors(tensors)
    assert key in str(caught.value) and says in str(caught.value)
    assert everything(job) == before


def test_tensors_of_two_saves_are_refused(job):
    tensors = checkpoint.to_tensors(fastseed.state_dict(rng=True))
    fastseed.reseed(1, 8)
    later = checkpoint.to_tensors(fastseed.state_dict(rng=True))
    with pytest.raises(ValueError, match=r"of one save: epoch is 7 in fastseed_job and 8 in"):
        checkpoint.from_tensors({**later, "fastseed_job": tensors["fastseed_job"]})
    for name in ("fastseed_rank_2", "fastseed_rank_03", "fastseed_rank_"):
        with pytest.raises(ValueError, match="must be exact states of that rank alone"):
            checkpoint.from_tensors(
                {"fastseed_job": later["fastseed_job"], name: later["fastseed_rank_3"]}
            )
    with pytest.raises(ValueError, match="must be exact states of that rank alone"):
        checkpoint.from_tensors({"fastseed_job": later["fastseed_rank_3"]})


@pytest.mark.parametrize("odd", [None, [], "x", {}, {"fastseed_rank_3": None}])
def test_other_objects_are_refused(odd):
    with pytest.raises((TypeError, ValueError), match=r"fastseed.checkpoint.from_tensors: tensors"):
        checkpoint.from_tensors(odd)


@pytest.mark.parametrize(
    "change", [{"rng.3.numpy": [1]}, {"task": None}, {"format": "other"}, {"x": 1.5}]
)
def test_invalid_states_are_refused(job, change):
    with pytest.raises((TypeError, ValueError), match=r"fastseed\.[\w.]+: state"):
        checkpoint.to_tensors({**fastseed.state_dict(rng=True), **change})


def test_a_source_without_a_state_is_refused(tmp_path):
    import torch.distributed.checkpoint as dcp

    fastseed.init(42, rank=0, world_size=1)
    dcp.save({"model": {"w": torch.ones(1)}}, checkpoint_id=tmp_path / "x", no_dist=True)
    stateful = checkpoint.Stateful(source=tmp_path / "x")
    with pytest.raises(ValueError, match=r"the entry of one Stateful \(it has no entry"):
        stateful.state_dict()


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_a_source_with_two_states_is_refused(tmp_path):
    import torch.distributed.checkpoint as dcp

    fastseed.init(42, rank=0, world_size=1)
    two = {"a": checkpoint.Stateful(rng=True), "b": checkpoint.Stateful(rng=True)}
    dcp.save(two, checkpoint_id=tmp_path / "x", no_dist=True)
    with pytest.raises(ValueError, match=r"one Stateful \(it has \['a\.', 'b\.'\]"):
        checkpoint.Stateful(source=tmp_path / "x").state_dict()


@pytest.mark.parametrize("source", [5, torch.zeros(2), ["a"]])
def test_stateful_refuses_a_source_that_is_no_checkpoint(source):
    with pytest.raises(TypeError, match=r"^fastseed\.checkpoint\.Stateful: source must be a path"):
        fastseed.checkpoint.Stateful(source=source)


def test_a_state_that_needs_no_tensors_is_named():
    fastseed.init(42, rank=0, world_size=1)
    with pytest.raises(
        ValueError, match=r"this is a state of fastseed.state_dict: pass it to load_"
    ):
        checkpoint.from_tensors(fastseed.state_dict())


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


class Canary:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_no_code_of_a_folder_is_run(tmp_path):
    fastseed.init(42, rank=0, world_size=1)
    (tmp_path / ".metadata").write_bytes(pickle.dumps(Canary(str(tmp_path / "sung"))))
    with pytest.raises(ValueError, match=r"checkpoint\.Stateful: cannot read '.*metadata'"):
        Stateful(source=tmp_path).state_dict()
    assert not (tmp_path / "sung").exists()
    with pytest.raises(ValueError, match="source must be a folder of torch"):
        Stateful(source=tmp_path / "absent").state_dict()
