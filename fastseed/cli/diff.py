"""`fastseed diff A B`: two recordings, checkpoints, environments or logs."""

from __future__ import annotations

import argparse
import re

from . import exit_codes, output

_DIGEST = re.compile(r"\b[0-9a-f]{32}\b")  # shown with --all

ABOUT = """\
Compare two recordings of fastseed.debug.Watch (the first step and tensor that differ), two
checkpoints of any framework (the states of generators), two environments, or two logs of numbers by
step (.jsonl, .csv, TensorBoard's). What A and B are is recognised. No code in a file is run.
"""


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("a", metavar="A", help="a file, or the folder of a run or a checkpoint")
    parser.add_argument("b", metavar="B", help="the same of the other run")


def run(args: argparse.Namespace) -> int:
    from .. import tools

    one, other = (tools.parts_of("diff", x, getattr(args, x.lower())) for x in ("A", "B"))
    compare = {  # the cause is read first
        tools.ENVIRONMENT: _environments,
        tools.RECORDING: _recordings,
        tools.LOG: _logs,
        tools.CHECKPOINT: _checkpoints,
    }
    kinds = [kind for kind in compare if kind in one and kind in other]
    if not kinds:
        held = " and ".join(f"{', '.join(side)}" for side in (one, other))
        raise exit_codes.Exit(f"fastseed diff: A and B must hold things of one kind, got {held}")
    document: dict[str, object] = {}
    equal = True
    for kind in kinds:
        if len(kinds) > 1:
            output.say(f"{kind}s:")
        same, found = compare[kind](args, one[kind], other[kind])
        equal = equal and same
        document |= found
    for side, kind in [*(("A", kind) for kind in one), *(("B", kind) for kind in other)]:
        if kind not in kinds:
            output.say(f"note: {side} alone has a {kind}, which is not compared")
    output.emit({"a": args.a, "b": args.b, "equal": equal, **document})
    return exit_codes.OK if equal else exit_codes.FOUND


def _recordings(args: argparse.Namespace, a: str, b: str) -> tuple[bool, dict[str, object]]:
    from ..debug.bisection import bisect

    found = bisect(a, b)
    if found.first is None:
        output.say(found)
    else:
        before = " (before the first recorded one)" if found.start else ""
        where = f"step {found.step}{before}, rank {found.rank}"
        output.say(f"the first difference is at {where}: {found.first.name}")
        if found.call is not None:
            output.say(f"the first call that differs: {found.call}")
        output.say(f"{found.differing} of the {found.compared} common steps differ")
        rows = [
            (one.name, _DIGEST.sub("…", one.text) if args.limit else one.text)
            for one in found.differences
        ]
        output.table(("name", "A | B"), rows, limit=args.limit)
    for note in found.notes:
        output.say(f"note: {note}")
    return found.equal, {"recordings": {"equal": found.equal, **vars(found)}}


def _logs(args: argparse.Namespace, a: str, b: str) -> tuple[bool, dict[str, object]]:
    from ..tools import logs

    found = logs.compare(logs.read("diff", "A", a), logs.read("diff", "B", b))
    if found.first is not None:
        output.say(f"the first difference is at step {found.first}")
        output.table(("name", "A", "B"), found.values, limit=args.limit)
    output.say(f"{found.differing} of the {found.compared} common steps differ")
    for note in found.notes:
        output.say(f"note: {note}")
    return not found.differing, {"logs": {"equal": not found.differing, **found._asdict()}}


def _environments(args: argparse.Namespace, a: str, b: str) -> tuple[bool, dict[str, object]]:
    from ..tools import environment

    found = environment.diff(a, b)
    rows = [(one.text, one.name, output.short(one.a), output.short(one.b)) for one in found]
    if rows:
        output.table(("", "what", "A", "B"), rows, limit=args.limit)
    output.say(f"{len(found)} difference(s)" if found else "the environments are equal")
    return not found, {"environments": found}


def _checkpoints(args: argparse.Namespace, a: str, b: str) -> tuple[bool, dict[str, object]]:
    from ..tools import checkpoints

    sides = {"A": checkpoints.inspect(a), "B": checkpoints.inspect(b)}
    for name, one in sides.items():
        if not one.states:
            rule = "must hold states of generators"
            raise exit_codes.Exit(f"fastseed diff: {name} {rule}, got {one.path!r}")
    found = checkpoints.compare_states(*sides.values())
    if found:
        rows = [(one.name, one.text) for one in found]
        output.table(("state", "B, compared with A"), rows, limit=args.limit)
    output.say(f"{len(found)} state(s) differ" if found else "all states are equal")
    problems = {name: one.problems for name, one in sides.items() if one.problems}
    for name, held in problems.items():
        output.say("\n".join(f"finding in {name}: {line}" for line in held))
    if any(one.journals for one in sides.values()):
        output.say("note: samples of jobs are not compared; fastseed show JOB at STEP lists them")
    return not (found or problems), {"states": found, "findings": problems}
