"""``python -m benchmarks.gpu.table rows.jsonl``: what a run found, on one screen."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .stages import Ended

EQUAL = ("equal", "")


def read(rows: Path) -> list[dict[str, Any]]:
    """Return the lines; a last one that a killed process left half written is passed over."""
    found = []
    for line in rows.read_text("utf-8").splitlines():
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return [line for line in found if line["case"] != "machine"]


def missing_other(line: dict[str, Any]) -> bool:
    """Return whether a line says that another library is not there."""
    return str(line.get("error", "")).startswith("Unavailable")


def wrong(lines: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the lines of cases that failed or have other bits."""
    return [x for x in lines if x.get("bits", "") not in EQUAL and not missing_other(x)]


def failed(ended: Sequence[Ended], rows: Path) -> bool:
    """Return whether a stage did not pass, or a kernel has other bits."""
    lines = read(rows)
    compared = [line for line in lines if line.get("bits") == "equal"]
    return not compared or bool(wrong(lines)) or any(e.status != "ok" for e in ended)


def figure(value: float | None, digits: int = 2) -> str:
    """Return a number for the table."""
    return "" if value is None else f"{value:.{digits}f}"


def row(line: dict[str, Any]) -> str:
    """Return the row of a case."""
    if "us" not in line:
        return f"{line['case']:<36}{line.get('bits', '')}: {line.get('error', '')[:60]}"
    share, ratio = figure(line.get("share")), figure(line.get("ratio"))
    met = [
        "met" if line[name] >= line[f"{name}_target"] else f"missed ({line[f'{name}_target']:g})"
        for name in ("share", "ratio")
        if f"{name}_target" in line
    ]
    beside = f"{ratio}x {line['against']}" if ratio else ""
    return (
        f"{line['case']:<36}{line['us']:>10.1f} us {figure(line.get('tbs')):>6} {share:>6}  "
        f"{beside:<31} {', '.join(met)}"
    ).rstrip()


def text(ended: Sequence[Ended], rows: Path, rehearsal: bool = False) -> str:
    """Return the stages that did not pass, the headline cases, and how many bits are equal."""
    lines = read(rows)
    compared = [line for line in lines if line.get("bits") == "equal"]
    bad = wrong(lines)
    timed = [line for line in lines if line.get("headline") and "us" in line]
    not_ok = [e for e in ended if e.status != "ok"]
    found = [
        "",
        f"stages: {len(ended) - len(not_ok)} ok, {len(not_ok)} not",
        *(f"  {e.name}: {e.status}: {e.last_line[:70]}" for e in not_ok[:12]),
        f"{'case':<36}{'time':>13} {'TB/s':>6} {'share':>6}  beside",
        *(row(line) for line in timed),
        *(row(line) for line in bad[:8]),
        f"bits: {len(compared)} of {len(compared) + len(bad)} comparisons equal"
        + ("; a rehearsal on the CPU: no figure means anything" if rehearsal else ""),
    ]
    return "\n".join(found)


if __name__ == "__main__":
    print(text([], Path(sys.argv[1])))
