"""The runs as a table, as a chart, and as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator
from rich import box
from rich.table import Table
from rich.text import Text

from .results import Check, Run

REPEATABLE = "One seed, however it is run: the same bits. No seed: a new run each time."
COLOURS = ("cyan", "magenta", "yellow", "green", "blue", "red")  # one for every distinct digest

# Runs that coincide must all stay visible: from wide and pale to narrow and dark.
LINES = {
    "a": {"color": "#9ecae1", "linewidth": 9, "solid_capstyle": "round"},
    "b": {"color": "#2171b5", "linewidth": 4},
    "c": {"color": "#ffffff", "linewidth": 1.6, "linestyle": (0, (2, 2))},
    "d1": {"color": "#d94801", "linewidth": 1.6},
    "d2": {"color": "#238b45", "linewidth": 1.6},
    "e": {"color": "#6a51a3", "linewidth": 1.6, "linestyle": (0, (5, 2))},
}


def table(runs: list[Run]) -> Table:
    """One line per rank; equal SHA-256 digests have equal colours."""
    result = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    result.add_column("run", no_wrap=True)
    for heading in ("master seed", "loss", "held out", "s", "rank"):
        result.add_column(heading, justify="right", no_wrap=True)
    result.add_column("parameters", no_wrap=True)
    result.add_column("samples", no_wrap=True)

    distinct = list(dict.fromkeys(digest for run in runs for digest in run.digests))
    logs = list(dict.fromkeys(run.samples for run in runs))
    for run in runs:
        facts = [
            f"({run.name}) {run.how}",
            shortened(run.master_seeds[0]),
            f"{run.losses[max(run.losses)]:.4f}",
            f"{run.accuracy:.1%}",
            f"{run.seconds:.0f}",
        ]
        log = coloured(run.samples, logs)
        for rank, digest in enumerate(run.digests):
            result.add_row(*facts, str(rank), coloured(digest, distinct), log)
            facts, log = [""] * len(facts), Text()
    return result


def shortened(seed: int) -> str:
    digits = str(seed)
    return digits if len(digits) <= 9 else digits[:8] + "…"


def coloured(digest: str, distinct: list[str]) -> Text:
    return Text(digest[:8], style=COLOURS[distinct.index(digest) % len(COLOURS)])


def draw(runs: list[Run], repeatable: bool, path: Path) -> None:
    """The loss of every run, epoch by epoch."""
    figure = Figure(figsize=(9, 5.5), dpi=150, layout="constrained")  # no pyplot: needs no display
    axes = figure.add_subplot()
    for run in runs:
        epochs = [epoch + 1 for epoch in sorted(run.losses)]
        losses = [run.losses[epoch - 1] for epoch in epochs]
        label = f"({run.name}) {run.how}, {run.digests[0][:8]}"
        axes.plot(epochs, losses, label=label, **LINES.get(run.name, {}))
        if run.name == "b":
            mark_resumption(axes, run.resumed_at)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 5)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_xlabel("epoch")
    axes.set_ylabel("held-out loss (log scale)")
    axes.set_title(REPEATABLE if repeatable else "Not repeatable: see results.json")
    axes.grid(which="both", color="#e8e8e8", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(title="run, how it was started, SHA-256", facecolor="#d8d8d8", framealpha=1)
    figure.savefig(path)


def mark_resumption(axes: Axes, at: tuple[int, int]) -> None:
    epoch, step = at
    axes.axvline(epoch + 0.5, color="#2171b5", linewidth=1, linestyle=(0, (4, 3)))
    axes.annotate(
        f"stopped at step {step} of epoch {epoch + 1};\n(b) and (e) go on, (e) on one rank",
        xy=(epoch + 0.5, 0.97),
        xycoords=("data", "axes fraction"),
        xytext=(6, 0),
        textcoords="offset points",
        verticalalignment="top",
        color="#2171b5",
        fontsize=9,
    )


def write_json(runs: list[Run], checks: list[Check], path: Path) -> None:
    result = {
        "repeatable": all(check.holds for check in checks),
        "checks": [asdict(check) for check in checks],
        "runs": [asdict(run) for run in runs],
    }
    path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
