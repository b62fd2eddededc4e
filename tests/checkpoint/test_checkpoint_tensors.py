"""States as tensors: safetensors, and what from_tensors refuses."""

from __future__ import annotations

import pytest
import torch
from helpers.jobs import draws, everything, start

import fastseed
from fastseed.checkpoint import api


@pytest.fixture
def job():
    return start()


def test_tensors_and_back(job):
    state = fastseed.state_dict(rng=True)
    tensors = api.to_tensors(state)
    assert list(tensors) == ["fastseed_job", "fastseed_rank_3"]
    for tensor in tensors.values():
        assert tensor.dtype == torch.uint8 and tensor.dim() == 1 and tensor.device.type == "cpu"
    again = api.from_tensors({"model.weight": torch.rand(3), **tensors, 5: None})
    assert list(again) == list(state)
    for key, held in state.items():
        assert torch.equal(held, again[key]) if key.startswith("rng.") else held == again[key]


def test_coordinates_as_a_tensor(job):
    state = fastseed.state_dict()
    tensors = api.to_tensors(state)
    assert {k: v.shape for k, v in tensors.items()} == {"fastseed_job": (120,)}
    assert api.from_tensors(tensors) == state


def test_several_ranks_as_tensors():
    union, single = {}, {}
    for rank in (0, 3, 11):
        fastseed.init(42, rank=rank, world_size=12)
        fastseed.reseed(1, 2)
        single[rank] = api.to_tensors(fastseed.state_dict(rng=True))
        union.update(fastseed.state_dict(rng=True))
    tensors = api.to_tensors(union)
    assert list(tensors) == ["fastseed_job", *(f"fastseed_rank_{r}" for r in (0, 3, 11))]
    for rank, own in single.items():
        assert all(torch.equal(tensors[key], own[key]) for key in own), rank
    back = api.from_tensors(tensors)
    assert back.keys() == union.keys()


def test_safetensors(job, tmp_path):
    library = pytest.importorskip("safetensors.torch")
    state = api.to_tensors(fastseed.state_dict(rng=True))
    library.save_file({"weight": torch.ones(2), **state}, tmp_path / "all.safetensors")
    expected = draws(job)
    found = library.load_file(tmp_path / "all.safetensors")
    fastseed.load_state_dict(api.from_tensors(found))
    assert draws(job) == expected
    with library.safe_open(tmp_path / "all.safetensors", "pt") as file:  # only what is needed
        keys = [key for key in file.keys() if key.startswith("fastseed_")]  # noqa: SIM118
        found = {key: file.get_tensor(key) for key in keys}
    fastseed.load_state_dict(api.from_tensors(found))
    assert draws(job) == expected


@pytest.mark.parametrize("key", ["fastseed_job", "fastseed_rank_3"])
@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda t: None, "must be a 1-D uint8 tensor, got None"),
        (lambda t: t.long(), "must be a 1-D uint8 tensor"),
        (lambda t: t[:-1], "it was cut off"),
        (lambda t: torch.cat([t, t[:1]]), "something was appended"),
        (lambda t: torch.zeros_like(t), "it must begin with b'fastseed'"),
        (lambda t: torch.where(torch.arange(len(t)) == 60, t ^ 1, t), "its checksum is wrong"),
    ],
)
def test_damaged_tensors_are_refused(job, key, change, says):
    tensors = api.to_tensors(fastseed.state_dict(rng=True))
    before = everything(job)
    tensors[key] = change(tensors[key])
    with pytest.raises(ValueError, match=r"fastseed.checkpoint.from_tensors: tensors\[") as caught:
        api.from_tensors(tensors)
    assert key in str(caught.value) and says in str(caught.value)
    assert everything(job) == before


def test_tensors_of_two_saves_are_refused(job):
    tensors = api.to_tensors(fastseed.state_dict(rng=True))
    fastseed.reseed(1, 8)
    later = api.to_tensors(fastseed.state_dict(rng=True))
    with pytest.raises(ValueError, match=r"of one save: .* got epoch 7 in fastseed_job and"):
        api.from_tensors({**later, "fastseed_job": tensors["fastseed_job"]})
    for name in ("fastseed_rank_2", "fastseed_rank_03", "fastseed_rank_"):
        with pytest.raises(ValueError, match="it must hold that rank's states, got those of rank"):
            api.from_tensors(
                {"fastseed_job": later["fastseed_job"], name: later["fastseed_rank_3"]}
            )
    with pytest.raises(ValueError, match="it must hold that rank's states"):
        api.from_tensors({"fastseed_job": later["fastseed_rank_3"]})


@pytest.mark.parametrize("odd", [None, [], "x", {}, {"fastseed_rank_3": None}])
def test_what_are_no_tensors_is_refused(odd):
    with pytest.raises((TypeError, ValueError), match=r"fastseed.checkpoint.from_tensors: tensors"):
        api.from_tensors(odd)


@pytest.mark.parametrize(
    "change", [{"rng.3.numpy": [1]}, {"rng.9.numpy": 3}, {"task": -1}, {"scheme": 5}, {"x": 1}]
)
def test_what_is_no_state_is_refused(job, change):
    with pytest.raises((TypeError, ValueError), match=r"fastseed\.[\w.]+: state"):
        api.to_tensors({**fastseed.state_dict(rng=True), **change})


def test_a_source_without_a_state_is_refused(tmp_path):
    import torch.distributed.checkpoint as dcp

    fastseed.init(42, rank=0, world_size=1)
    dcp.save({"model": {"w": torch.ones(1)}}, checkpoint_id=tmp_path / "x", no_dist=True)
    stateful = api.Stateful(source=tmp_path / "x")
    with pytest.raises(
        ValueError, match=r"checkpoint that one Stateful was saved to, .* with none"
    ):
        stateful.state_dict()


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_a_source_with_two_states_is_refused(tmp_path):
    import torch.distributed.checkpoint as dcp

    fastseed.init(42, rank=0, world_size=1)
    two = {"a": api.Stateful(), "b": api.Stateful()}
    dcp.save(two, checkpoint_id=tmp_path / "x", no_dist=True)
    with pytest.raises(ValueError, match=r"one Stateful was saved to, .* with \['a\.', 'b\.'\]"):
        api.Stateful(source=tmp_path / "x").state_dict()
