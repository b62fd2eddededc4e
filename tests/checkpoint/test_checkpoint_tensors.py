"""States as tensors: safetensors, and the errors of from_tensors."""

import logging
import random

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from helpers.jobs import draws, everything, start
from helpers.ranks import ranks
from helpers.support import snapshot

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


EXACT = ("pattern", "dcp", "dcp reader")


def begin_scope(master_seed):
    """Return the states of all generators at the beginning of a scope, and a shared generator."""
    fastseed.init(master_seed)
    shared = torch.Generator()
    fastseed.register_generator(shared, True, name="shared")
    fastseed.reseed(1, 5)
    return states(shared), shared


def states(shared):
    return [repr(one) for one in (*snapshot(), shared.get_state().tolist())]


def save(folder):
    """Save in each way; return what the states were, and at the beginning of the scope."""
    begin, shared = begin_scope(42)
    random.gauss(0, 1), np.random.standard_normal(), torch.randn(dist.get_rank() + 1)
    torch.rand(3, generator=shared)
    model = {"weight": torch.arange(4.0)}
    dcp.save({"model": model, "fastseed": Stateful(rng=True)}, checkpoint_id=folder / "dcp")
    dcp.save({"fastseed": Stateful()}, checkpoint_id=folder / "dcp scope")
    checkpoint.save(folder / "rank-{rank}", rng=True)
    return states(shared), begin


def load(folder):
    """Load in each way; return the scope, the states and the warnings."""
    calls = {
        "pattern": lambda: checkpoint.load(folder / "rank-{rank}"),
        "dcp": lambda: load_dcp(folder / "dcp", source=folder / "dcp"),
        "dcp reader": lambda: load_dcp(folder / "dcp", source=dcp.FileSystemReader(folder / "dcp")),
        "dcp scope": lambda: load_dcp(folder / "dcp scope"),
    }
    return {way: loaded(call) for way, call in calls.items()}, begin_scope(42)[0]


def load_dcp(path, **options):
    held = {"fastseed": Stateful(**options)}
    if path.name == "dcp":
        held["model"] = {"weight": torch.zeros(4)}
    dcp.load(held, checkpoint_id=path)
    assert path.name != "dcp" or held["model"]["weight"].tolist() == [0, 1, 2, 3]


def loaded(call):
    _, shared = begin_scope(7)
    said = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: said.append(record.getMessage())
    logging.getLogger("fastseed").addHandler(handler)
    call()
    logging.getLogger("fastseed").removeHandler(handler)
    scope = (*fastseed.derivation.context.seeder.scope, fastseed.get_master_seed())
    return scope, states(shared), said


@pytest.fixture(scope="module", params=[(4, 4), (4, 2), (2, 4)])
def jobs(request, tmp_path_factory):
    """Return the ranks of the jobs that saved and of the one that loaded."""
    folder = tmp_path_factory.mktemp("reshard")
    saved, loading = request.param
    return ranks(saved, save, folder), ranks(loading, load, folder)


def test_scopes_carry_over(jobs):
    for found, begin in jobs[1]:
        assert {scope for scope, *_ in found.values()} == {(1, 5, 0, 42)}
        assert found["dcp scope"][1:] == (begin, [])


@pytest.mark.parametrize("way", EXACT)
def test_ranks_go_on_exactly_and_new_ones_begin_the_scope(jobs, way):
    saved, loading = jobs
    for rank, (found, begin) in enumerate(loading):
        _, now, said = found[way]
        if rank < len(saved):
            assert now == saved[rank][0]
        else:
            assert now[:-1] == begin[:-1]
            assert f"are other ranks' and this is rank {rank}: its generators are set" in said[0]
        assert now[-1] == saved[0][0][-1]
    for stream in zip(*(found[way][1][:-1] for found, _ in loading), strict=True):
        assert len(set(stream)) == len(loading)


@pytest.mark.parametrize("way", EXACT)
def test_states_of_ranks_that_are_gone_are_named_once(jobs, way):
    saved, loading = jobs
    said = [text for found, _ in loading for text in found[way][2] if "are dropped" in text]
    assert len(said) == (len(loading) < len(saved))
    assert not said or "the exact states of ranks 2 to 3 are dropped" in said[0]


def error_of(call):
    with pytest.raises(BaseException) as caught:  # what torch raises is no Exception
        call()
    return f"{caught.type.__name__}: {caught.value}"


def load_without_source(path):
    begin_scope(7)
    return error_of(lambda: load_dcp(path, rng=True))


def test_torch_refuses_more_ranks_without_a_source(tmp_path):
    ranks(2, save, tmp_path)
    for text in ranks(4, load_without_source, tmp_path / "dcp"):
        assert "Missing key in checkpoint state_dict" in text
