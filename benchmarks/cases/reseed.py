"""A whole process: Python, NumPy and torch, at one point in time."""

from __future__ import annotations

import functools
import itertools
import random
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

import fastseed
from fastseed._backend import derive
from fastseed._backend.reference import scalar

from ..baselines import fwr13y, without_generators
from ..case import Case, Contest, Side, expect

MASTER = 42
LOW64 = 2**64 - 1
RESEED = "reseed(1, next(epochs))"
BY_HAND = "random.seed(7); numpy.random.seed(7); {}.manual_seed(7)"

# torch.manual_seed, which fwr13y calls, formats the stack it is called from while an
# accelerator is not initialized, so its cost grows with each frame. A plain script that the timer
# runs is 8 deep; one inside a training framework is some 30.
SHALLOW, DEEP = 8, 30
OTHER_EPOCHS = itertools.count()  # of all sides of fwr13y, which warns when an epoch comes again


def _expect_state_of(epoch: int) -> None:
    """That the three generators hold what belongs to task 1 of this epoch."""
    scope = scalar.scope_key(MASTER, 1, epoch, 0)
    keys = {}
    for name in ("python", "numpy", "torch.cpu"):
        name_key = scalar.name_key(scope, scalar.name_words(name))
        keys[name] = scalar.stream_key(name_key, 0, 0, 0)
    expect(random.getstate() == random.Random(keys["python"]).getstate(), "Python's state")
    _, words, position, has_gauss, _ = np.random.get_state()
    same = np.array_equal(words, derive.mt19937_state(keys["numpy"]))
    expect(same and position == 624 and has_gauss == 0, "NumPy's state")
    state = torch.default_generator.get_state().numpy()
    kept = np.frombuffer(state.tobytes(), np.uint64, 624, 24).astype(np.uint32)
    same = np.array_equal(kept, derive.mt19937_state(keys["torch.cpu"]))
    expect(same and torch.initial_seed() == keys["torch.cpu"] & LOW64, "torch's state")


def _check(side: Side) -> None:
    """That the states are those of the epoch: fastseed's, or fwr13y's."""
    if "epochs" not in side.names:
        side.run()
        return
    epoch = next(side.names["epochs"])
    side.run(epochs=iter([epoch]))
    if side.label != fwr13y.LABEL:
        _expect_state_of(epoch)
        return
    seed = fwr13y.seed_gen(MASTER, 1, 0)(1, epoch)
    expect(torch.initial_seed() == seed, "fwr13y's torch seed")
    expect(random.getstate() == random.Random(seed).getstate(), "fwr13y's Python seed")


class TrainingStep:
    """A small training step, whose time the clock leaves out.

    What follows it finds the caches of the CPU full of other code and data, as ``reseed`` does in
    a training loop.
    """

    def __init__(self) -> None:
        self._model = torch.nn.Sequential(
            *(layer for _ in range(4) for layer in (torch.nn.Linear(768, 768), torch.nn.GELU()))
        )
        self._optimizer = torch.optim.AdamW(self._model.parameters())
        self._input = torch.ones(32, 768)
        self._spent = 0.0

    def run(self) -> None:
        """Do one step."""
        start = time.perf_counter()
        self._model(self._input).square().mean().backward()
        self._optimizer.step()
        self._optimizer.zero_grad()
        self._spent += time.perf_counter() - start

    def clock(self) -> float:
        """Return the time in seconds without that of all steps."""
        return time.perf_counter() - self._spent


def _after_a_step(side: Side) -> Side:
    step = TrainingStep()
    names = {**side.names, "train": step.run}
    return replace(side, statement=f"train(); {side.statement}", names=names, clock=step.clock)


def _ours() -> Side:
    fastseed.init(MASTER, 1, 0)
    return Side("fastseed.reseed", RESEED, {"reseed": fastseed.reseed, "epochs": itertools.count()})


def _fwr13y(frames: int) -> list[Side]:
    """fwr13y's call of the same name, from a stack of that depth."""
    old = fwr13y.seeder()
    old.init(MASTER, 1, 0)
    names = {"reseed": old.reseed, "epochs": OTHER_EPOCHS}
    return [Side(fwr13y.LABEL, RESEED, names, frames=frames)]


def _by_hand(device: str) -> list[Side]:
    """Three constant 32-bit seeds, one a library; on a CPU torch's accelerators are left out."""
    names = {"random": random, "numpy": np, "torch": torch}
    call = "torch" if device == "cuda" else "torch.default_generator"
    return [Side("by hand", BY_HAND.format(call), names)]


def _as_a_wheel() -> list[Side]:
    names = {"reseed": fastseed.Seeder(MASTER, 1, 0).reseed, "epochs": itertools.count()}
    return [without_generators.side(Side("", RESEED, names))]


def _ways(device: str) -> dict[str, Callable[[], list[Side]]]:
    return {
        f"fwr13y, {SHALLOW} frames deep": functools.partial(_fwr13y, SHALLOW),
        f"fwr13y, {DEEP} frames deep": functools.partial(_fwr13y, DEEP),
        "three seed calls by hand": functools.partial(_by_hand, device),
        without_generators.LABEL: _as_a_wheel,
    }


def warm(device: str) -> Contest:
    """One call after another."""
    return Contest(_ours(), _check, _ways(device), _check)


def in_a_loop(device: str) -> Contest:
    """A training step before each call, not timed."""
    ways = dict(itertools.islice(_ways(device).items(), 1, 3))
    beside = {
        label: lambda make=make: [_after_a_step(side) for side in make()]
        for label, make in ways.items()
    }
    return Contest(_after_a_step(_ours()), _check, beside, _check, share=0.02)


def init(_: str) -> Contest:
    """fwr13y's ``init`` stores three numbers; fastseed's finds where the job is."""

    def side(module: Any) -> Side:
        return Side(module.__name__, f"init({MASTER}, 1, 0)", {"init": module.init, "of": module})

    def check(made: Side) -> None:
        made.run()
        expect(made.names["of"].get_master_seed() == MASTER, f"the master seed of {made.label}")

    return Contest(side(fastseed), check, {"fwr13y": lambda: [side(fwr13y.seeder())]}, check)


def cases() -> list[Case]:
    """The rows of this module."""
    fast = {"three seed calls by hand": 0.8}
    both: dict[str, Any] = {"devices": ("cpu", "cuda"), "headline": True}
    every: dict[str, float | None] = dict.fromkeys(_ways("cpu"))
    looped = dict(itertools.islice(every.items(), 1, 3))
    return [
        Case("reseed", "3-generators", every | fast, warm, **both),
        Case("reseed", "3-generators-in-a-loop", looped, in_a_loop, **both),
        Case("init", "1", {"fwr13y": None}, init),
    ]
