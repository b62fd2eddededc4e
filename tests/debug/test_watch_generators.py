"""Watch records the exact states of generators, and changes none of them."""

from __future__ import annotations

import random
import subprocess
import sys

import numpy as np
import pytest
import torch
from helpers.support import clean_environment, snapshot
from torch import nn

from fastseed.debug import Watch, bisect, generator_states
from fastseed.debug.tree_digest import digest
from fastseed.debug.watch_file import GROUPS, Recording

MODEL = nn.Linear(2, 2)
GLOBAL = ["python", "numpy", "torch"]


@pytest.fixture(autouse=True)
def seeded():
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)


def rows(path):
    """The generators that a recording has at its first step and its last, with their digests."""
    recording = Recording(path / "rank-0.watch")
    return [
        {e.name: value for e, value in recording.values(step).items() if e.group == "generator"}
        for step in (min(recording.steps), max(recording.steps))
    ]


def parted(tmp_path, act, given=None):
    """Compare a run with one in which ``act`` is called before step 1 is recorded.

    Both begin from the same states.
    """
    for name, acts in (("a", False), ("b", True)):
        random.seed(1)
        np.random.seed(1)
        torch.manual_seed(1)
        generators = None if given is None else given()
        with Watch(MODEL, path=tmp_path / name, generators=generators) as watch:
            watch.record()
            if acts:
                act(generators)
            watch.record()
    return bisect(tmp_path / "a", tmp_path / "b")


# ---------------------------------------------------------------- default generators


@pytest.mark.parametrize(
    ("name", "draw"),
    [
        ("python", lambda _: random.random()),
        ("numpy", lambda _: np.random.rand()),
        ("torch", lambda _: torch.rand(())),
    ],
)
def test_one_draw_is_found(tmp_path, name, draw):
    found = parted(tmp_path, draw)
    assert (found.step, found.start) == (1, False)
    assert [(p.group, p.name) for p in found.differences] == [("generator", name)]
    assert str(found.first).startswith(f"generator {name}: uint8[")


def test_generators_come_before_what_was_made_with_them(tmp_path):
    def act(_):
        np.random.rand()
        with torch.no_grad():
            MODEL.bias.add_(1)

    found = parted(tmp_path, act)
    assert GROUPS[0] == "generator" and found.first.name == "numpy" and found.step == 1
    assert [p.group for p in found.differences] == ["generator", "parameter"]


@pytest.mark.parametrize(
    ("name", "draw"),
    [
        ("python", lambda: random.gauss(0, 1)),
        ("numpy", lambda: np.random.standard_normal()),
        ("torch", lambda: torch.randn((), dtype=torch.float64)),
    ],
)
def test_a_cached_gaussian_counts(tmp_path, name, draw):
    """Two draws of the second kind leave words and position where one left them."""
    with Watch(MODEL, path=tmp_path) as watch:
        draw()
        one = snapshot()
        watch.record()
    _, after = rows(tmp_path)
    draw()
    with Watch(MODEL, path=tmp_path / "again"):
        pass
    two, _ = rows(tmp_path / "again")
    assert one != snapshot() and after[name] != two[name]
    assert all(after[other] == two[other] for other in GLOBAL if other != name)


def test_nothing_is_drawn_and_nothing_is_changed(tmp_path):
    mine = torch.Generator().manual_seed(3)
    for draw in (random.random, np.random.rand, lambda: torch.rand(())):
        draw()
    random.gauss(0, 1), np.random.randn(), torch.randn((), dtype=torch.float64)
    before, own = snapshot(), mine.get_state().clone()
    with Watch(MODEL, path=tmp_path, generators={"mine": mine}) as watch:
        watch.record()
    assert snapshot() == before and torch.equal(mine.get_state(), own)


def test_generators_are_optional(tmp_path):
    Watch(MODEL, path=tmp_path / "a", generators=False).close()
    torch.rand(())
    Watch(MODEL, path=tmp_path / "b").close()
    assert rows(tmp_path / "a")[0] == {}
    found = bisect(tmp_path / "a", tmp_path / "b")
    assert found.equal and found.notes == ("only b recorded the generator",)


# ---------------------------------------------------------------- accelerators


class Device:
    """An accelerator of two devices, which torch initialises later."""

    def __init__(self):
        self.kind, self.there = "cuda", []

    def generators(self):
        return self.there


def test_an_accelerator_counts_once_it_is_there(tmp_path, monkeypatch):
    device = Device()
    monkeypatch.setattr(generator_states, "compiled_types", lambda: ["cuda"])
    monkeypatch.setattr(generator_states, "AcceleratorGenerators", lambda kind: device)
    with Watch(MODEL, path=tmp_path) as watch:
        device.there = [torch.Generator().manual_seed(i) for i in (5, 6)]
        watch.record()
    start, after = rows(tmp_path)
    assert list(start) == GLOBAL and list(after) == [*GLOBAL, "cuda:0", "cuda:1"]
    for i, generator in enumerate(device.there):
        assert after[f"cuda:{i}"] == digest(generator.get_state()).table[""].value


def test_no_accelerator_is_initialised(tmp_path):
    """Asked of a fresh process, in which initialising any would fail the test."""
    script = (
        "import sys, torch, fastseed\n"
        "def no(*_): raise SystemExit('initialised')\n"
        "torch.cuda._lazy_init = torch.xpu._lazy_init = no\n"
        "fastseed.debug.Watch(torch.nn.Linear(2, 2), path=sys.argv[1]).record()\n"
        "assert not torch.cuda.is_initialized() and not torch.xpu.is_initialized()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert len(Recording(tmp_path / "rank-0.watch").steps) == 2


# ---------------------------------------------------------------- named generators


def own():
    return {
        "mine": torch.Generator().manual_seed(1),
        "new": np.random.default_rng(1),
        "old": np.random.RandomState(1),
        "plain": random.Random(1),
    }


@pytest.mark.parametrize(
    ("name", "draw"),
    [
        ("mine", lambda g: torch.rand((), generator=g)),
        ("new", lambda g: g.random()),
        ("new", lambda g: g.integers(2, dtype=np.uint32)),  # half a word is kept
        ("old", lambda g: g.standard_normal()),
        ("plain", lambda g: g.gauss(0, 1)),
    ],
)
def test_a_named_generator_is_found(tmp_path, name, draw):
    found = parted(tmp_path, lambda generators: draw(generators[name]), own)
    assert [(p.group, p.name) for p in found.differences] == [("generator", name)]
    assert list(rows(tmp_path / "a")[0]) == [*GLOBAL, *own()]


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        (True, TypeError, "generators must be a mapping of names to generators, None or False"),
        ([random.Random()], TypeError, "generators must be a mapping of names"),
        ({"f": random.random}, TypeError, r"generators\['f'\] must be a torch.Generator"),
        (
            {"s": random.SystemRandom()},
            TypeError,
            r"generators\['s'\] must be .* can be read",
        ),
        ({3: random.Random()}, TypeError, "name must be a string, got 3"),
        ({"": random.Random()}, ValueError, "name must"),
        ({"numpy": random.Random()}, ValueError, "must be not the name of a default generator"),
        ({"cuda:0": random.Random()}, ValueError, "default generator .* got 'cuda:0'"),
    ],
)
def test_wrong_generators(tmp_path, given, error, says):
    with pytest.raises(error, match=f"^fastseed.debug.Watch: .*{says}"):
        Watch(MODEL, path=tmp_path / "run", generators=given)
    assert not (tmp_path / "run").exists()


# ---------------------------------------------------------------- where it is recorded


def test_the_folder_of_a_run(tmp_path, monkeypatch):
    monkeypatch.setenv("FASTSEED_RUN_DIR", str(tmp_path / "run"))
    Watch(MODEL).close()
    assert list(rows(tmp_path / "run" / "watch")[0]) == GLOBAL
    monkeypatch.setenv("FASTSEED_RUN_DIR", "")
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"^fastseed.debug.Watch: path is None and FASTS"):
            Watch(MODEL)
        monkeypatch.delenv("FASTSEED_RUN_DIR", raising=False)


def test_an_unused_generator_is_a_note(tmp_path):
    """Two processes seed torch alone: Python's generator is another one in each, and unused."""
    for name in "ab":
        random.seed(name)
        torch.manual_seed(1)
        with Watch(MODEL, path=tmp_path / name) as watch:
            for _ in range(2):
                torch.rand(3)
                watch.record()
    found = bisect(tmp_path / "a", tmp_path / "b")
    assert found.equal
    assert any("generator python differs at some steps, unused" in note for note in found.notes)
    for name in "ab":
        random.seed(name)
        with Watch(MODEL, path=tmp_path / f"{name}2") as watch:
            watch.record()
            random.random()
            watch.record()
    found = bisect(tmp_path / "a2", tmp_path / "b2")
    assert (found.step, found.first.name) == (1, "python")
