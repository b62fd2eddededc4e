"""`fastseed show X`, `show JOB at STEP`, `show JOB where SAMPLE`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from . import exit_codes, output

if TYPE_CHECKING:
    from ..data import Lineage
    from ..data.history import History
    from ..data.lineage import Visits
    from ..tools.checkpoints import Inspection

_ABOUT = """\
Show what a path holds: the steps of a recording of fastseed.debug.Watch; an environment; the states
of random generators in a checkpoint of any framework, and what is wrong with them; the point at
which a job is. Of a job (a contract of Lineage.save, or a checkpoint that holds a state of
fastseed.data.steps), `at STEP` lists the samples of a step, and `where SAMPLE` the steps that have
a sample, those to come too. No code in a file is run. Ends with 1 if a checkpoint has a finding:
ranks that draw the same numbers, missing states, damage.
"""


def add(parser: argparse.ArgumentParser) -> None:
    """Describe this subcommand and add its arguments."""
    parser.usage = "fastseed show [options] X | JOB at STEP | JOB where SAMPLE"
    parser.description = _ABOUT
    parser.add_argument("path", metavar="X", help="a file, or the folder of a run or a checkpoint")
    parser.add_argument("question", nargs="?", choices=("at", "where"), help="of a job")
    parser.add_argument("number", nargs="?", type=int, metavar="STEP | SAMPLE")
    text = "at: STEP is counted in this epoch (default: from 0, over all epochs)"
    parser.add_argument("--epoch", metavar="E", type=int, help=text)
    parser.add_argument("--rank", metavar="R", type=int, help="at: only the samples of this rank")
    text = "where: SAMPLE is counted in this source of a mixture"
    parser.add_argument("--source", metavar="NAME", help=text)
    text = "where: only epochs 0 to N - 1 (default: those that have begun)"
    parser.add_argument("--epochs", metavar="N", type=int, help=text)
    text = "of a job: the loop's task, if a checkpoint has several loops"
    parser.add_argument("--task", metavar="T", type=int, help=text)


def run(args: argparse.Namespace) -> int:
    """Answer the question about a job, or show what the path holds."""
    from ..tools import recognition

    if args.question is not None:
        return _answer(args)
    show = {
        recognition.RECORDING: _recording,
        recognition.ENVIRONMENT: _environment,
        recognition.CHECKPOINT: _checkpoint,
    }
    code = exit_codes.OK
    document: dict[str, object] = {"path": args.path}
    for kind, path in recognition.parts_of("show", "X", args.path).items():
        good, found = show[kind](args, path)
        document |= found
        code = code if good else exit_codes.FOUND
    if args.json:
        output.emit(document)
    return code


def _recording(args: argparse.Namespace, path: str) -> tuple[bool, dict[str, object]]:
    from ..debug.bisection import recordings
    from ..debug.tree_digest import whole

    rows = []
    for rank, one in recordings("show", "X", path).items():
        steps = sorted(step for step, (_, start, _) in one.steps.items() if not start)
        last = one.values(max(one.steps)).by_name()
        weights = {n: leaf for (group, n), leaf in last.items() if group in ("buffer", "parameter")}
        span = f"{steps[0]} to {steps[-1]}" if steps else "-"
        rows.append((rank, len(steps), span, f"{whole(weights):032x}", one.incomplete))
    if not args.json:
        columns = ("rank", "steps", "numbers", "weights after the last", "incomplete")
        output.table(columns, rows, limit=args.limit)
    names = ("rank", "steps", "numbers", "weights", "incomplete")
    return True, {"recordings": [dict(zip(names, row, strict=True)) for row in rows]}


def _environment(args: argparse.Namespace, path: str) -> tuple[bool, dict[str, object]]:
    from ..tools import environment

    found = environment.load(path)
    if not args.json:
        for section, held in found.items():
            rows = [(name, output.short(value)) for name, value in held.items()]
            output.table((section, ""), rows, limit=args.limit)
    return True, {"environment": found}


def _checkpoint(args: argparse.Namespace, path: str) -> tuple[bool, dict[str, object]]:
    """Show the states of generators, and where the job is if the checkpoint holds one."""
    from ..tools import checkpoints

    found = checkpoints.inspect(path)
    job = found.lineage(args.task).history if found.journals else None
    document: dict[str, object] = {}
    if found.states or job is None:
        states = [{**one._asdict(), "same_as": found.same_as(one)} for one in found.states]
        document = {"states": states}
    document["findings"] = found.findings
    if job is not None:
        point = dict(zip(("epoch", "step"), job.point, strict=True))
        document["job"] = {"master_seed": job.master_seed, "task": job.task, "next": point}
    if not args.json:
        _print_checkpoint(args, found, job)
    return bool(found), document


def _print_checkpoint(args: argparse.Namespace, found: Inspection, job: History | None) -> None:
    rows = [
        (one.owner or "all ranks", one.stream, ", ".join(found.same_as(one)) or "-", one.source)
        for one in found.states
    ]
    if rows:
        output.table(("rank", "stream", "equal to", "from"), rows, limit=args.limit)
    for line in found.findings:
        output.say(f"finding: {line}")
    if rows or job is None:
        owners = len({one.owner for one in found.states})
        output.say(f"{len(rows)} states of {owners} rank(s), {len(found.findings)} finding(s)")
    if job is not None:
        epoch, step = job.point
        output.say(
            f"job: master seed {job.master_seed}, task {job.task}; next: epoch {epoch}, step {step}"
        )


# ---------------------------------------------------------------- jobs


def _answer(args: argparse.Namespace) -> int:
    """Print the samples of a step, or the steps of a sample."""
    from ..tools import checkpoints

    if args.number is None:
        name = "STEP" if args.question == "at" else "SAMPLE"
        raise exit_codes.Exit(f"fastseed show: {args.question} needs {name}")
    job = checkpoints.inspect(args.path).lineage(args.task)
    if args.question == "at":
        epoch, step = args.epoch, args.number
        if epoch is None:
            epoch, step = checkpoints.locate(job, step)
        visits = job.at(epoch, step, rank=args.rank)
        return _print(args, job, visits, f"step {step} of epoch {epoch}")
    if args.epochs is not None and args.epochs < 1:
        raise exit_codes.Exit(f"fastseed show: --epochs must be at least 1, got {args.epochs}")
    epochs = None if args.epochs is None else range(args.epochs)
    visits = job.where(args.number, args.source, epochs=epochs)
    of = f" of {args.source}" if args.source else ""
    return _print(args, job, visits, f"sample {args.number}{of}")


def _print(args: argparse.Namespace, job: Lineage, visits: Visits, title: str) -> int:
    from ..tools import checkpoints

    rows, next_step = checkpoints.rows_of(job, visits), job.history.point
    if args.json:
        point = dict(zip(("epoch", "step"), next_step, strict=True))
        output.emit({"job": args.path, "next": point, "visits": rows})
        return exit_codes.OK
    if rows:
        columns = [name for name in rows[0] if name != "key" and rows[0][name] is not None]
        cells = [[row[name] for name in columns] for row in rows]
        output.table(columns, cells, title=title, limit=args.limit)
    to_come = sum((row["epoch"], row["step"]) >= next_step for row in rows)
    later = f", {to_come} of them to come" if to_come else ""
    output.say(f"{len(rows)} visit(s){later}; next: epoch {next_step[0]}, step {next_step[1]}")
    return exit_codes.OK
