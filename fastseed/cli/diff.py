"""`fastseed diff A B`: two recordings, checkpoints, environments or jobs."""

from __future__ import annotations

import argparse

from . import exit_codes, output

_ABOUT = """\
Compare two recordings of fastseed.debug.Watch, two checkpoints of any framework, two environments
or two jobs; what A and B are is recognised, and folders of runs may hold several. Of recordings,
the first step that differs is found, and in it the first tensor; of checkpoints, the states of
random generators are compared in words drawn; of jobs (contracts of Lineage.export, or checkpoints
that hold a state of fastseed.data.steps), the samples of every step. Pickles are read as data; no
code in them is run. Ends with 0 if all that both hold is equal, and with 1 otherwise.
"""


def add(parser: argparse.ArgumentParser) -> None:
    """Describe this subcommand and add its arguments."""
    parser.description = _ABOUT
    parser.add_argument("a", metavar="A", help="a file, or the folder of a run or a checkpoint")
    parser.add_argument("b", metavar="B", help="the same of the other run")
    text = "of jobs: compare epochs 0 to N - 1 (default: those that have begun)"
    parser.add_argument("--epochs", metavar="N", type=int, help=text)
    text = "of jobs: the loop's task, if a checkpoint has several loops"
    parser.add_argument("--task", metavar="T", type=int, help=text)


def run(args: argparse.Namespace) -> int:
    """Compare what both paths hold, and print."""
    from ..tools import recognition

    one, other = (recognition.parts_of("diff", x, getattr(args, x)) for x in ("a", "b"))
    kinds = [kind for kind in one if kind in other]
    compare = {
        recognition.RECORDING: _recordings,
        recognition.ENVIRONMENT: _environments,
        recognition.CHECKPOINT: _checkpoints,
        recognition.JOB: _jobs,
    }
    if not kinds and {*one, *other} == {recognition.JOB, recognition.CHECKPOINT}:
        kinds = [recognition.JOB]
        one, other = ({recognition.JOB: next(iter(side.values()))} for side in (one, other))
    if not kinds:
        held = " and ".join(f"{', '.join(side)}" for side in (one, other))
        raise exit_codes.Exit(f"fastseed diff: A and B must hold things of one kind, got {held}")
    document: dict[str, object] = {}
    equal = True
    for kind in kinds:
        if len(kinds) > 1 and not args.json:
            output.say(f"{kind}s:")
        same, found = compare[kind](args, one[kind], other[kind])
        equal = equal and same
        document |= found
    if args.json:
        output.emit({"a": args.a, "b": args.b, "equal": equal, **document})
    return exit_codes.OK if equal else exit_codes.FOUND


def _recordings(args: argparse.Namespace, a: str, b: str) -> tuple[bool, dict[str, object]]:
    from ..debug.bisection import bisect

    found = bisect(a, b)
    document: dict[str, object] = {"recordings": {"equal": found.equal, **vars(found)}}
    if args.json:
        return found.equal, document
    if found.first is None:
        output.say(found)
    else:
        before = " (before the first recorded one)" if found.start else ""
        by = f" {found.elements}" if found.elements else ""
        where = f"step {found.step}{before}, rank {found.rank}"
        output.say(f"the first difference is at {where}: {found.first.name}{by}")
        if found.call is not None:
            output.say(f"the first call that differs: {found.call}")
        output.say(f"{found.differing} of the {found.compared} common steps differ")
        rows = [(one.name, *_sides(one.a, one.b)) for one in found.differences]
        output.table(("name", "a", "b"), rows, title=f"step {found.step}", limit=args.limit)
    for note in found.notes:
        output.say(f"note: {note}")
    return found.equal, document


def _sides(*values: object) -> list[str]:
    return ["absent" if value is None else str(value) for value in values]


def _environments(args: argparse.Namespace, a: str, b: str) -> tuple[bool, dict[str, object]]:
    from ..tools import environment

    found = environment.diff(a, b)
    if not args.json:
        rows = [(one.text, one.name, output.short(one.a), output.short(one.b)) for one in found]
        if rows:
            output.table(("", "what", "A", "B"), rows, limit=args.limit)
        output.say(f"{len(found)} difference(s)" if found else "the environments are equal")
    return not found, {"environments": found}


def _checkpoints(args: argparse.Namespace, a: str, b: str) -> tuple[bool, dict[str, object]]:
    """Compare the states of generators, and the jobs if both checkpoints hold one."""
    from ..tools import checkpoints

    inspections = [checkpoints.inspect(path) for path in (a, b)]
    jobs = [checkpoints.has_lineage(path) for path in (a, b)]
    same = True
    document: dict[str, object] = {}
    if any(one.states for one in inspections) or not all(jobs):
        found = checkpoints.compare(a, b)
        same, document = not found, {"states": found}
        if not args.json:
            if found:
                rows = [(one.name, one.text) for one in found]
                output.table(("state", "B, compared with A"), rows, limit=args.limit)
            output.say(f"{len(found)} state(s) differ" if found else "all states are equal")
    problems = {
        name: one.problems for name, one in zip("ab", inspections, strict=True) if one.problems
    }
    if not args.json:
        for name, held in problems.items():
            output.say("\n".join(f"finding in {name.upper()}: {line}" for line in held))
    document["findings"] = problems
    if all(jobs):
        equal, more = _jobs(args, a, b)
        return same and equal and not problems, document | more
    return same and not problems, document


def _jobs(args: argparse.Namespace, a: str, b: str) -> tuple[bool, dict[str, object]]:
    from ..tools import checkpoints

    jobs = [checkpoints.read_lineage(path, task=args.task) for path in (a, b)]
    found = checkpoints.compare_jobs(*jobs, epochs=args.epochs)
    if not args.json:
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
