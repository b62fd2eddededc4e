"""Watch records the exact states of generators, and changes none of them."""

import random

import numpy as np
import pytest
import torch
from helpers.support import snapshot
from torch import nn

from fastseed.debug import Watch, bisect
from fastseed.debug.watch_file import Recording
from fastseed.digest.trees import digest
from fastseed.generators import discovery

MODEL = nn.Linear(2, 2)
GLOBAL = ["python", "numpy", "torch.cpu"]


@pytest.fixture(autouse=True)
def seeded():
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)


def rows(path):
    """The generators that a recording has at its first step and its last, with their digests."""
    recording = Recording(path / "rank-0.watch")
    return [
        {
            name: leaf.value
            for (group, name), leaf in recording.values(step).by_name().items()
            if group == "generator"
        }
        for step in (min(recording.steps), max(recording.steps))
    ]


def parted(tmp_path, act):
    """Compare a run with one in which ``act`` is called before step 1 is recorded.

    Both begin from the same states.
    """
    for name, acts in (("a", False), ("b", True)):
        random.seed(1)
        np.random.seed(1)
        torch.manual_seed(1)
        with Watch(MODEL, path=tmp_path / name) as watch:
            watch.record()
            if acts:
                act()
            watch.record()
    return bisect(tmp_path / "a", tmp_path / "b")


def test_draws_are_found_before_what_was_made_with_them(tmp_path):
    def act():
        random.random(), np.random.rand(), torch.rand(())
        with torch.no_grad():
            MODEL.bias.add_(1)

    found = parted(tmp_path, act)
    assert (found.step, found.start) == (1, False)
    names = [difference.name for difference in found.differences]
    assert names == [*(f"generator {name}" for name in GLOBAL), "parameter bias"]
    assert str(found.first).startswith("generator python: uint8[")


@pytest.mark.parametrize(
    ("name", "draw"),
    [
        ("python", lambda: random.gauss(0, 1)),
        ("numpy", lambda: np.random.standard_normal()),
        ("torch.cpu", lambda: torch.randn((), dtype=torch.float64)),
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


def test_generators_are_optional(tmp_path):
    Watch(MODEL, path=tmp_path / "a", groups=["buffer", "gradient", "parameter"]).close()
    torch.rand(())
    Watch(MODEL, path=tmp_path / "b").close()
    assert rows(tmp_path / "a")[0] == {}
    found = bisect(tmp_path / "a", tmp_path / "b")
    assert found.equal and found.notes == ("only b recorded the generator",)


class Device:
    """An accelerator of two devices, which torch initializes later."""

    def __init__(self):
        self.kind, self.there = "cuda", []

    def generators(self):
        return self.there


def test_an_accelerator_counts_once_it_is_there(tmp_path, monkeypatch):
    device = Device()
    monkeypatch.setattr(discovery, "compiled_types", lambda: ["cuda"])
    monkeypatch.setattr(discovery, "AcceleratorGenerators", lambda kind: device)
    with Watch(MODEL, path=tmp_path) as watch:
        device.there = [torch.Generator().manual_seed(i) for i in (5, 6)]
        watch.record()
    start, after = rows(tmp_path)
    assert list(start) == GLOBAL and list(after) == [*GLOBAL, "torch.cuda:0", "torch.cuda:1"]
    for i, generator in enumerate(device.there):
        assert after[f"torch.cuda:{i}"] == digest(generator.get_state()).table[""].value


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
    assert any("python differs where nothing draws from it" in note for note in found.notes)
    for name in "ab":
        random.seed(name)
        with Watch(MODEL, path=tmp_path / f"{name}2") as watch:
            watch.record()
            random.random()
            watch.record()
    found = bisect(tmp_path / "a2", tmp_path / "b2")
    assert (found.step, found.first.name) == (1, "generator python")
