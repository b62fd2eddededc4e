"""`fastseed diff A B`: two recordings, checkpoints, environments or jobs."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING

from . import exit_codes, output

if TYPE_CHECKING:
    from ..data import Lineage

_DIGEST = re.compile(r"\b[0-9a-f]{32}\b")  # shown with --all

ABOUT = """\
Compare two recordings of fastseed.debug.Watch (the first step and tensor that differ), two
checkpoints of any framework (the states of generators), two environments, two logs of numbers by
step (.jsonl, .csv, TensorBoard's), or two jobs (the samples of every step): contracts of
Lineage.save, or checkpoints that hold a state of fastseed.data.steps. What A and B are is
recognised. No code in a file is run.
"""


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("a", metavar="A", help="a file, or the folder of a run or a checkpoint")
    parser.add_argument("b", metavar="B", help="the same of the other run")
    parser.add_argument("--task", metavar="T", type=int, help="the task of one of several loops")


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
    have_jobs = all(one.journals for one in sides.values())
    without = [name for name, one in sides.items() if not one.states]
    if without and not have_jobs:
        rule = "must hold states of generators, or both a job"
        raise exit_codes.Exit(f"fastseed diff: {without[0]} {rule}, got {sides[without[0]].path!r}")
    document: dict[str, object] = {}
    problems = {name: one.problems for name, one in sides.items() if one.problems}
    same = not problems
    if not without:
        found = checkpoints.compare_states(*sides.values())
        same, document = same and not found, {"states": found}
        if found:
            rows = [(one.name, one.text) for one in found]
            output.table(("state", "B, compared with A"), rows, limit=args.limit)
        output.say(f"{len(found)} state(s) differ" if found else "all states are equal")
    elif len(without) == 1:
        output.say(f"note: {without[0]} holds no state of a generator, so only jobs are compared")
    for name, held in problems.items():
        output.say("\n".join(f"finding in {name}: {line}" for line in held))
    document["findings"] = problems
    if have_jobs:
        equal, jobs = _jobs(args, *(one.lineage(args.task) for one in sides.values()))
        return same and equal, document | jobs
    return same, document


def _jobs(args: argparse.Namespace, a: Lineage, b: Lineage) -> tuple[bool, dict[str, object]]:
    from ..tools import checkpoints

    found = checkpoints.compare_jobs(a, b)
    if found.first is not None:
        epoch, step = found.first
        output.say(f"the first difference is at step {step} of epoch {epoch}")
        for line in found.why:
            output.say(f"    {line}")
    output.say(
        f"{found.differing} of {found.steps} steps differ "
        f"({_share(found.differing, found.steps)}); "
        f"B lacks {found.missing} of the {found.samples} samples of A "
        f"({_share(found.missing, found.samples)})"
    )
    for note in found.notes:
        output.say(f"note: {note}")
    return bool(found), {"jobs": {"equal": bool(found), **found._asdict()}}


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.3%}" if whole else "0%"
