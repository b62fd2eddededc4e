"""A whole process: Python, NumPy and torch on the CPU, at one point in time."""

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

# torch.manual_seed, which fwr13y calls, formats the stack it is called from while an
# accelerator is not initialized, so its cost grows with each frame. A plain script that the timer
# runs is 8 deep; one inside a training framework is some 30.
SHALLOW, DEEP = 8, 30

BY_HAND = "random.seed(7); numpy.random.seed(7); torch.default_generator.manual_seed(7)"


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


def _check_reseed(contest: Contest) -> None:
    epoch = next(contest.fastseed.names["epochs"])
    contest.fastseed.run(epochs=iter([epoch]))
    _expect_state_of(epoch)


def _check_fwr13y(contest: Contest) -> None:
    _check_reseed(contest)
    (baseline,) = contest.baselines
    epoch = next(baseline.names["epochs"])
    baseline.run(epochs=iter([epoch]))
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
    names = {"reseed": fastseed.reseed, "epochs": itertools.count()}
    return Side("fastseed.reseed", "reseed(1, next(epochs))", names)


def against_fwr13y(frames: int) -> Contest:
    """fwr13y's call of the same name, from a stack of the same depth."""
    old = fwr13y.seeder()
    old.init(MASTER, 1, 0)
    names = {"reseed": old.reseed, "epochs": itertools.count()}
    baseline = Side(fwr13y.LABEL, "reseed(1, next(epochs))", names)
    return Contest(_ours(), (baseline,), _check_fwr13y, frames=frames)


def against_by_hand() -> Contest:
    """Three constant 32-bit seeds, one a library, and torch's accelerators left out."""
    names = {"random": random, "numpy": np, "torch": torch}
    return Contest(_ours(), (Side("by hand", BY_HAND, names),), _check_reseed)


def after_a_step(build: Callable[[], Contest]) -> Contest:
    """The same contest with a training step before each call, not timed."""
    contest = build()
    (baseline,) = contest.baselines
    return replace(
        contest,
        fastseed=_after_a_step(contest.fastseed),
        baselines=(_after_a_step(baseline),),
        check=lambda _: contest.check(contest),
        share=0.02,
    )


def against_itself_without_generators() -> Contest:
    """The cost of using the public functions of torch and NumPy only."""
    names = {"reseed": fastseed.Seeder(MASTER, 1, 0).reseed, "epochs": itertools.count()}
    slower = without_generators.side(Side("fastseed.reseed", "reseed(1, next(epochs))", names))

    def check(contest: Contest) -> None:
        _check_reseed(contest)
        epoch = next(names["epochs"])
        slower.run(epochs=iter([epoch]))
        _expect_state_of(epoch)

    return Contest(_ours(), (slower,), check)


def init_against_fwr13y() -> Contest:
    """fwr13y's ``init`` stores three numbers; fastseed's finds where the job is."""
    old = fwr13y.seeder()

    def check(contest: Contest) -> None:
        for side, module in ((contest.fastseed, fastseed), (contest.baselines[0], old)):
            side.run()
            expect(module.get_master_seed() == MASTER, f"the master seed of {side.label}")

    def side(label: str, module: Any) -> Side:
        return Side(label, f"init({MASTER}, 1, 0)", {"init": module.init})

    baseline = side(fwr13y.LABEL, old)
    return Contest(side("fastseed.init", fastseed), (baseline,), check)


def cases() -> list[Case]:
    """The rows of this module."""
    shallow, deep = (functools.partial(against_fwr13y, frames) for frames in (SHALLOW, DEEP))
    in_loop = functools.partial(functools.partial, after_a_step)
    name = "reseed/cpu/3-generators"
    return [
        Case(name, f"fwr13y, {SHALLOW} frames deep", 20, shallow),
        Case(name, f"fwr13y, {DEEP} frames deep", None, deep),
        Case(name, "three seed calls by hand", 1 / 1.25, against_by_hand),
        Case(name, without_generators.LABEL, None, against_itself_without_generators),
        Case(f"{name}-in-a-loop", f"fwr13y, {DEEP} frames deep", None, in_loop(deep)),
        Case(f"{name}-in-a-loop", "three seed calls by hand", None, in_loop(against_by_hand)),
        Case("init/cpu/1", "fwr13y", None, init_against_fwr13y),
    ]
