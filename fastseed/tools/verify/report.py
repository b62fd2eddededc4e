"""The result of a verification: its checks, what the seed reaches, JSON, a table, a picture."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import itertools
import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ..._utils import StateDict, atomic_file
from ...debug.module_calls import ROOT
from ...debug.reach import Seen, Verdict, judge
from ...debug.watch_file import Values
from ...digest.trees import whole
from .comparison import RankRun, is_same_line, recordings
from .runs import EXPERIMENTS, OTHER, WHOLE, Run, printed

PASSED, FAILED, INCONCLUSIVE = "passed", "failed", "inconclusive"

# Colours of Okabe and Ito, which colour-blind people can distinguish.
_COLOURS = dict(zip(EXPERIMENTS, ("#0072B2", "#009E73", "#AA4499", "#D55E00"), strict=True))

_INPUT = re.compile(rf"{re.escape(ROOT)} #\d+ input")


class Check(NamedTuple):
    name: str  # repeat, stop, resume, seed, reach or ranks
    title: str  # "whole runs are equal"
    passed: bool | None  # None if it was not checked
    message: str  # with the first difference


@dataclasses.dataclass(frozen=True)
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
        return run.losses.values or printed(run.lines, self.value)

    def experiments(self) -> list[tuple[str, int, int, str, str]]:
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


def with_reach(report: Report, seeds: Sequence[int], allow: Mapping[str, str]) -> Report:
    """Return a report with the verdicts about the runs of these seeds."""
    again = [run for run in report.runs if run.experiment == WHOLE]
    runs = [again[0], *(run for run in report.runs if run.experiment == OTHER)]
    found = [_parts(run, seed, runs[0], seeds[0]) for run, seed in zip(runs, seeds, strict=True)]
    reach = judge(found, _parts(again[-1], seeds[0], runs[0], seeds[0]), seeds, allow)
    wrong = [f"{row.leaf} is {row.verdict}" for row in reach.rows if not row.ok]
    message = "; ".join(wrong) or f"{len(reach.rows)} part(s), all good or allowed"
    check = Check("reach", "every part follows the seed", bool(reach), message)
    # Instead of the check that every other run differs from the first one.
    checks = (*(one for one in report.checks if one.name != "seed"), check)
    notes = report.notes
    if not any(name.endswith("batches") for name in found[0]):
        notes += ("no batch was recorded; fastseed.debug.Watch(model) does that",)
    return dataclasses.replace(report, checks=checks, notes=notes, reach=reach.rows)


def _parts(run: Run, seed: int, first: Run, first_seed: int) -> dict[str, Seen]:
    parts = {"losses": Seen(repr(run.losses.values), is_long=True)}
    if not first.losses.values:
        pairs = itertools.zip_longest(run.lines, first.lines, fillvalue="")
        same = (b if is_same_line(a, b, (seed, first_seed)) else a for a, b in pairs)
        parts = {"output": Seen(tuple(same), is_long=True)}
    for one in [] if run.recording is None else recordings(run):
        rank = f"rank{one.header['rank']}." if one.header["world_size"] > 1 else ""
        steps = [one.values(step) for step in sorted(one.steps)]
        batches = [digest for step in steps if (digest := _digest(step, "forward"))]
        if batches:
            parts[f"{rank}batches"] = Seen(tuple(batches), batches, is_long=True)
        for name, step in (("first weights", steps[0]), ("last weights", steps[-1])):
            if digest := _digest(step, "parameter"):
                parts[f"{rank}{name}"] = Seen(digest, is_long=True)
    return parts


def _digest(step: Values, wanted: str) -> bytes:
    """Return a digest of all parameters, or of what the model was called with; empty if none."""
    leaves = {
        name: leaf
        for (group, name), leaf in step.by_name().items()
        if group == wanted and (wanted == "parameter" or _INPUT.match(name))
    }
    return whole(leaves).to_bytes(16, "little") if leaves else b""
