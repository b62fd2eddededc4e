"""Write a report as JSON and as a picture of the curves; its table of the experiments."""

from __future__ import annotations

import dataclasses
import io
import json
import math
import os
from pathlib import Path

from ..._utils import atomic_file
from .options import EXPERIMENTS
from .result import Report

# Colours of Okabe and Ito, which colour-blind people can distinguish.
_COLOURS = dict(zip(EXPERIMENTS, ("#0072B2", "#009E73", "#AA4499", "#D55E00"), strict=True))


def write(report: Report, folder: str | os.PathLike[str]) -> list[Path]:
    """Write ``report.json``, and ``curves.png`` if matplotlib is installed, to ``folder``.

    Existing files are replaced atomically.
    """
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    written = [atomic_file.replace(target / "report.json", to_json(report).encode())]
    try:
        picture = png(report)
    except ImportError:
        return written
    return [*written, atomic_file.replace(target / "curves.png", picture)]


def to_json(report: Report) -> str:
    """Return ``report`` as JSON: its fields, with NaN and infinities as strings (``"nan"``).

    Each number has the digits that identify the double.
    """
    document = {"passed": report.passed, **dataclasses.asdict(report)}
    return json.dumps(_plain(document), indent=1, allow_nan=False) + "\n"


def _plain(value: object) -> object:
    """Return a value as JSON has it."""
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def png(report: Report) -> bytes:
    """Return the curves of every run as a picture; ImportError without matplotlib.

    Uses a figure object and the Agg canvas only: no display, and no global state of matplotlib.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 8), dpi=100, layout="constrained")
    figure.suptitle(f"{'PASSED' if report.passed else 'FAILED'}: {report.verdict}", fontsize=18)
    axes = figure.subplots(2, 2, sharex=True, sharey=True)
    position = {step: i for i, step in enumerate(report.runs[0].curve.values)}
    for name, panel in zip(EXPERIMENTS, axes.flat, strict=True):
        panel.set_title(f"{name}: {len(report.of(name))} runs", loc="left")
        panel.set(xlabel="step", ylabel="loss")
        panel.grid(color="#dddddd", linewidth=0.6)
        for run in report.of(name):
            points = [
                (position[step], value)
                for step, value in run.curve.values.items()
                if step in position and abs(value) < 1e300  # an axis cannot have more
            ]
            x, y = zip(*points, strict=True) if points else ((), ())
            marker = "o" if len(points) == 1 else None
            panel.plot(x, y, color=_COLOURS[name], alpha=0.6, lw=1.1, marker=marker)
    out = io.BytesIO()
    figure.savefig(out, format="png", metadata={"Software": None})
    return out.getvalue()


def experiments(report: Report) -> list[tuple[str, int, str, str, str]]:
    """Return name, number of runs, last step, losses there and time of each experiment."""
    rows = []
    for name in dict.fromkeys(run.experiment for run in report.runs):
        runs = report.of(name)
        ends = [list(run.curve.values.items())[-1] for run in runs]
        losses = sorted({value for _, value in ends}, key=lambda one: (math.isnan(one), one))
        loss = " to ".join(f"{value:.6g}" for value in (*losses[:1], *losses[1:][-1:]))
        seconds = sum(run.seconds for run in runs)
        rows.append((name, len(runs), ends[0][0], loss, f"{seconds:.2f} s"))
    return rows
