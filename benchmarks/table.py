"""The table of a run, and whether its rows are as they should be."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

Row = dict[str, Any]
BUSY = 0.1  # of another process on the cores of a run: a row with more of it says so


def duration(seconds: float) -> str:
    """Three digits and a unit."""
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def times(ratio: float) -> str:
    """A ratio: two digits and more where it is small."""
    return f"{ratio:.0f}x" if ratio >= 100 else f"{ratio:.1f}x" if ratio >= 10 else f"{ratio:.2f}x"


def busy(row: Row) -> str:
    """Return how much of other processes a row had on its cores, where it was too much."""
    load = 0.0 if "tbs" in row else row.get("load", 0.0)  # a kernel has the device
    return f"{load:.2f} of another process" if load > BUSY else ""


def is_bad(row: Row) -> bool:
    """Return whether a row fails its run: a wrong answer, an error, or no time for it."""
    return row["status"] not in ("ok", "unavailable")


def verdicts(row: Row) -> list[str]:
    """Return whether each target of a row is met."""
    pairs = [(row.get("ratio"), row.get("target")), (row.get("share"), row.get("share_target"))]
    return [
        "met" if found >= target else f"missed ({target:.3g})"
        for found, target in pairs
        if found is not None and target is not None
    ]


def line(row: Row) -> str:
    """Return the line of a row."""
    name = f"{row['case']:<45}"
    us = duration(row["us"] * 1e-6) if "us" in row else ""
    if row["status"] != "ok" or not us:
        beside = f"{row['beside']}: " if row["beside"] else ""
        return f"{name}{us:>9} {beside}{row['status']}: {row.get('reason', '')}"[:110]
    speed = f"{row['tbs']:.2f} TB/s" if "tbs" in row else ""
    share = f" {row['share']:.2f}" if "share" in row else ""
    beside = f"{times(row['ratio']):>6} {row['beside']}" if "ratio" in row else ""
    notes = ", ".join(filter(None, (*verdicts(row), busy(row))))
    return f"{name}{us:>9} {speed}{share} {beside}  {notes}".rstrip()


def count(rows: Iterable[Row]) -> str:
    """Return how many of the cases that ran gave right answers."""
    right: dict[str, bool] = {}
    for row in rows:
        if row["status"] != "unavailable" or "us" in row:
            right[row["case"]] = right.get(row["case"], True) and not is_bad(row)
    return f"answers: {sum(right.values())} of {len(right)} right"


def text(rows: Sequence[Row], headline_only: bool = False, bad: int = 8) -> str:
    """Return the lines of a run, then of rows that are bad, then how many answers are right."""
    shown = [row for row in rows if not is_bad(row)]
    if headline_only:
        shown = [row for row in shown if row.get("headline") and row["status"] == "ok"]
    return "\n".join([*map(line, shown), *map(line, list(filter(is_bad, rows))[:bad]), count(rows)])
