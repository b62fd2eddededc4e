"""The curves as a picture: every run, the spread of the runs, and the paired differences.

Uses figure objects and the Agg canvas only: no display, and no global state of matplotlib.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..result import EXPERIMENTS, Floats, Report
from . import tables

# Colours of Okabe and Ito, which colour-blind people can distinguish.
_COLOURS = {
    "uninterrupted": "#0072B2",
    "truncated": "#009E73",
    "resumed": "#AA4499",
    "unseeded": "#D55E00",
}
_TITLES = {
    "uninterrupted": "uninterrupted",
    "truncated": "truncated",
    "resumed": "resumed from the checkpoint",
    "unseeded": "unseeded baseline",
}
_POINTS = 2000  # of a curve; more than the picture has pixels
_LOG = 50.0  # the axis is logarithmic if the largest loss over the smallest exceeds this


def png(report: Report) -> bytes:
    """Return the picture, 1200 x 1700 pixels; ImportError without matplotlib."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 17), dpi=100, facecolor="white", layout="constrained")
    canvas = FigureCanvasAgg(figure)
    passed = "PASSED" if report.passed else "FAILED"
    figure.suptitle(f"{passed}: {report.verdict}", fontsize=18, fontweight="bold")
    _Plot(report, figure).draw()
    for axes in figure.axes:
        axes.set_xlabel("step")
        axes.grid(True, color="#dddddd", linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    out = io.BytesIO()
    canvas.print_png(out, metadata={"Software": None})  # type: ignore[no-untyped-call]
    return out.getvalue()


def thin(values: Floats) -> npt.NDArray[np.int64]:
    """Return the indices to draw: of each of 1,000 stretches the smallest and the largest value."""
    if len(values) <= _POINTS:
        return np.arange(len(values))
    keep: set[int] = set()
    for part in np.array_split(np.arange(len(values)), _POINTS // 2):
        finite = part[np.isfinite(values[part])]
        if len(finite):
            keep |= {int(finite[values[finite].argmin()]), int(finite[values[finite].argmax()])}
    return np.array(sorted(keep), dtype=np.int64)


class _Plot:
    """The panels of a figure, which share the axis of steps."""

    def __init__(self, report: Report, figure: Any) -> None:
        self.report = report
        self.figure = figure
        self.grid = figure.add_gridspec(4, 2, height_ratios=(1, 1, 1.25, 1))
        self.names = list(dict.fromkeys(s for b in report.bands.values() for s in b.steps))
        self.at = {step: i for i, step in enumerate(self.names)}

    def draw(self) -> None:
        """Draw all panels."""
        first: Any = None
        for i, name in enumerate(EXPERIMENTS):
            axes = self.figure.add_subplot(self.grid[i // 2, i % 2], sharex=first, sharey=first)
            first = first or axes
            self._runs(axes, name)
        spread = self.figure.add_subplot(self.grid[2, :])
        self._spread(spread)
        for i, one in enumerate(self.report.paired):
            axes = self.figure.add_subplot(self.grid[3, i])
            axes.set_title(f"{tables.pair(one)}: {one.pairs} pairs", loc="left")
            axes.axhline(0, color="#767676", linewidth=0.8)
            colour = _COLOURS.get(one.b, "black")
            for low, high, alpha in ((one.low99, one.high99, 0.2), (one.low95, one.high95, 0.35)):
                if low is not None and high is not None:
                    label = "99% interval" if alpha == 0.2 else "95% interval"
                    self._fill(axes, one.steps, low, high, color=colour, alpha=alpha, label=label)
            self._line(axes, one.steps, one.mean, color=colour, label="mean")
            axes.legend(loc="best", frameon=False)
        if self._is_wide():
            first.set_yscale("log", nonpositive="mask")
            spread.set_yscale("log", nonpositive="clip")
        for axes in self.figure.axes:
            self._name_steps(axes)

    def _runs(self, axes: Any, name: str) -> None:
        runs = self.report.of(name)
        same = {True: ", identical", False: ", different", None: ""}[tables.identical(runs)]
        axes.set_title(f"{_TITLES[name]}: {len(runs)} runs{same}", loc="left")
        axes.set_ylabel("loss")
        for run in runs:
            self._line(axes, run.curve.steps, run.curve.values, color=_COLOURS[name], alpha=0.6)

    def _spread(self, axes: Any) -> None:
        axes.set_title("mean, and 1, 2 and 3 standard deviations", loc="left")
        axes.set_ylabel("loss")
        for name, style in (("unseeded", "--"), ("uninterrupted", "-")):
            band = self.report.bands.get(name)
            if band is not None:
                for k in (3, 2, 1):
                    low, high = band.mean - k * band.std, band.mean + k * band.std
                    self._fill(axes, band.steps, low, high, color=_COLOURS[name], alpha=0.14)
                self._line(
                    axes, band.steps, band.mean, color=_COLOURS[name], ls=style, label=_TITLES[name]
                )
        if axes.lines:
            axes.legend(loc="best", frameon=False)

    def _line(self, axes: Any, steps: Sequence[str], values: Floats, **how: Any) -> None:
        index = thin(values)
        x = [self.at.get(steps[i], np.nan) for i in index]
        axes.plot(x, _clip(values[index]), marker="o" if len(index) == 1 else None, lw=1.1, **how)

    def _fill(self, axes: Any, steps: Sequence[str], low: Floats, high: Floats, **how: Any) -> None:
        index = np.unique(np.linspace(0, max(len(low) - 1, 0), _POINTS).astype(int))[: len(low)]
        x = [self.at[steps[i]] for i in index]
        axes.fill_between(x, _clip(low[index]), _clip(high[index]), linewidth=0, **how)

    def _is_wide(self) -> bool:
        found = [run.curve.values[np.isfinite(run.curve.values)] for run in self.report.runs]
        values = np.concatenate(found) if found else np.zeros(0)
        return len(values) > 0 and values.min() > 0 and values.max() / values.min() >= _LOG

    def _name_steps(self, axes: Any) -> None:
        if self.names:
            few = 5 * len(axes.get_subplotspec().colspan)
            at = np.unique(np.linspace(0, len(self.names) - 1, few).round().astype(int))
            # A dollar sign would begin a formula.
            axes.set_xticks(at, [self.names[i][:14].replace("$", r"\$") for i in at])


def _clip(values: Floats) -> Floats:
    """Return values that an axis can have: beyond 1e300 its limits overflow."""
    return np.where(np.isfinite(values), np.clip(values, -1e300, 1e300), np.nan)
