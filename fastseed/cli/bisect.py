"""`fastseed bisect A B`: where two recorded runs part."""

from __future__ import annotations

import argparse
from typing import Any

from . import exit_codes, output

SHOWN = 20  # differences of the step at which runs part


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "bisect",
        help="find the first step and tensor in which two recorded runs part",
        description="Find the first step, and in it the first tensor, in which two runs that "
        "fastseed.Watch recorded differ by a bit.",
        epilog="ends with 0 if all steps that both have are equal, even if one has more",
    )
    output.add_folder(parser, "a", "the folder of a run, or one of its files")
    output.add_folder(parser, "b", "the same of the other run")
    output.add_json(parser)


def run(args: argparse.Namespace) -> int:
    from ..debug.bisection import bisect

    found = bisect(args.a, args.b)
    code = exit_codes.OK if found.equal else exit_codes.FOUND
    if args.json:
        output.emit(_document(found))
        return code
    if found.first is None:
        output.say(found)
    else:
        before = " (what was there before the first step recorded)" if found.start else ""
        output.say(
            f"the runs part at step {found.step}{before}, rank {found.rank}: "
            f"{found.first.group} {found.first.name}"
        )
        output.say(f"{found.differing} of the {found.compared} steps that both have differ")
        rows = [
            (p.group, p.name, *("absent" if s is None else str(s) for s in (p.a, p.b)))
            for p in found.differences[:SHOWN]
        ]
        output.table(("what", "name", "a", "b"), rows, title=f"step {found.step}")
        if len(found.differences) > SHOWN:
            output.say(f"and {len(found.differences) - SHOWN} more")
    for note in found.notes:
        output.say(f"note: {note}")
    return code


def _document(found: Any) -> dict[str, Any]:
    def side(which: Any) -> dict[str, Any] | None:
        if which is None:
            return None
        return {"dtype": which.dtype, "shape": list(which.shape), "digest": f"{which.value:032x}"}

    return {
        "equal": found.equal,
        "step": found.step,
        "start": found.start,
        "rank": found.rank,
        "differences": [
            {"group": p.group, "name": p.name, "a": side(p.a), "b": side(p.b)}
            for p in found.differences
        ],
        "compared_steps": found.compared,
        "differing_steps": found.differing,
        "notes": list(found.notes),
    }
