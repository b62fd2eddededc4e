"""Named streams in states, in spawned and in forked processes."""

from __future__ import annotations

import os
import pickle

import pytest
import torch
from helpers.support import snapshot

import fastseed
from fastseed.seeder import stream_stack


@pytest.fixture
def job():
    fastseed.init(42, rank=0, world_size=1)
    fastseed.reseed(1, 7, 3)
    yield fastseed.derivation.context.seeder
    assert stream_stack._frames == [] and stream_stack._layers == []


def draw(n=2):
    return torch.rand(n).tolist()


def forked(name="a", n=2):
    with fastseed.fork_rng(name):
        return draw(n)


# ---------------------------------------------------------------- states


def test_named_streams_are_in_exact_states(job):
    forked(n=5), torch.randn(3)
    held, after = fastseed.state_dict(rng=True), forked(n=5)
    assert held["rng.0.a/torch.cpu"].dtype == torch.uint8
    forked(n=3), forked("b")
    fastseed.load_state_dict(held)
    assert forked(n=5) == after
    fastseed.init(1, rank=0, world_size=1)  # another process, that has not used the name yet
    fastseed.load_state_dict(held)
    assert fastseed.state_dict(rng=True).keys() == held.keys()
    assert forked(n=5) == after
    fastseed.load_state_dict(fastseed.state_dict())
    assert forked(n=5) != after  # coordinates alone: the beginning of the scope


@pytest.mark.parametrize(
    "damage", [torch.zeros(2520, dtype=torch.uint8), torch.zeros(3, dtype=torch.uint8), 3]
)
def test_damaged_states_of_named_streams_are_refused(job, damage):
    forked()
    held = fastseed.state_dict(rng=True)
    held["rng.0.a/torch.cpu"] = damage
    before = snapshot()
    with pytest.raises(ValueError, match=r"state\['rng\.0\.a/torch\.cpu'\] (is damaged|must be)"):
        fastseed.load_state_dict(held)
    assert snapshot() == before


def test_a_refused_state_leaves_named_streams_where_they_are(job):
    forked()
    held, after = fastseed.state_dict(rng=True), forked()
    held["rng.0.python"] = torch.zeros_like(held["rng.0.python"])
    with pytest.raises(ValueError, match=r"state\['rng\.0\.python'\] is damaged"):
        fastseed.load_state_dict(held)
    assert forked() != after


def test_a_callable_that_fails_leaves_named_streams_where_the_state_had_them(job):
    forked()
    held, after = fastseed.state_dict(rng=True), forked()
    fastseed.register_generator(lambda seed: 1 / 0, name="fails")
    with pytest.raises(fastseed.ReseedError, match="fails: ZeroDivisionError"):
        fastseed.load_state_dict(held)
    assert forked() == after


# ---------------------------------------------------------------- processes


def test_a_spawned_process_begins_named_streams_anew(job):
    first = forked()
    twin = pickle.loads(pickle.dumps(job))
    with twin.fork_rng("a"):
        assert draw() == first


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no os.fork")
@pytest.mark.parametrize("mode", ["inherit", "reseed"])
def test_a_child_that_was_forked_inside_a_fork_can_reseed(mode):
    """It leaves its parent's forks behind, as a DataLoader's worker has to."""
    fastseed.init(42, rank=0, world_size=1, on_os_fork=mode)
    fastseed.reseed(1)
    reading, writing = os.pipe()
    with fastseed.fork_rng("a"):
        child = os.fork()
        if child == 0:
            try:
                fastseed.reseed(1, 9)
                right = torch.initial_seed() == fastseed.derivation.context.seeder.seed(
                    "torch.cpu", task=1, epoch=9
                )
                os.write(writing, b"own" if not right else b"job")
            finally:
                os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        assert pipe.read() == {"inherit": b"job", "reseed": b"own"}[mode]
    os.waitpid(child, 0)
