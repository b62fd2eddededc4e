"""``python -m benchmarks.gpu.report FILE.jsonl [--markdown]``: targets and results."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..table import duration, times
from .targets import FASTSEED, TARGETS, Target

HEAD = ("case", "fastseed", "GB/s", "against", "its time", "ratio", "target", "met")


@dataclass
class Result:
    """The lines of a run, by what they are."""

    machine: dict[str, Any] = field(default_factory=dict)
    entries: list[dict[str, Any]] = field(default_factory=list)
    processes: list[dict[str, Any]] = field(default_factory=list)

    def best(self, case: str, contender: str) -> dict[str, Any] | None:
        """The fastest of a contender's forms."""
        found = [
            entry for entry in self.entries
            if entry["status"] == "ok" and (entry["case"], entry["contender"]) == (case, contender)
        ]  # fmt: skip
        return min(found, key=lambda entry: float(entry["median_s"]), default=None)


def read(file: Path) -> Result:
    """A result; a last line that a killed process left half written is passed over."""
    result = Result()
    lists = {"entry": result.entries, "process": result.processes}
    for line in file.read_text(encoding="utf-8").splitlines():
        try:
            made = json.loads(line)
        except json.JSONDecodeError:
            continue
        if made["kind"] == "machine":
            result.machine = made
        else:
            lists[made["kind"]].append(made)
    return result


def judge(result: Result, target: Target) -> dict[str, Any]:
    """Judge a target: ``met`` is None without a target, a side, or a card."""
    fastseed, baseline = (result.best(target.case, who) for who in (FASTSEED, target.against))
    row: dict[str, Any] = {
        "target": target,
        "fastseed": fastseed,
        "baseline": baseline,
        "ratio": None,
        "met": None,
    }
    if fastseed is None or baseline is None:
        return row
    row["ratio"] = baseline["median_s"] / fastseed["median_s"]
    if target.at_least is not None and not result.machine.get("rehearsal"):
        row["met"] = row["ratio"] >= target.at_least
    return row


def failed(result: Result) -> bool:
    """Return whether an answer was wrong, or fastseed failed.

    A baseline that is missing or fails is reported, and so is a process that ran out of time; it is
    a failure only when there is no row of fastseed at all.
    """
    for entry in result.entries:
        broken = entry["status"] == "failed" and entry["process"].startswith("fastseed")
        if broken or entry["status"] == "wrong":
            return True
    processes = [p for p in result.processes if p["process"].startswith("fastseed")]
    if any(p["status"] == "failed" or "signal" in p["status"] for p in processes):
        return True
    return not any(e["status"] == "ok" and e["contender"] == FASTSEED for e in result.entries)


def cells(row: dict[str, Any]) -> tuple[str, ...]:
    """A row of the table."""
    target, fastseed, baseline = row["target"], row["fastseed"], row["baseline"]
    rate = (
        ""
        if fastseed is None or not fastseed["bytes"]
        else f"{fastseed['bytes'] / fastseed['median_s'] / 1e9:.0f}"
    )
    return (
        target.case,
        "not run" if fastseed is None else duration(fastseed["median_s"]),
        rate,
        target.against if baseline is None else f"{target.against} ({baseline['form']})",
        "not run" if baseline is None else duration(baseline["median_s"]),
        "" if row["ratio"] is None else times(row["ratio"]),
        target.text,
        {True: "yes", False: "no", None: ""}[row["met"]],
    )


def stood_on(machine: dict[str, Any]) -> str:
    """One line: on what, with what."""
    if machine.get("rehearsal"):
        return "A rehearsal on the CPU with small sizes: no figure below means anything."
    card, versions = machine.get("card", {}), machine.get("versions", {})
    libraries = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    name = card.get("name", "an unknown card")
    clocks = ", ".join(f"{k} {v}" for k, v in machine.get("clocks", {}).items())
    return (
        f"{name}, driver {card.get('driver', '?')} ({clocks} before the run); "
        f"{libraries}; commit {machine.get('commit')}; {machine.get('date')}."
    )


def remarks(result: Result) -> list[str]:
    """Return remarks: what was not timed, what was scaled, how the processes ended."""
    said = []
    for entry in result.entries:
        what = f"{entry['process']}: {entry.get('case') or 'a case'}"
        if entry["status"] != "ok":
            said.append(f"{what}: {entry['status']}: {entry['reason']}")
        elif entry["note"]:
            said.append(f"{what}: {entry['note']}")
    for process in result.processes:
        if process["status"] != "ok":
            said.append(f"{process['process']}: {process['status']} ({process['seconds']} s)")
    return said


def text(result: Result) -> str:
    """The table in plain columns."""
    rows = [HEAD, *(cells(judge(result, target)) for target in TARGETS)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in rows]
    judged = [judge(result, target)["met"] for target in TARGETS if target.at_least is not None]
    count = f"{judged.count(True)} targets met, {judged.count(False)} missed, " \
            f"{judged.count(None)} not judged"  # fmt: skip
    return "\n".join([stood_on(result.machine), *map(str.rstrip, lines), *remarks(result), count])


def markdown(result: Result) -> str:
    """The table for a README."""
    align = (":--", "--:", "--:", ":--", "--:", "--:", "--:", ":--")
    rows = [HEAD, align, *(cells(judge(result, target)) for target in TARGETS)]
    table = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(
        [stood_on(result.machine), "", *table, "", *map("- {}".format, remarks(result))]
    )


def main(arguments: list[str] | None = None) -> int:
    """Print a result's table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.report", description=__doc__)
    parser.add_argument("file", type=Path, metavar="FILE.jsonl")
    parser.add_argument("--markdown", action="store_true", help="as a README shows it")
    options = parser.parse_args(arguments)
    result = read(options.file)
    print(markdown(result) if options.markdown else text(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
