"""The subcommand ``fastseed bisect``."""

from __future__ import annotations

import argparse

from . import exit_codes, output


def add(parser: argparse.ArgumentParser) -> None:
    """Describe this subcommand and add its arguments."""
    parser.description = (
        "Find the first step, and in it the first tensor, in which two runs that "
        "fastseed.debug.Watch recorded differ by a bit."
    )
    parser.epilog = "The exit code is 0 if all common steps are equal, even if one run has more."
    parser.add_argument("a", metavar="A", help="the folder of a run, or one of its files")
    parser.add_argument("b", metavar="B", help="the same of the other run")
    output.add_all(parser)
    output.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Compare the runs and print."""
    from ..debug.bisection import bisect

    found = bisect(args.a, args.b)
    code = exit_codes.OK if found.equal else exit_codes.FOUND
    if args.json:
        output.emit({"equal": found.equal, **vars(found)})
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
            for d in found.differences
        ]
        title = f"step {found.step}"
        output.table(("group", "name", "a", "b"), rows, title=title, most=args.most)
    for note in found.notes:
        output.say(f"note: {note}")
    return code
