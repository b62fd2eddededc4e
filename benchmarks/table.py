"""The table that a run prints."""

from __future__ import annotations

from typing import Any

BUSY = 0.03  # share of the machine that others may use in a quiet run


def duration(seconds: float) -> str:
    """Three digits and a unit."""
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def times(ratio: float) -> str:
    """A ratio: two digits and more where it is small."""
    return f"{ratio:.0f}x" if ratio >= 100 else f"{ratio:.1f}x" if ratio >= 10 else f"{ratio:.2f}x"


def at_least(target: float | None) -> str:
    """A target, or that there is none."""
    return "-" if target is None else f"{target:g}x"


def verdict(row: dict[str, Any]) -> str:
    """Whether the target is met; blank where there is none."""
    return {True: "yes", False: "no", None: ""}[row.get("met")]


def cells(row: dict[str, Any]) -> tuple[str, ...]:
    """Case, fastseed, against, baseline, ratio, range over the rounds, target, met."""
    head = (row["name"],)
    if row["status"] != "ok":
        state = row["status"].upper() if row["status"] == "wrong" else "not run"
        return (*head, "", row["against"], f"{state}: {row['reason']}", "", "", "", "")
    low, high = row["ratio_range"]
    return (
        *head,
        duration(row["fastseed"]["median_s"]),
        row["against"],
        duration(row["baseline"]["median_s"]),
        times(row["ratio"]),
        f"{times(low)} to {times(high)}",
        at_least(row["target"]),
        verdict(row),
    )


def show(result: dict[str, Any]) -> None:
    """Print all rows of a result."""
    from rich.console import Console
    from rich.table import Table

    console = Console()
    if not console.is_terminal:
        console = Console(width=150)
    machine = result["machine"]
    table = Table(
        title=f"{machine['cpu']}, {machine['cores']} cores, {machine['simd'] or 'no native code'}"
    )
    for heading, justify in (
        ("case", "left"), ("fastseed", "right"), ("against", "left"), ("baseline", "right"),
        ("ratio", "right"), ("range", "right"), ("target", "right"), ("met", "left"),
    ):  # fmt: skip
        table.add_column(heading, justify=justify)  # type: ignore[arg-type]
    for row in result["cases"]:
        style = "red" if row["status"] == "wrong" or row.get("met") is False else ""
        table.add_row(*cells(row), style=style)
    console.print(table)
    if (machine["other_load"] or 0) > BUSY:
        console.print(
            f"other processes used {machine['other_load']:.0%} of the machine meanwhile: "
            "rows with two threads mean little"
        )
