"""``python -m benchmarks``: run cases, print the table, write a line of JSON for each row.

Without ``--all`` or ``--only`` the headline cases run, in about a minute.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import torch

from . import machine, runner, table
from .case import Case
from .cases import all_cases

RESERVE = 15.0  # seconds before the end in which no case begins


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--all", action="store_true", help="every case")
    parser.add_argument("--only", default="", metavar="SUBSTRING", help="of the name of any case")
    parser.add_argument("--out", type=Path, metavar="FILE.jsonl", help="append the rows here")
    parser.add_argument("--list", action="store_true", help="name the cases and stop")
    parser.add_argument("--quick", action="store_true", help="a rough look, in seconds")
    parser.add_argument("--seconds", type=float, help="no case begins in the last 15")
    parser.add_argument(
        "--rehearse", action="store_true", help="what only cuda has, on the CPU, small"
    )
    return parser.parse_args(arguments)


def chosen(options: argparse.Namespace) -> list[Case]:
    """Return the cases that the options name."""
    every = [case for case in all_cases() if options.device in case.devices]
    if options.rehearse:
        every = [case for case in all_cases() if "cpu" not in case.devices]
    if options.only:
        return [case for case in every if options.only in case.name(options.device)]
    return [case for case in every if case.headline or options.all]


def run(cases: list[Case], options: argparse.Namespace) -> list[dict[str, Any]]:
    """Run cases, and return and write their rows as they come."""
    begun, rough = time.monotonic(), options.quick or options.rehearse
    effort = runner.QUICK if rough else runner.FULL[options.device]
    limits = None
    described = machine.describe("cpu" if options.rehearse else options.device)
    machine.append_lines(options.out, {"machine": described | {"rough": rough}})
    if options.device == "cuda" or options.rehearse:
        size = 1 << 20 if rough else 1 << 29
        limits = runner.ceilings(runner.Clock(options.device), options.device, effort, size)
        machine.append_lines(options.out, {"memset": limits[False], "copy": limits[True]})
    rows = []
    for number, case in enumerate(cases, 1):
        seconds = time.monotonic() - begun
        if options.seconds is not None and seconds > options.seconds - RESERVE:
            late = {"status": "late", "reason": "no time left"}
            found = [{"case": case.name(options.device), "beside": "", **late}]
        else:
            found = runner.run_case(case, options.device, effort, limits)
        if rough:
            found = [{k: v for k, v in row.items() if "target" not in k} for row in found]
        machine.append_lines(options.out, *found)
        rows += found
        print(f"{seconds:6.1f} s  {number}/{len(cases)} {found[0]['case']}", file=sys.stderr)
    return rows


def main(arguments: list[str] | None = None) -> int:
    """0, or 1 when an answer was wrong, or 2 when no case is called like that."""
    options = parse(arguments)
    cases = chosen(options)
    if not cases:
        print(f"no case has {options.only!r} in its name", file=sys.stderr)
        return 2
    if options.list:
        print(*(case.name(options.device) for case in cases), sep="\n")
        return 0
    if options.device == "cuda" and not torch.cuda.is_available():
        print("there is no CUDA device", file=sys.stderr)
        return 2
    if options.out is not None:
        options.out.parent.mkdir(parents=True, exist_ok=True)
    rows = run(cases, options)
    print(table.text(rows))
    return int(any(map(table.is_bad, rows)))


if __name__ == "__main__":
    sys.exit(main())
