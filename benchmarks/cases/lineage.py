"""Samples of steps and steps of samples at n = 10**12, beside docs/spec/data_order.py in Python."""

from __future__ import annotations

import functools
import runpy
from pathlib import Path
from typing import Any

import numpy as np

from fastseed.data import Lineage
from fastseed.data.journal import signed
from fastseed.data.lineage import Visits

from ..case import Case, Contest, Side, expect

N, EPOCH, STEP = 10**12, 7, 123_456
EPOCHS = range(100)
PROGRAM = Path(__file__).resolve().parents[2] / "docs" / "spec" / "data_order.py"


def contract(is_mixture: bool = False, master_seed: int = 42) -> dict[str, Any]:
    """A job of 8 ranks with 512 samples each, of one source or of three."""
    order: dict[str, Any] = {"kind": "shuffle", "name": "shuffle", "n": N}
    if is_mixture:
        parts = {"web": 2, "code": 4, "books": 4}
        sources = [
            {"name": name, "size": N // part, "share": 2**32 // part, "skip": 0}
            for name, part in parts.items()
        ]
        order |= {"kind": "mixture", "name": "mixture", "sources": sources, "shuffled": 1}
    sizes = {"ranks": 8, "batch_size": 512, "slots": 0, "drop_last": 0, "ranks_drop_last": 0}
    return signed(
        {
            **{"format": "fastseed.lineage", "version": 1, "derivation": 1},
            **{"master_seed": master_seed, "task": 1, "epoch": EPOCH, "step": STEP},
            **{"orders": [order], "skips": [], "quarantines": []},
            "entries": [{"epoch": 0, "step": 0, "position": 0, "order": 0, **sizes}],
        }
    )


def _specified(name: str, call: str, **more: Any) -> Side:
    names = {**runpy.run_path(str(PROGRAM)), "contract": contract(), **more}
    return Side(name, call, names)


def _equal(found: Visits, specified: list[tuple[int, ...]]) -> bool:
    return [visit[:8] for visit in found.tolist()] == specified


def samples_of_step() -> Contest:
    """The 4,096 samples of a step."""
    lineage = Lineage.load(contract())
    side = Side("Lineage.at", f"lineage.at({EPOCH}, {STEP})", {"lineage": lineage})
    baseline = _specified("data_order.at", f"at(contract, {EPOCH}, {STEP})")

    def check(contest: Contest) -> None:
        found = contest.fastseed.run()
        expect(len(found) == 4096, "all samples of the step")
        expect(_equal(found, contest.baselines[0].run()), "the samples of the specification")

    return Contest(side, (baseline,), check)


def _where(is_mixture: bool) -> Side:
    names = {"lineage": Lineage.load(contract(is_mixture)), "epochs": EPOCHS}
    return Side("Lineage.where", "lineage.where(17, epochs=epochs)", names)


def steps_of_sample() -> Contest:
    """The visits of one sample in 100 epochs."""
    baseline = _specified("data_order.where", "where(contract, 17, epochs)", epochs=EPOCHS)

    def check(contest: Contest) -> None:
        found = contest.fastseed.run()
        expect(len(found) == len(EPOCHS), "a visit in each epoch")
        expect(_equal(found, contest.baselines[0].run()), "the steps of the specification")

    return Contest(_where(False), (baseline,), check)


def steps_in_mixture() -> Contest:
    """The visits of one sample of a mixture, beside those of one of a shuffle."""

    def check(contest: Contest) -> None:
        found = contest.fastseed.run()
        expect(len(found) > len(EPOCHS) // 2, "visits in most epochs")
        few = range(found.epoch[1] + 1)
        side = _specified("data_order.where", "where(contract, 17, few)", few=few)
        specified = side.run(contract=contract(is_mixture=True))
        expect(_equal(contest.fastseed.run(epochs=few), specified), "the steps specified")
        expect(len(contest.baselines[0].run()) == len(EPOCHS), "a visit in each epoch")

    return Contest(_where(True), (_where(False),), check)


def steps_of_samples(count: int, specified: int) -> Contest:
    """The visits of many samples in one epoch; those of the first ``specified`` in a loop."""
    samples = np.random.default_rng(0).choice(N, count)
    epochs = range(EPOCH, EPOCH + 1)
    names = {"lineage": Lineage.load(contract()), "samples": samples, "epochs": epochs}
    side = Side("Lineage.where", "lineage.where(samples, epochs=epochs)", names)
    loop = "[visit for sample in samples for visit in where(contract, sample, epochs)]"
    few = samples[:specified].tolist()
    baseline = _specified("data_order.where, loop", loop, samples=few, epochs=epochs)

    def check(contest: Contest) -> None:
        expect(len(contest.fastseed.run()) == count, "a visit of each sample")
        found = contest.fastseed.run(samples=samples[:specified])
        expect(_equal(found, sorted(contest.baselines[0].run())), "the steps of the specification")

    return Contest(side, (baseline,), check)


def cases() -> list[Case]:
    """The rows of this module.

    The loop over 10**6 samples would take minutes: its baseline has a hundredth of them, so a ratio
    of 0.5 is 50 times the samples in a second.
    """
    program, loop = "docs/spec/data_order.py", functools.partial(steps_of_samples, specified=10**4)
    return [
        Case("lineage.at/cpu/4096-of-1e12", program, 50, samples_of_step),
        Case("lineage.where/cpu/100-epochs-of-1e12", program, None, steps_of_sample),
        Case("lineage.where_mixture/cpu/100-epochs-of-1e12", "of a shuffle", None,
             steps_in_mixture),
        Case("lineage.where/cpu/1e4-of-1e12", f"{program}, loop", 50,
             functools.partial(loop, 10**4)),
        Case("lineage.where/cpu/1e6-of-1e12", f"{program}, loop of 1e4", 0.5,
             functools.partial(loop, 10**6)),
    ]  # fmt: skip
