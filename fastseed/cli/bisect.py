"""The subcommand ``fastseed bisect``."""

from __future__ import annotations

import argparse
from typing import Any

from . import exit_codes, output

_SHOWN = 20  # differences at the first step that differs


def add(subparsers: Any) -> None:
    """Add this subcommand."""
    parser = subparsers.add_parser(
        "bisect",
        help="find the first step and tensor in which two recorded runs differ",
        description="Find the first step, and in it the first tensor, in which two runs that "
        "fastseed.debug.Watch recorded differ by a bit.",
        epilog="The exit code is 0 if all common steps are equal, even if one run has more.",
    )
    parser.add_argument("a", metavar="A", help="the folder of a run, or one of its files")
    parser.add_argument("b", metavar="B", help="the same of the other run")
    output.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Compare the runs and print."""
    from ..debug.bisection import bisect

    try:
        found = bisect(args.a, args.b)
    except FileNotFoundError as error:
        raise exit_codes.Exit(exit_codes.USAGE, f"error: {error}") from None
    code = exit_codes.OK if found.equal else exit_codes.FOUND
    if args.json:
        output.emit(_document(found))
        return code
    if found.first is None:
        output.say(found)
    else:
        before = " (before the first recorded one)" if found.start else ""
        output.say(
            f"the first difference is at step {found.step}{before}, rank {found.rank}: "
            f"{found.first.group} {found.first.name}"
            + (f" {found.elements}" if found.elements else "")
        )
        if found.call is not None:
            output.say(f"the first call that differs: {found.call}")
        output.say(f"{found.differing} of the {found.compared} common steps differ")
        rows = [
            (d.group, d.name, *("absent" if side is None else str(side) for side in (d.a, d.b)))
            for d in found.differences[:_SHOWN]
        ]
        output.table(("group", "name", "a", "b"), rows, title=f"step {found.step}")
        if len(found.differences) > _SHOWN:
            output.say(f"and {len(found.differences) - _SHOWN} more")
    for note in found.notes:
        output.say(f"note: {note}")
    return code


def _document(found: Any) -> dict[str, Any]:
    def side(one: Any) -> dict[str, Any] | None:
        if one is None:
            return None
        return {"dtype": one.dtype, "shape": list(one.shape), "digest": f"{one.value:032x}"}

    return {
        "equal": found.equal,
        "step": found.step,
        "start": found.start,
        "rank": found.rank,
        "differences": [
            {"group": d.group, "name": d.name, "a": side(d.a), "b": side(d.b)}
            for d in found.differences
        ],
        "call": _call(found.call),
        "compared_steps": found.compared,
        "differing_steps": found.differing,
        "notes": list(found.notes),
    }


def _call(call: Any) -> dict[str, Any] | None:
    if call is None:
        return None
    return {
        "module": call.tensor.module,
        "call": call.tensor.call,
        "direction": call.direction,
        "tensor": call.tensor.path,
        "cause": call.cause,
        "elements": None if call.elements is None else call.elements._asdict(),
    }
