"""The result of a verification, as JSON, as a table, and as a picture of the losses."""

from __future__ import annotations

import dataclasses
import io
import json
import math
import os
from dataclasses import dataclass
from pathlib import Path

from ..._utils import StateDict, atomic_file
from .comparison import Measured
from .losses import Curve, printed
from .ranks import RankRun
from .runs import EXPERIMENTS

PASSED, FAILED, INCONCLUSIVE = "passed", "failed", "inconclusive"

# Colours of Okabe and Ito, which colour-blind people can distinguish.
_COLOURS = dict(zip(EXPERIMENTS, ("#0072B2", "#009E73", "#AA4499", "#D55E00"), strict=True))


@dataclass(frozen=True)
class Check:
    """One question and its answer.

    Attributes:
        name: ``repeat``, ``stop``, ``resume``, ``seed`` or ``ranks``.
        title: the property that is checked: "runs with the same seed are identical".
        passed: the answer; None if it was not checked.
        message: the answer in a sentence, with the first difference.
    """

    name: str
    title: str
    passed: bool | None
    message: str


@dataclass(frozen=True)
class Report:
    """The result of a verification; true if it passed.

    Attributes:
        checks: the questions and their answers.
        measured: all runs, experiment by experiment.
        value: the name of the loss.
        causes: why runs differ, as far as recordings and files say.
        notes: further remarks.
        ranks: the runs with several numbers of ranks.
    """

    checks: tuple[Check, ...]
    measured: tuple[Measured, ...]
    value: str = "loss"
    causes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    ranks: tuple[RankRun, ...] = ()

    def __bool__(self) -> bool:
        return self.verdict == PASSED

    @property
    def verdict(self) -> str:
        """``passed``, ``failed``, or ``inconclusive`` if only another seed changes nothing."""
        failed = [check.name for check in self.checks if check.passed is False]
        return PASSED if not failed else INCONCLUSIVE if failed == ["seed"] else FAILED

    def document(self) -> StateDict:
        """Return the report as plain values, for JSON; NaN and infinities are text."""
        runs = [
            {
                "name": one.run.name,
                "command": list(one.run.command),
                "seconds": one.run.seconds,
                "killed": one.run.killed,
                "lines": len(one.lines),
                "losses": {k: _plain(v) for k, v in self.curve_of(one).values.items()},
            }
            for one in self.measured
        ]
        return {
            "verdict": self.verdict,
            "passed": bool(self),
            "checks": [dataclasses.asdict(check) for check in self.checks],
            "causes": list(self.causes),
            "notes": list(self.notes),
            "ranks": [run._asdict() for run in self.ranks],
            "runs": runs,
        }

    def curve_of(self, one: Measured) -> Curve:
        """Return the losses of a run: those that have steps, else those that it printed."""
        return printed(one.lines, self.value) if one.curve is None else one.curve

    def experiments(self) -> list[tuple[str, int, int, str, str]]:
        """Return name, number of runs, lines, last losses and time of each experiment."""
        rows = []
        for name in dict.fromkeys(one.run.experiment for one in self.measured):
            runs = [one for one in self.measured if one.run.experiment == name]
            ends = [list(v)[-1] for one in runs if (v := self.curve_of(one).values.values())]
            losses = sorted(set(ends), key=lambda one: (math.isnan(one), one))
            loss = " to ".join(f"{value:.6g}" for value in (*losses[:1], *losses[1:][-1:]))
            seconds = sum(one.run.seconds for one in runs)
            lines = max(len(one.lines) for one in runs)
            rows.append((name, len(runs), lines, loss or "-", f"{seconds:.2f} s"))
        return rows


def _plain(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)


def write(report: Report, folder: str | os.PathLike[str]) -> list[Path]:
    """Write ``report.json`` to ``folder``, and ``losses.png`` if there are losses.

    Existing files are replaced atomically. The picture needs matplotlib.
    """
    target = Path(folder)
    text = json.dumps(report.document(), indent=1, allow_nan=False) + "\n"
    written = [atomic_file.replace(target / "report.json", text.encode())]
    try:
        picture = png(report)
    except ImportError:
        return written
    if picture is not None:
        written.append(atomic_file.replace(target / "losses.png", picture))
    return written


def png(report: Report) -> bytes | None:
    """Return the losses of every run as a picture; None without losses.

    Uses a figure object and the Agg canvas only: no display, and no global state of matplotlib.
    """
    curves = [(one.run, report.curve_of(one)) for one in report.measured]
    steps = dict.fromkeys(step for _, curve in curves for step in curve.values)
    if not steps:
        return None
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 8), dpi=100, layout="constrained")
    figure.suptitle(report.verdict.upper(), fontsize=18)
    axes = figure.subplots(2, 2, sharex=True, sharey=True)
    position = {step: i for i, step in enumerate(steps)}
    for name, panel in zip(EXPERIMENTS, axes.flat, strict=True):
        shown = [curve for run, curve in curves if run.experiment == name]
        panel.set_title(f"{name}: {len(shown)} runs", loc="left")
        panel.set(xlabel="step", ylabel=report.value)
        panel.grid(color="#dddddd", linewidth=0.6)
        for curve in shown:
            points = [
                (position[step], value)
                for step, value in curve.values.items()
                if abs(value) < 1e300  # an axis cannot have more
            ]
            x, y = zip(*points, strict=True) if points else ((), ())
            marker = "o" if len(points) == 1 else None
            panel.plot(x, y, color=_COLOURS[name], alpha=0.6, lw=1.1, marker=marker)
    out = io.BytesIO()
    figure.savefig(out, format="png", metadata={"Software": None})
    return out.getvalue()
