"""``python -m benchmarks``: run the cases, print the table, write the result."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from . import machine, runner, table
from .case import Case
from .cases import all_cases


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", default="", metavar="SUBSTRING", help="of 'case vs baseline'")
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="write the result here")
    parser.add_argument("--list", action="store_true", help="name the cases and stop")
    parser.add_argument("--quick", action="store_true", help="a rough look, in seconds")
    return parser.parse_args(arguments)


def run(cases: list[Case], effort: runner.Effort) -> dict[str, Any]:
    """All rows, and what they stood on."""
    described, others = machine.describe(), machine.OtherLoad()
    rows = []
    for case in cases:
        meanwhile = machine.OtherLoad()
        row = runner.run_case(case, effort)
        rows.append(row | {"other_load": meanwhile.fraction()})
        print(f"{len(rows)}/{len(cases)} {case.id}", file=sys.stderr)
    return {"schema": 1, "machine": described | {"other_load": others.fraction()}, "cases": rows}


def main(arguments: list[str] | None = None) -> int:
    """0, or 1 when an answer was wrong, or 2 when no case is called like that."""
    options = parse(arguments)
    cases = [case for case in all_cases() if options.only in case.id]
    if not cases:
        print(f"no case has {options.only!r} in its name", file=sys.stderr)
        return 2
    if options.list:
        print(*(case.id for case in cases), sep="\n")
        return 0
    effort = runner.QUICK if options.quick else runner.FULL
    result = run(cases, effort) | {"quick": options.quick}
    table.show(result)
    if options.out is not None:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(result, indent=1) + "\n")
    return int(any(row["status"] == "wrong" for row in result["cases"]))


if __name__ == "__main__":
    sys.exit(main())
