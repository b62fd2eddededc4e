"""``python -m benchmarks.gpu.run_contender NAME --out FILE``: one contender, in this process.

Writes a line for each entry as soon as its case is timed. Exit status 1 when an answer was wrong or
a case raised what it should not.
"""

from __future__ import annotations

import argparse
import json
import sys
import traceback
from pathlib import Path
from typing import Any

from ..case import Unavailable, WrongAnswer
from . import bench_device, card, contenders
from .timing import Effort, Entry, measure, summary

QUICK = Effort(rounds=2, sample=1e-4, group=0.0, least=2)


def append(file: Path, record: dict[str, Any]) -> None:
    """One line more; on the disk when this returns, so that a killed run loses nothing."""
    with file.open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(record) + "\n")
        lines.flush()


def record(entry: Entry, clocks: dict[str, Any]) -> dict[str, Any]:
    """Return the record of an entry that was timed."""
    return {
        "kind": "entry", "status": "ok", "case": entry.case, "contender": entry.contender,
        "form": entry.form, "method": entry.clock.method, "bytes": entry.size,
        "buffers": len(entry.calls) * entry.unit, "scale": entry.scale, "note": entry.note,
        **summary(entry.samples), "clocks": clocks,
    }  # fmt: skip


def run_group(group: contenders.Group, effort: Effort) -> list[dict[str, Any]]:
    """The records of one case: every answer is checked before anything is timed."""
    entries: list[Entry] = []
    try:
        entries = group()
        for entry in entries:
            entry.check()
    except Unavailable as reason:
        return [{"kind": "entry", "status": "unavailable", "reason": str(reason)}]
    except WrongAnswer as what:
        case = entries[0].case if entries else None
        return [{"kind": "entry", "status": "wrong", "case": case, "reason": str(what)}]
    measure(entries, effort)
    clocks = card.clocks()
    return [record(entry, clocks) for entry in entries]


def run(name: str, bench: bench_device.BenchDevice, out: Path, effort: Effort) -> int:
    """All cases of a contender: one that fails keeps no other from running."""
    code = 0
    for group in contenders.groups_of(name)(bench):
        try:
            records = run_group(group, effort)
        except Exception as error:
            traceback.print_exc()
            first = str(error).splitlines()[:1]
            reason = " ".join([type(error).__name__, *first])
            records = [{"kind": "entry", "status": "failed", "reason": reason}]
        for made in records:
            append(out, made | {"process": name, "rehearsal": bench.rehearsal})
            code |= made["status"] in ("wrong", "failed")
    return int(code)


def main(arguments: list[str] | None = None) -> int:
    """0, or 1 when an answer was wrong or a case failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=contenders.NAMES)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.jsonl")
    parser.add_argument("--rehearse", action="store_true", help="small, on the CPU")
    options = parser.parse_args(arguments)
    try:
        bench = bench_device.rehearsal() if options.rehearse else bench_device.on_gpu()
    except Unavailable as reason:
        append(options.out, {"kind": "entry", "status": "unavailable", "reason": str(reason),
                             "process": options.name})  # fmt: skip
        return 0
    return run(options.name, bench, options.out, QUICK if options.rehearse else Effort())


if __name__ == "__main__":
    sys.exit(main())
