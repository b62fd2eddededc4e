"""``python -m benchmarks.report FILE.json``: a result as tables of Markdown and as a chart.

In a file only the text between the two marker lines is replaced.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .table import duration, times

BEGIN, END = "<!-- benchmarks:begin -->", "<!-- benchmarks:end -->"

FASTER, SLOWER = "#2c7fb8", "#d95f0e"  # distinct without red and green

# (case, baseline) of the rows that the README shows: gains and losses.
SUMMARY = (
    ("reseed/cpu/3-generators", "three seed calls by hand"),
    ("uniform/cpu/4096x1024", "loop of torch's, generator=g"),
    ("sample/cpu/64x151936", "a generator for each row"),
    ("loader.pass/cpu/20000", "DataLoader"),
    ("sampler.order/cpu/1e6", "torch.randperm"),
)


# ---------------------------------------------------------------------------- the table


def machine_line(machine: dict[str, Any]) -> str:
    """Return one sentence with the hardware and the versions."""
    versions = machine["versions"]
    parts = [
        f"{machine['cpu']}, {machine['cores']} cores ({machine['simd'] or 'no native code'})",
        f"Python {versions['python']}",
        f"torch {versions['torch']}",
        f"NumPy {versions['numpy']}",
        machine["compiler"],
    ]
    return f"{', '.join(parts)}; {machine['date']}."


def key(row: dict[str, Any]) -> tuple[str, str]:
    """Case and baseline, which name a row."""
    return row["name"], row["against"]


def row_cells(row: dict[str, Any]) -> tuple[str, ...]:
    """A row of the markdown table."""
    case = f"`{row['name']}`"
    if row["status"] != "ok":
        return case, "", row["against"], f"{row['status']}: {row['reason']}", ""
    ratio = times(row["ratio"])
    return (
        case,
        duration(row["fastseed"]["median_s"]),
        row["against"],
        duration(row["baseline"]["median_s"]),
        f"**{ratio}**" if row["ratio"] >= 1 else ratio,
    )


def summary(result: dict[str, Any]) -> dict[str, Any]:
    """Return a result with the rows of :data:`SUMMARY` only."""
    rows = [row for row in result["cases"] if key(row) in SUMMARY]
    return {**result, "cases": rows}


def ratio_there(row: dict[str, Any], other: dict[str, Any]) -> str:
    """The ratio of the same case in the result of another machine."""
    same = (one for one in other["cases"] if (one["name"], one["against"]) == key(row))
    found = next((one for one in same if one["status"] == "ok"), None)
    return times(found["ratio"]) if found else ""


def markdown(
    result: dict[str, Any],
    chart: str | None = None,
    others: Sequence[dict[str, Any]] = (),
) -> str:
    """Return the machine, the table with a column of ratios for each other one, and the chart."""
    machines = [one["machine"] for one in others]
    there = [f"{machine['cpu']} ({machine['simd']})" for machine in machines]
    head = ("case", "fastseed", "against", "its time", "ratio", *there)
    align = (":--", "--:", ":--", "--:", "--:", *("--:" for _ in others))
    rows = [head, align]
    for row in result["cases"]:
        rows.append((*row_cells(row), *(ratio_there(row, other) for other in others)))
    lines = ["  \n".join(map(machine_line, (result["machine"], *machines))), ""]
    lines += [f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in rows]
    if chart is not None:
        lines += ["", f"![How many times faster, case by case]({chart})"]
    return "\n".join(lines)


def replace_between_markers(text: str, inner: str) -> str:
    """``text`` with ``inner`` between its two marker lines; ValueError unless there is one pair."""
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise ValueError(f"the file must have one {BEGIN} and after it one {END}")
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{inner}\n{END}{after}"


# ---------------------------------------------------------------------------- the chart


def draw_bars(axes: Any, rows: list[dict[str, Any]]) -> None:
    """Draw a bar from 1 to the ratio of each row."""
    for y, row in enumerate(rows):
        ratio = row["ratio"]
        colour = FASTER if ratio >= 1 else SLOWER
        axes.barh(y, ratio - 1, left=1, height=0.66, color=colour, zorder=2)
        column = axes.get_yaxis_transform()  # the figures stand in one column, at the right edge
        axes.text(1, y, times(ratio), transform=column, va="center", ha="right", fontsize=8)
    axes.set_yticks(range(len(rows)), [f"{row['name']}  vs  {row['against']}" for row in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)


def draw_chart(result: dict[str, Any], file: Path) -> None:
    """A PNG of all ratios on a logarithmic axis."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows = [row for row in result["cases"] if row["status"] == "ok"]
    if not rows:
        raise ValueError("no case of this result was timed")
    figure, axes = plt.subplots(figsize=(10, 1.3 + 0.29 * len(rows)), layout="constrained")
    axes.set_xscale("log")
    draw_bars(axes, rows)
    ratios = [row["ratio"] for row in rows]
    axes.set_xlim(min(0.5, *ratios) / 1.5, max(2, *ratios) * 3)
    axes.axvline(1, color="black", lw=0.8, zorder=4)
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:g}x")
    axes.grid(axis="x", color="#e0e0e0", zorder=0)
    axes.tick_params(axis="y", labelsize=8, length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.set_xlabel("times faster than the baseline (left of 1x: slower)")
    axes.set_title(f"fastseed on {result['machine']['cpu']}", loc="left", fontsize=11)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=130, metadata={"Software": None})
    plt.close(figure)


def rewrite(file: Path, inner: str) -> None:
    """Replace the text between the markers of a file."""
    text = file.read_text(encoding="utf-8")
    file.write_text(replace_between_markers(text, inner), encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    """Return 0, or 1 if a file has no markers or nothing was timed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report", description=__doc__)
    parser.add_argument("file", type=Path, metavar="FILE.json")
    parser.add_argument(
        "others", type=Path, nargs="*", metavar="OTHER.json",
        help="results of other CPUs: a column of ratios each",
    )  # fmt: skip
    parser.add_argument("--readme", type=Path, help="write the summary between its markers")
    parser.add_argument("--page", type=Path, help="write all rows between its markers")
    parser.add_argument("--chart", type=Path, metavar="FILE.png", help="draw the ratios")
    options = parser.parse_args(arguments)
    result, *others = (json.loads(path.read_text()) for path in (options.file, *options.others))
    link = None
    try:
        if options.chart is not None:
            draw_chart(result, options.chart)
            folder = (options.page or Path("page.md")).parent
            link = Path(os.path.relpath(options.chart, folder)).as_posix()
        if options.readme is not None:
            rewrite(options.readme, markdown(summary(result)))
        if options.page is not None:
            rewrite(options.page, markdown(result, link, others))
        if options.readme is None and options.page is None:
            print(markdown(result, link, others))
    except ValueError as error:
        print(f"benchmarks.report: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
