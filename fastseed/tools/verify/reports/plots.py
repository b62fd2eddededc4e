"""The curves as a picture: what every run did, how far they spread, and by how much they differ.

Figure objects and the Agg canvas alone: no pyplot, no display, and nothing of matplotlib's global
state is changed.
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..result import EXPERIMENTS, Band, Floats, Paired, Report, Run
from .phrasing import alike, count, pair

# Okabe and Ito's colours, which the colour-blind tell apart too.
COLOURS = {"whole": "#0072B2", "half": "#009E73", "resumed": "#AA4499", "unseeded": "#D55E00"}
TITLES = {
    "whole": "whole run",
    "half": "first half",
    "resumed": "resumed from the checkpoint",
    "unseeded": "without a seed",
}
POINTS = 2000  # of a curve; more than the picture has pixels
_INK, _GRID, _FAINT = "#222222", "#dddddd", "#767676"
_GOOD, _BAD = "#1a7f37", "#b42318"
_CROSSES = 300  # marks along an axis
_LARGEST = 1e300  # beyond it the limits of axes overflow
_LOG = 50.0  # largest loss over smallest from which on the axis is logarithmic


def png(report: Report) -> bytes:
    """The picture ``curves.png``: 1200 x 1700 pixels.

    Raises:
        ImportError: matplotlib is missing.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 17), dpi=100, facecolor="white")
    canvas = FigureCanvasAgg(figure)
    draw(report, figure)
    _plain_text(figure)
    out = io.BytesIO()
    canvas.print_png(out, metadata={"Software": None})  # type: ignore[no-untyped-call]
    return out.getvalue()


def draw(report: Report, figure: Any) -> None:
    """Draw all panels on an empty figure of matplotlib."""
    places = positions(report)
    grid = figure.add_gridspec(4, 2, height_ratios=(1, 1, 1.25, 1))
    figure.set_layout_engine("constrained", h_pad=0.12, w_pad=0.1, hspace=0.03)
    mark = "PASSED" if report.passed else "FAILED"
    figure.suptitle(
        *(f"{mark}: {shown(report.verdict, 60)}",), fontsize=18, fontweight="bold",
        color=_GOOD if report.passed else _BAD,
    )  # fmt: skip
    first: Any = None
    for i, experiment in enumerate(EXPERIMENTS):
        axes = figure.add_subplot(grid[i // 2, i % 2], sharex=first, sharey=first)
        first = first or axes
        _runs(axes, experiment, report.of(experiment), places)
    overlay = figure.add_subplot(grid[2, :])
    _overlay(overlay, report.bands, places)
    if _wide(report):
        first.set_yscale("log", nonpositive="mask")
        overlay.set_yscale("log", nonpositive="clip")
    if len(places):
        first.set_xlim(*_margins(len(places)))
        overlay.set_xlim(*_margins(len(places)))
    _paired(figure, grid, report.paired, places)
    names = list(places)
    for axes in figure.axes:
        _ticks(axes, names)


def positions(report: Report) -> dict[str, int]:
    """Where each step stands on the axis: the whole runs' steps, then what only others have."""
    found: dict[str, int] = {}
    before: tuple[str, ...] = ()
    for run in sorted(report.runs, key=lambda run: EXPERIMENTS.index(run.experiment)):
        if run.curve.steps != before:  # nearly always all runs of an experiment have the same
            for step in run.curve.steps:
                found.setdefault(step, len(found))
        before = run.curve.steps
    return found


def shown(text: object, longest: int) -> str:
    """``text`` in at most ``longest`` characters that matplotlib's own font has."""
    plain = "".join(
        c if c.isprintable() and (c < "\u0250" or "\u0370" <= c < "\u0530") else "?"
        for c in str(text)
    )
    return plain if len(plain) <= longest else plain[: longest - 3] + "..."


# ---------------------------------------------------------------- thinning


def _buckets(n: int) -> list[slice]:
    """Parts of ``range(n)``, of nearly the same size, two points for each."""
    edges = np.linspace(0, n, POINTS // 2 + 1).astype(np.int64)
    return [slice(int(a), int(b)) for a, b in itertools.pairwise(edges) if a < b]


def thin(values: Floats) -> npt.NDArray[np.int64]:
    """Which points to draw: at most :data:`POINTS`, of each stretch the least and the greatest.

    So a spike of one step stays. What is not finite goes, but for stretches that hold nothing else.
    """
    if len(values) <= POINTS:
        return np.arange(len(values))
    keep: list[int] = []
    for part in _buckets(len(values)):
        finite = np.flatnonzero(np.isfinite(values[part])) + part.start
        if len(finite):
            least, greatest = finite[values[finite].argmin()], finite[values[finite].argmax()]
            keep += sorted({int(least), int(greatest)})
        else:
            keep.append(part.start)
    return np.array(keep)


def envelope(low: Floats, high: Floats) -> tuple[npt.NDArray[np.int64], Floats, Floats]:
    """The same for a band: where, and of each stretch the lowest and the highest edge."""
    if len(low) <= POINTS:
        return np.arange(len(low)), low, high
    parts = _buckets(len(low))
    bottom = [np.fmin.reduce(low[part]) for part in parts]
    top = [np.fmax.reduce(high[part]) for part in parts]
    return np.array([(p.start + p.stop) // 2 for p in parts]), np.array(bottom), np.array(top)


class _Line:
    """Draws what has a value for each of ``steps``, at these steps' places."""

    def __init__(self, axes: Any, places: dict[str, int], steps: Sequence[str]) -> None:
        self.axes, self.places, self.steps = axes, places, steps

    def at(self, index: npt.NDArray[np.int64]) -> Floats:
        # A step that no run has (a band's may be such) is drawn nowhere.
        return np.array([self.places.get(self.steps[i], np.nan) for i in index], np.float64)

    def plot(self, values: Floats, **how: Any) -> None:
        index = thin(values)
        marker = "o" if len(index) == 1 else None  # a lone point has no line
        kept = _drawable(values[index])
        self.axes.plot(self.at(index), kept, marker=marker, markersize=4, **how)

    def fill(self, low: Floats, high: Floats, **how: Any) -> None:
        index, low, high = envelope(_drawable(low), _drawable(high))
        x = self.at(index)
        if len(x) == 1:  # a band of one step would have no width
            x, low, high = np.array([x[0] - 0.1, x[0] + 0.1]), low.repeat(2), high.repeat(2)
        self.axes.fill_between(x, low, high, linewidth=0, **how)

    def cross(self, where: npt.NDArray[np.int64]) -> None:
        """Mark steps at the foot of the panel."""
        # One a stretch: a lone one among many steps stays.
        some = where[np.unique(where * _CROSSES // len(self.steps), return_index=True)[1]]
        self.axes.plot(
            *(self.at(some), np.full(len(some), 0.02)), "x", color=_INK, markersize=4,
            transform=self.axes.get_xaxis_transform(), label="NaN or infinite",
        )  # fmt: skip


def _drawable(values: Floats) -> Floats:
    return np.where(np.isfinite(values), np.clip(values, -_LARGEST, _LARGEST), np.nan)


# ---------------------------------------------------------------- panels


def _runs(axes: Any, experiment: str, runs: tuple[Run, ...], places: dict[str, int]) -> None:
    """Every run of one experiment, thin, and their mean."""
    _frame(axes, f"{TITLES[experiment]}: {_says(runs)}")
    if not any(len(run.curve.steps) for run in runs):
        _instead(axes, "no losses" if runs else "not run")
        return
    for run in runs:
        line = _Line(axes, places, run.curve.steps)
        label = "each run" if run is runs[0] else None
        line.plot(run.curve.values, color=COLOURS[experiment], alpha=0.6, lw=0.9, label=label)
        bad = np.flatnonzero(~np.isfinite(run.curve.values))
        if len(bad):
            line.cross(bad)
    steps, mean = _mean(runs)
    if len(steps):
        _Line(axes, places, steps).plot(mean, color=_INK, lw=1.1, ls=(0, (3, 2)), label="mean")
    _legend(axes)


def _mean(runs: tuple[Run, ...]) -> tuple[tuple[str, ...], Floats]:
    """The mean over the runs, in the steps that all of them have."""
    first = runs[0].curve.steps
    if all(run.curve.steps == first for run in runs):
        return first, _average(np.array([run.curve.values for run in runs]))
    common = set(first).intersection(*(run.curve.steps for run in runs))
    rows = []
    for run in runs:
        at = {step: i for i, step in enumerate(run.curve.steps)}
        rows.append([run.curve.values[at[step]] for step in first if step in common])
    return tuple(step for step in first if step in common), _average(np.array(rows))


def _average(values: Floats) -> Floats:
    with np.errstate(all="ignore"):
        found: Floats = (values / len(values)).sum(axis=0)
    return found


def _says(runs: tuple[Run, ...]) -> str:
    said = {True: ", identical", False: ", they differ", None: ""}[alike(runs)]
    return f"{count(len(runs))}{said}"


def _overlay(axes: Any, bands: dict[str, Band], places: dict[str, int]) -> None:
    """Mean and one, two and three standard deviations, with the seed and without."""
    _frame(axes, "mean, and 1, 2 and 3 standard deviations")
    for name, label, style in (("unseeded", "without a seed", "--"), ("whole", "same seed", "-")):
        band = bands.get(name)
        if band is None or not len(band.steps):
            continue
        line, mean, std = _Line(axes, places, band.steps), band.mean, _drawable(band.std)
        for k in (3, 2, 1):
            low, high = (_drawable(mean) + sign * k * std for sign in (-1, 1))
            line.fill(low, high, color=COLOURS[name], alpha=0.14)
        spread = "" if std.any() else ", no spread"
        label = f"{label} ({count(band.runs)}{spread})"
        line.plot(mean, color=COLOURS[name], lw=1.4, ls=style, label=label)
    if axes.lines:
        _legend(axes)
    else:
        _instead(axes, "no runs")


def _paired(figure: Any, grid: Any, paired: tuple[Paired, ...], places: dict[str, int]) -> None:
    """A panel for each of at most two paired differences, each on its own scale."""
    if not paired:
        axes = figure.add_subplot(grid[3, :])
        _frame(axes, "paired difference")
        _instead(axes, "no pairs of runs")
    for i, one in enumerate(paired[:2]):
        axes = figure.add_subplot(grid[3, i] if len(paired) > 1 else grid[3, :])
        _frame(axes, f"{shown(pair(one), 44)}: {count(one.pairs, 'pair')}")
        axes.set_ylabel("difference of the loss", color=_INK)
        axes.axhline(0, color=_FAINT, linewidth=0.8)
        if not len(one.steps):
            _instead(axes, "no steps in common")
            continue
        line, colour = _Line(axes, places, one.steps), COLOURS.get(one.b, _INK)
        bounds = ((one.low99, one.high99, 0.2, "99%"), (one.low95, one.high95, 0.35, "95%"))
        for low, high, alpha, label in bounds:
            if low is not None and high is not None:
                line.fill(low, high, color=colour, alpha=alpha, label=f"{label} interval")
        line.plot(one.mean, color=colour, lw=1.1, label="mean")
        axes.set_xlim(*_margins(len(places)))
        if not one.mean.any():  # NaN counts as something
            _instead(axes, "no difference in any step", 0.62)
        _legend(axes)


# ---------------------------------------------------------------- axes


def _frame(axes: Any, title: str) -> None:
    axes.set_title(title, fontsize=12, color=_INK, loc="left")
    axes.set_xlabel("step", color=_INK, loc="left")
    axes.set_ylabel("loss", color=_INK)
    axes.set_facecolor("white")
    axes.grid(True, color=_GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(colors=_INK, labelsize=9, which="both")
    axes.spines[["top", "right"]].set_visible(False)


def _legend(axes: Any) -> None:
    """Below the panel, where it hides no curve."""
    handles, labels = axes.get_legend_handles_labels()
    once = dict(zip(labels, handles, strict=True))
    axes.legend(
        *(once.values(), once.keys()), loc="upper right", bbox_to_anchor=(1.01, -0.07),
        bbox_transform=axes.transAxes, ncols=len(once), fontsize=9.5, frameon=False,
    )  # fmt: skip


def _instead(axes: Any, text: str, height: float = 0.5) -> None:
    axes.text(
        *(0.5, height, text), transform=axes.transAxes, ha="center", va="center", fontsize=14,
        color=_FAINT,
    )  # fmt: skip


def _margins(n: int) -> tuple[float, float]:
    wide = max(0.5, 0.015 * (n - 1))
    return -wide, n - 1 + wide


def _wide(report: Report) -> bool:
    """Whether the losses span so much that only a logarithmic axis shows them all."""
    found = [run.curve.values[np.isfinite(run.curve.values)] for run in report.runs]
    found = [values for values in found if len(values)]
    if not found:
        return False
    low, high = min(float(v.min()) for v in found), max(float(v.max()) for v in found)
    return low > 0 and high / low >= _LOG


def _ticks(axes: Any, names: list[str]) -> None:
    """Name some steps below the axis."""
    from matplotlib.ticker import MaxNLocator

    if not names:
        axes.set_xticks([])
        return
    longest = max(len(names[i]) for i in {0, len(names) // 2, len(names) - 1})
    wide = axes.get_subplotspec().colspan
    few = max(2, min(8, 44 // (min(longest, 14) + 1)) * len(wide))
    found: Iterable[float] = MaxNLocator(few, integer=True).tick_values(0, max(1, len(names) - 1))
    at = [int(place) for place in found if 0 <= place < len(names) and place == int(place)]
    axes.set_xticks(at, [shown(names[i], 14) for i in at])


def _plain_text(figure: Any) -> None:
    """A step called ``$x_1$`` is shown as it is, whatever the user's matplotlibrc says."""
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        text.set_parse_math(False)
        text.set_usetex(False)
