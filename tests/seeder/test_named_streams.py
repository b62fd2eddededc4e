"""``fork(name)``: torch's default generators on another stream, and back exactly as they were."""

from __future__ import annotations

import logging
import os
import random
import threading

import numpy as np
import pytest
import torch
from helpers.support import holds_key, run_python, scramble, seeder, snapshot

import fastseed
from fastseed.seeder import named_streams, stream_stack

AT = {"task": 1, "epoch": 7, "step": 3}


@pytest.fixture
def job():
    fastseed.init(42, rank=0, world_size=1)
    fastseed.reseed(*AT.values())
    yield fastseed.derivation.context.seeder
    assert stream_stack._frames == [] and stream_stack._layers == []


@pytest.fixture(params=["copied natively", "copied in Python"])
def copies(request, monkeypatch):
    """Both ways to copy a generator."""
    if request.param == "copied in Python":
        monkeypatch.setattr(stream_stack, "_copy", stream_stack._copy_in_python)


def draw(n=2):
    return torch.rand(n).tolist()


def forked(name="a", n=2, **more):
    with fastseed.fork_rng(name, **more):
        return draw(n)


# ---------------------------------------------------------------- there and back


def test_generators_come_back_exactly_as_they_were(job, copies):
    scramble()  # in mid-state, with Gaussians cached
    before = snapshot()
    for index in (None, 5):
        with fastseed.fork_rng("a", index=index):
            torch.randn(7), torch.randn((), dtype=torch.float64)
            assert snapshot()[2] != before[2]
            assert snapshot()[:2] == before[:2]  # Python's and NumPy's stay
        assert snapshot() == before


def test_generators_come_back_after_an_error(job, copies):
    before = snapshot()
    with pytest.raises(KeyError), fastseed.fork_rng("a"), fastseed.fork_rng("b", index=1):
        draw()
        raise KeyError
    assert snapshot() == before


@pytest.mark.parametrize("index", [None, 0, 5, named_streams.MAX_INDEX])
def test_a_fork_begins_with_the_key_of_its_stream(job, index):
    member = 0 if index is None else index + 1 << 8
    with fastseed.fork_rng("a", index=index):
        assert holds_key(torch.default_generator, job.derive_key("a/torch.cpu", **AT, index=member))


def test_continuing_forks_go_on_and_begin_anew_at_each_reseed(job, copies):
    whole = forked(n=6)
    job.restore(*AT.values())
    assert forked() + forked() + forked() == whole
    job.restore(*AT.values())
    assert forked() == whole[:2]
    job.restore(1, 8, 0)
    assert forked() != whole[:2]


def test_cached_gaussians_go_along(job, copies):
    """16 or more normals are made otherwise, so the odd ones come one by one."""
    with fastseed.fork_rng("a"):
        whole = torch.randn(6)
    job.restore(*AT.values())
    parts = []
    for _ in range(2):
        torch.randn(5)
        with fastseed.fork_rng("a"):
            parts.append(torch.randn(3))
    assert torch.cat(parts).equal(whole)


def test_numbered_forks_draw_the_same_whenever_they_are_entered(job):
    layers = [forked(index=i) for i in range(4)]
    assert len({tuple(values) for values in layers}) == 4
    forked(), draw()
    assert [forked(index=i) for i in reversed(range(4))] == layers[::-1]
    assert forked() not in layers
    assert forked("b", index=0) not in layers
    assert [forked(index=np.int64(i)) for i in range(4)] == layers


def test_streams_do_not_depend_on_what_is_drawn_elsewhere(job):
    a, b = forked("a", 4), forked("b", 4)
    job.restore(*AT.values())
    found = {"a": [], "b": []}
    for name in "abba":
        found[name] += forked(name)
        draw(3)
    assert found == {"a": a, "b": b}


# ---------------------------------------------------------------- nesting


def test_forks_nest(job, copies):
    a, b, base = forked("a", 6), forked("b", 4), draw(4)
    job.restore(*AT.values())
    found = {"base": draw(), "a": [], "b": []}
    with fastseed.fork_rng("a"):
        found["a"] += draw()
        with fastseed.fork_rng("b"):
            found["b"] += draw()
            with fastseed.fork_rng("a"):  # in itself, with another between
                found["a"] += draw()
            found["b"] += draw()
        found["a"] += draw()
    found["base"] += draw()
    assert found == {"base": base, "a": a, "b": b}


def test_a_stream_inside_itself_goes_on(job, copies):
    whole = forked(n=8)
    job.restore(*AT.values())
    found = []
    with fastseed.fork_rng("a"):
        found += draw()
        with fastseed.fork_rng("a"):
            found += draw()
            with fastseed.fork_rng("a", index=3):
                inner = draw()
        found += draw()
    assert found + forked() == whole
    assert inner == forked(index=3)


def test_one_object_may_be_entered_many_times(job):
    whole = forked(n=6)
    job.restore(*AT.values())
    switch, found = fastseed.fork_rng("a"), []
    with switch:
        found += draw()
        with switch:
            found += draw()
    with switch:
        assert found + draw() == whole


def test_a_decorator_is_made_before_init(monkeypatch):
    monkeypatch.setattr(fastseed.derivation.context, "seeder", None)

    @fastseed.fork_rng("a")
    def goes_on():
        return draw()

    @fastseed.fork_rng("a", index=2)
    def repeats(depth=0):
        return repeats(depth - 1) if depth else draw()

    with pytest.raises(RuntimeError, match=r"fastseed\.fork: call fastseed.init"):
        goes_on()
    fastseed.init(42, rank=0, world_size=1)
    fastseed.reseed(1)
    assert goes_on() + goes_on() == (fastseed.reseed(1), forked(n=4))[1]
    assert repeats() == repeats(3) == forked(index=2)


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (1, 0, 2), (2, 0, 1), (1, 2, 0)])
@pytest.mark.parametrize("names", ["abc", "aab", "aba"])
def test_forks_that_overlap_are_each_put_back(job, order, names):
    """As those of several threads may: whoever leaves last puts the generators back."""
    base = snapshot()
    whole = {name: forked(name, 2 * names.count(name) + 2) for name in set(names)}
    job.restore(*AT.values())
    switches = [fastseed.fork_rng(name) for name in names]
    drawn = {name: [] for name in names}
    for name, switch in zip(names, switches, strict=True):
        switch.__enter__()
        drawn[name] += draw()
    for i in order:
        switches[i].__exit__()
    assert snapshot() == base
    for name in set(names):
        assert drawn[name] + forked(name) == whole[name], name


def test_threads(job):
    """Draws of several threads are in no order, but every fork is put back."""
    before = snapshot()
    stop = threading.Event()

    def work(name):
        while not stop.is_set():
            forked(name), forked(name, index=1)

    threads = [threading.Thread(target=work, args=(name,)) for name in "abab"]
    for thread in threads:
        thread.start()
    for _ in range(200):
        forked("c")
    stop.set()
    for thread in threads:
        thread.join(30)
    assert snapshot() == before


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"name": 3}, TypeError, "name must be a string"),
        ({"name": ""}, ValueError, "name must not be empty"),
        ({"name": "a", "index": -1}, ValueError, r"index must be in \[0, 4294967294\], got -1"),
        ({"name": "a", "index": 2**32 - 1}, ValueError, "index must be in"),
        ({"name": "a", "index": True}, TypeError, "index must be an integer"),
    ],
)
def test_arguments_are_checked(arguments, error, says):
    with pytest.raises(error, match=rf"fastseed\.fork: {says}"):
        fastseed.fork_rng(**arguments)


def enter(s, *arguments, **more):
    with s.fork(*arguments, **more):
        pass


def test_moments_are_checked(job):
    before = snapshot()
    with pytest.raises(RuntimeError, match=r"fastseed\.fork: call fastseed.reseed"):
        enter(seeder(), "a")
    legacy = seeder(scheme="fwr13y")
    legacy.restore(1, 0, 0)
    with pytest.raises(ValueError, match="scheme must be 'philox-v1', got 'fwr13y'"):
        enter(legacy, "a")
    job.restore(*AT.values())
    assert snapshot() == before
    refused = {
        "reseed": lambda: fastseed.reseed(1, 9),
        "state_dict": lambda: fastseed.state_dict(rng=True),
        "load_state_dict": lambda: fastseed.load_state_dict(held),
    }
    held = fastseed.state_dict()
    with fastseed.fork_rng("a"):
        inside = snapshot()
        for function, call in refused.items():
            with pytest.raises(RuntimeError, match=rf"{function}: must not be called inside fork"):
                call()
        assert snapshot() == inside
        assert fastseed.state_dict() == held
    assert snapshot() == before


class Forking(torch.utils.data.Dataset):
    """A data set whose samples are drawn in a fork."""

    def __len__(self):
        return 2

    def __getitem__(self, index):
        return forked("a")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no os.fork")
def test_workers_are_refused_a_fork(job):
    """They would all draw the same."""
    loader = torch.utils.data.DataLoader(
        Forking(), num_workers=1, multiprocessing_context="fork", timeout=60
    )
    with pytest.raises(RuntimeError, match=r"fastseed\.fork: must not be entered in a DataLoader"):
        list(loader)
    assert len(list(torch.utils.data.DataLoader(Forking()))) == 2


def test_names_are_those_of_one_stream(job):
    job.register_generator(print, name="a/torch.cpu")
    with pytest.raises(ValueError, match=r"fastseed\.fork_rng: name must not already be registered"):
        enter(job, "a")
    enter(job, "b")
    with pytest.raises(
        ValueError, match=r"name must not already be registered, got 'b/torch\.cpu'"
    ):
        job.register_generator(print, name="b/torch.cpu")


# ---------------------------------------------------------------- meshes

HERE = {"dp": (1, 2), "tp": (1, 2)}


def test_a_named_stream_varies_as_it_was_told():
    s = seeder(rank=3, world_size=4, mesh=HERE, distinct_over={"told": ("tp",), "numpy": ("dp",)})
    s.reseed(1)
    for name, more, place in (
        ("own", {}, 3),
        ("told", {}, 1),
        ("said", {"distinct_over": ("dp",)}, 1),
    ):
        with s.fork_rng(name, **more):
            key = s.derive_key(f"{name}/torch.cpu", task=1, rank=place)
            assert holds_key(torch.default_generator, key)
            assert key == s.derive_key(f"{name}/torch.cpu", task=1)
    enter(s, "said", distinct_over=("dp",))
    with pytest.raises(
        ValueError, match="distinct_over must be what it was when 'said' was first used"
    ):
        enter(s, "said", distinct_over=("tp", "dp"))
    with pytest.raises(
        ValueError, match="distinct_over must not contradict what else was said of 'told'"
    ):
        enter(s, "told", distinct_over=("dp",))
    with pytest.raises(
        ValueError, match=r"distinct_over must hold dimensions of the mesh, which has"
    ):
        enter(s, "new", distinct_over=("pp",))
    assert torch.initial_seed() == s.derive_seed("torch.cpu", task=1)


# ---------------------------------------------------------------- torch.compile


def test_compiled_regions_break_at_a_fork():
    printed = run_python(
        "-c",
        """
import torch, fastseed
fastseed.init(42, rank=0, world_size=1)

def region(x):
    x = x * 2
    with fastseed.fork_rng("a"):
        x = x + torch.rand(3)
    with fastseed.fork_rng("a", index=2):
        x = x + torch.rand(3)
    return x + torch.rand(3)

found = []
for call in (region, torch.compile(region, backend="eager")):
    for _ in range(2):
        fastseed.derivation.context.seeder.restore(1, 2, 0)
        found.append((call(torch.ones(3)), torch.rand(2)))
assert all(a.equal(b) for values in found for a, b in zip(values, found[0]))

def whole(x):
    with fastseed.fork_rng("a"):
        return x + torch.rand(3)

try:
    torch.compile(whole, backend="eager", fullgraph=True)(torch.ones(3))
except Exception as error:
    print(type(error).__name__)
""",
    )
    assert printed.split() == ["Unsupported"]


def test_forks_log_nothing(job, caplog):
    with caplog.at_level(logging.DEBUG):
        forked(), forked(index=1)
    assert caplog.records == []


def test_random_and_numpy_are_not_touched(job):
    before = random.getstate(), np.random.get_state()[1].tolist()
    forked(), forked(index=1)
    assert before == (random.getstate(), np.random.get_state()[1].tolist())
