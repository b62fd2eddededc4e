"""Made-up runs, and their reports."""

from __future__ import annotations

import numpy as np

from fastseed.tools.verify import comparison
from fastseed.tools.verify.result import Check, Curve, Report, Run


def run(experiment: str, number: int, losses: dict, **more) -> Run:
    values = {str(step): float(loss) for step, loss in losses.items()}
    return Run(experiment, number, ("x",), 1.0, "no-folder", Curve(values, **more))


def line(values, begin: int = 0) -> dict[int, float]:
    return {begin + i: value for i, value in enumerate(values)}


def all_runs(n: int = 2, *, unseeded: bool = True) -> list[Run]:
    """Return ``n`` runs of each experiment, of 4 steps; all but unseeded ones are equal."""
    samples = np.random.Generator(np.random.Philox(3)).normal(size=(n, 4))
    found = []
    for k in range(n):
        found += [
            run("uninterrupted", k, line([1, 1, 1, 1])),
            run("truncated", k, line([1, 1])),
            run("resumed", k, line([1, 1], 2)),
        ]
        found += [run("unseeded", k, line(2 + samples[k]))] * unseeded
    return found


def replaced(runs: list[Run], name: str, losses: dict, **more) -> list[Run]:
    """Return ``runs`` with the losses of one replaced."""
    return [run(r.experiment, r.number, losses, **more) if r.name == name else r for r in runs]


def judged(runs: list[Run], tensors: Check | None = None, **fields) -> Report:
    """Return the report of ``runs``, with another check of tensors."""
    checks = comparison.check_all(runs, comparison.compare_recordings(runs))
    checks = checks if tensors is None else (*checks[:4], tensors)
    verdict, summary = comparison.conclude(checks)
    notes = tuple(comparison.notes_about(runs))
    given = {"causes": (), "options": {}, "notes": notes, **fields}
    return Report(verdict, summary, tuple(runs), checks, **given)
