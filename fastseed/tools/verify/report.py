"""The result of a verification, as JSON, as a table, and as a picture of the losses."""

from __future__ import annotations

import contextlib
import io
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ..._utils import StateDict, atomic_file
from ...debug.reach import Verdict
from .comparison import RankRun
from .runs import EXPERIMENTS, Run, printed

PASSED, FAILED, INCONCLUSIVE = "passed", "failed", "inconclusive"

# Colours of Okabe and Ito, which colour-blind people can distinguish.
_COLOURS = dict(zip(EXPERIMENTS, ("#0072B2", "#009E73", "#AA4499", "#D55E00"), strict=True))


class Check(NamedTuple):
    name: str  # repeat, stop, resume, seed, reach or ranks
    title: str  # "whole runs are equal"
    passed: bool | None  # None if it was not checked
    message: str  # with the first difference


@dataclass(frozen=True)
class Report:
    """The result of a verification; true if it passed."""

    checks: tuple[Check, ...]
    runs: tuple[Run, ...]  # experiment by experiment
    value: str = "loss"  # its name
    notes: tuple[str, ...] = ()
    ranks: tuple[RankRun, ...] = ()
    reach: tuple[Verdict, ...] = ()

    def __bool__(self) -> bool:
        return self.verdict == PASSED

    @property
    def verdict(self) -> str:
        """``failed``; ``passed`` if all was checked; else, or without a seed, ``inconclusive``."""
        wrong = {check.name: check.passed for check in self.checks if not check.passed}
        if any(passed is False and name != "seed" for name, passed in wrong.items()):
            return FAILED
        return INCONCLUSIVE if wrong or not self.checks else PASSED

    def document(self) -> StateDict:
        """Return the report as plain values, for JSON; NaN and infinities are text."""
        runs = [
            {
                "name": run.name,
                "command": list(run.command),
                "seconds": run.seconds,
                "killed": run.killed,
                "lines": len(run.lines),
                "losses": {
                    step: loss if math.isfinite(loss) else str(loss)
                    for step, loss in self.losses_of(run).items()
                },
            }
            for run in self.runs
        ]
        return {
            "verdict": self.verdict,
            "passed": bool(self),
            "checks": [check._asdict() for check in self.checks],
            "notes": list(self.notes),
            "ranks": [run._asdict() for run in self.ranks],
            "reach": [row._asdict() for row in self.reach],
            "runs": runs,
        }

    def losses_of(self, run: Run) -> dict[str, float]:
        """Return the losses of a run: those that have steps, else those that it printed."""
        return run.losses.values or printed(run.lines, self.value)

    def experiments(self) -> list[tuple[str, int, int, str, str]]:
        """Return name, number of runs, lines, last losses and time of each experiment."""
        rows = []
        for name in dict.fromkeys(run.experiment for run in self.runs):
            runs = [run for run in self.runs if run.experiment == name]
            ends = [[*v.values()][-1] for run in runs if (v := self.losses_of(run))]
            losses = sorted(set(ends), key=lambda one: (math.isnan(one), one))
            loss = " to ".join(f"{value:.6g}" for value in (*losses[:1], *losses[1:][-1:]))
            seconds = sum(run.seconds for run in runs)
            lines = max(len(run.lines) for run in runs)
            rows.append((name, len(runs), lines, loss or "-", f"{seconds:.2f} s"))
        return rows


def write(report: Report, folder: Path) -> None:
    """Write ``report.json``, and ``losses.png`` if there are losses and matplotlib is installed."""
    text = json.dumps(report.document(), indent=1, allow_nan=False) + "\n"
    atomic_file.replace(folder / "report.json", text.encode())
    curves = [(run.experiment, report.losses_of(run)) for run in report.runs]
    if any(curve for _, curve in curves):
        with contextlib.suppress(ImportError):
            atomic_file.replace(folder / "losses.png", _png(report, curves))


def _png(report: Report, curves: list[tuple[str, dict[str, float]]]) -> bytes:
    """Return the losses of every run as a picture, without a display or matplotlib's globals."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 8), dpi=100, layout="constrained")
    figure.suptitle(report.verdict.upper(), fontsize=18)
    axes = figure.subplots(2, 2, sharex=True, sharey=True)
    steps = dict.fromkeys(step for _, curve in curves for step in curve)
    position = {step: i for i, step in enumerate(steps)}
    for name, panel in zip(EXPERIMENTS, axes.flat, strict=True):
        shown = [curve for experiment, curve in curves if experiment == name]
        panel.set_title(f"{name}: {len(shown)} runs", loc="left")
        panel.set(xlabel="step", ylabel=report.value)
        panel.grid(color="#dddddd", linewidth=0.6)
        for curve in shown:
            x = [position[step] for step in curve]
            y = [value if abs(value) < 1e300 else math.nan for value in curve.values()]
            marker = "o" if len(x) == 1 else None
            panel.plot(x, y, color=_COLOURS[name], alpha=0.6, lw=1.1, marker=marker)
    out = io.BytesIO()
    figure.savefig(out, format="png", metadata={"Software": None})
    return out.getvalue()
