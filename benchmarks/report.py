"""``python -m benchmarks.report FILE.json``: a result as the README's table and as a chart.

In the README only what stands between the two marker lines is replaced.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from .table import at_least, duration, times

BEGIN, END = "<!-- benchmarks:begin -->", "<!-- benchmarks:end -->"

HELD, MISSED, OPEN = "#2c7fb8", "#d95f0e", "#a6a6a6"  # told apart also without red and green


# ---------------------------------------------------------------------------- the table


def stood_on(machine: dict[str, Any]) -> str:
    """One sentence: on what, with what."""
    versions = machine["versions"]
    parts = [
        f"{machine['cpu']}, {machine['cores']} cores ({machine['simd'] or 'no native code'})",
        f"Python {versions['python']}",
        f"torch {versions['torch']}",
        f"NumPy {versions['numpy']}",
        machine["compiler"],
    ]
    return f"{', '.join(parts)}; {machine['date']}."


def row_cells(row: dict[str, Any]) -> tuple[str, ...]:
    """A row of the markdown table."""
    case, bar = f"`{row['name']}`", at_least(row["bar"])
    if row["status"] != "ok":
        return case, "", row["against"], f"{row['status']}: {row['reason']}", "", bar, ""
    ratio = times(row["ratio"])
    return (
        case,
        duration(row["ours"]["median_s"]),
        row["against"],
        duration(row["peer"]["median_s"]),
        f"**{ratio}**" if row["ratio"] >= 1 else ratio,
        bar,
        {True: "yes", False: "**no**", None: ""}[row["held"]],
    )


def markdown(result: dict[str, Any], chart: str | None = None) -> str:
    """The table, what it stood on, and the chart."""
    head = ("case", "ours", "against", "its time", "ratio", "bar", "held")
    align = (":--", "--:", ":--", "--:", "--:", "--:", ":--")
    rows = [head, align, *map(row_cells, result["cases"])]
    lines = [stood_on(result["machine"]), ""]
    lines += [f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in rows]
    if chart is not None:
        lines += ["", f"![How many times faster, case by case]({chart})"]
    return "\n".join(lines)


def replace_between_markers(text: str, inner: str) -> str:
    """``text`` with ``inner`` between its two marker lines; ValueError unless there is one pair."""
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise ValueError(f"the README must have one {BEGIN} and after it one {END}")
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{inner}\n{END}{after}"


# ---------------------------------------------------------------------------- the chart


def _colour(row: dict[str, Any]) -> str:
    return {True: HELD, False: MISSED, None: OPEN}[row["held"]]


def draw_bars(axes: Any, rows: list[dict[str, Any]]) -> None:
    """Horizontal bars from 1 to the ratio, with a tick at each row's bar."""
    for y, row in enumerate(rows):
        ratio = row["ratio"]
        axes.barh(y, ratio - 1, left=1, height=0.66, color=_colour(row), zorder=2)
        column = axes.get_yaxis_transform()  # the figures stand in one column, at the right edge
        axes.text(1, y, times(ratio), transform=column, va="center", ha="right", fontsize=8)
        if row["bar"] is not None:
            axes.plot([row["bar"]] * 2, [y - 0.42, y + 0.42], color="black", lw=2, zorder=3)
    axes.set_yticks(range(len(rows)), [f"{row['name']}  vs  {row['against']}" for row in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)


def draw_chart(result: dict[str, Any], file: Path) -> None:
    """A PNG of all ratios on a logarithmic axis."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    rows = [row for row in result["cases"] if row["status"] == "ok"]
    if not rows:
        raise ValueError("no case of this result was timed")
    figure, axes = plt.subplots(figsize=(10, 1.3 + 0.29 * len(rows)), layout="constrained")
    axes.set_xscale("log")
    draw_bars(axes, rows)
    ratios = [row["ratio"] for row in rows] + [row["bar"] or 1 for row in rows]
    axes.set_xlim(min(0.5, *ratios) / 1.5, max(2, *ratios) * 3)
    axes.axvline(1, color="black", lw=0.8, zorder=4)
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:g}x")
    axes.grid(axis="x", color="#e0e0e0", zorder=0)
    axes.tick_params(axis="y", labelsize=8, length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.set_xlabel("times faster than the peer (left of 1x: slower)")
    axes.set_title(f"fastseed on {result['machine']['cpu']}", loc="left", fontsize=11)
    shown = [Patch(color=HELD, label="bar held"), Patch(color=MISSED, label="bar missed")]
    shown += [Patch(color=OPEN, label="no bar"), Line2D([], [], color="black", lw=2, label="bar")]
    axes.legend(handles=shown, fontsize=8, frameon=False, ncols=4, loc="lower right",
                bbox_to_anchor=(1, 1))  # fmt: skip
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=130, metadata={"Software": None})
    plt.close(figure)


def main(arguments: list[str] | None = None) -> int:
    """0, or 1 when the README has no markers or nothing was timed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report", description=__doc__)
    parser.add_argument("file", type=Path, metavar="FILE.json")
    parser.add_argument("--readme", type=Path, help="write the table between its markers")
    parser.add_argument("--chart", type=Path, metavar="FILE.png", help="draw the ratios")
    options = parser.parse_args(arguments)
    result = json.loads(options.file.read_text())
    link = None
    try:
        if options.chart is not None:
            draw_chart(result, options.chart)
            link = Path(
                os.path.relpath(options.chart, (options.readme or Path()).parent)
            ).as_posix()
        if options.readme is None:
            print(markdown(result, link))
        else:
            text = options.readme.read_text(encoding="utf-8")
            changed = replace_between_markers(text, markdown(result, link))
            options.readme.write_text(changed, encoding="utf-8")
    except ValueError as error:
        print(f"benchmarks.report: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
