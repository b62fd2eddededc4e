"""Checkpoints that a job with another number of ranks loads: own files and distributed ones."""

import logging
import random

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from helpers.ranks import ranks
from helpers.support import snapshot

import fastseed
from fastseed import checkpoint
from fastseed.checkpoint import Stateful

EXACT = ("pattern", "dcp", "dcp reader")


def start(master_seed):
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
    begin, shared = start(42)
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
    return {way: loaded(call) for way, call in calls.items()}, start(42)[0]


def load_dcp(path, **options):
    held = {"fastseed": Stateful(**options)}
    if path.name == "dcp":
        held["model"] = {"weight": torch.zeros(4)}
    dcp.load(held, checkpoint_id=path)
    assert path.name != "dcp" or held["model"]["weight"].tolist() == [0, 1, 2, 3]


def loaded(call):
    _, shared = start(7)
    said = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: said.append(record.getMessage())
    logging.getLogger("fastseed").addHandler(handler)
    call()
    logging.getLogger("fastseed").removeHandler(handler)
    scope = (*fastseed.derivation.context.seeder.scope, fastseed.get_master_seed())
    return scope, states(shared), said


@pytest.fixture(scope="module", params=[(4, 4), (4, 2), (2, 4)])
def job(request, tmp_path_factory):
    """Return the ranks of the job that saved and of the one that loaded."""
    folder = tmp_path_factory.mktemp("reshard")
    saved, loading = request.param
    return ranks(saved, save, folder), ranks(loading, load, folder)


def test_scopes_carry_over(job):
    for found, begin in job[1]:
        assert {scope for scope, *_ in found.values()} == {(1, 5, 0, 42)}
        assert found["dcp scope"][1:] == (begin, [])


@pytest.mark.parametrize("way", EXACT)
def test_ranks_go_on_exactly_and_new_ones_begin_the_scope(job, way):
    saved, loading = job
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
def test_states_of_ranks_that_are_gone_are_named_once(job, way):
    saved, loading = job
    said = [text for found, _ in loading for text in found[way][2] if "are dropped" in text]
    assert len(said) == (len(loading) < len(saved))
    assert not said or "the exact states of ranks 2 to 3 are dropped" in said[0]


# ---------------------------------------------------------------- errors


def error_of(call):
    with pytest.raises(BaseException) as caught:  # what torch raises is no Exception
        call()
    return f"{caught.type.__name__}: {caught.value}"


def load_without_source(path):
    start(7)
    return error_of(lambda: load_dcp(path, rng=True))


def test_torch_refuses_more_ranks_without_a_source(tmp_path):
    ranks(2, save, tmp_path)
    for text in ranks(4, load_without_source, tmp_path / "dcp"):
        assert "Missing key in checkpoint state_dict" in text
