"""`fastseed show X`, `show JOB at STEP`, `show JOB where SAMPLE`."""

from __future__ import annotations

import argparse

from . import exit_codes, output

ABOUT = """\
Show what a path holds: a recording of fastseed.debug.Watch; a log; an environment; the states of
generators in a checkpoint of any framework, and findings: ranks that draw the same numbers, missing
states, damage. Of a job (a contract of Lineage.save, or a checkpoint that holds a state of
fastseed.data.steps), `at STEP` lists the samples of a step, and `where SAMPLE` the steps of the
epochs that have begun that have a sample. No code in a file is run.
"""


def add(parser: argparse.ArgumentParser) -> None:
    parser.usage = "fastseed show [options] X | JOB at STEP | JOB where SAMPLE"
    parser.add_argument("path", metavar="X", help="a file, or the folder of a run or a checkpoint")
    parser.add_argument("question", nargs="?", choices=("at", "where"), help="of a job")
    parser.add_argument("number", nargs="?", type=int, metavar="STEP | SAMPLE")
    parser.add_argument("--epoch", metavar="E", type=int, help="at: count STEP in this epoch")
    parser.add_argument("--task", metavar="T", type=int, help="the task of one of several loops")


def run(args: argparse.Namespace) -> int:
    from .. import tools

    if args.question is not None:
        return _answer(args)
    show = {
        tools.RECORDING: _recording,
        tools.ENVIRONMENT: _environment,
        tools.LOG: _log,
        tools.CHECKPOINT: _checkpoint,
    }
    code = exit_codes.OK
    document: dict[str, object] = {"path": args.path}
    for kind, path in tools.parts_of("show", "X", args.path).items():
        good, found = show[kind](args, path)
        document |= found
        code = code if good else exit_codes.FOUND
    output.emit(document)
    return code


def _recording(args: argparse.Namespace, path: str) -> tuple[bool, dict[str, object]]:
    from ..debug.bisection import recordings
    from ..debug.watch_file import weights_of

    rows = []
    for rank, one in recordings("show", "X", path).items():
        steps = sorted(step for step, (_, start, _) in one.steps.items() if not start)
        last = one.values(max(one.steps)).by_name() if one.steps else {}  # none if it was killed
        span = f"{steps[0]} to {steps[-1]}" if steps else "-"
        row = {"rank": rank, "steps": len(steps), "numbers": span}
        rows.append({**row, "weights": weights_of(last) or "-", "incomplete": one.incomplete})
    output.table([*rows[0]], [[*row.values()] for row in rows], limit=args.limit)
    return True, {"recordings": rows}


def _environment(args: argparse.Namespace, path: str) -> tuple[bool, dict[str, object]]:
    from ..tools import environment

    found = environment.load(path)
    for section, held in found.items():
        rows = [(name, output.short(value)) for name, value in held.items()]
        output.table((section, ""), rows, limit=args.limit)
    return True, {"environment": found}


def _log(args: argparse.Namespace, path: str) -> tuple[bool, dict[str, object]]:
    from ..tools import logs

    found = logs.read("show", "X", path)
    last = list(found)[-1]
    output.table(("name", f"at step {last}"), [*found[last].items()], limit=args.limit)
    output.say(f"{len(found)} steps")
    return True, {"log": found}


def _checkpoint(args: argparse.Namespace, path: str) -> tuple[bool, dict[str, object]]:
    from ..tools import checkpoints

    found = checkpoints.inspect(path)
    document: dict[str, object] = {"findings": found.findings, "states": found.states}
    rows = [(one.owner or "all ranks", one.stream, one.source) for one in found.states]
    if rows:
        output.table(("rank", "stream", "from"), rows, limit=args.limit)
    for line in found.findings:
        output.say(f"finding: {line}")
    if rows or not found.journals:
        owners = len({one.owner for one in found.states})
        output.say(f"{len(rows)} states of {owners} rank(s), {len(found.findings)} finding(s)")
    if found.journals:
        job = found.lineage(args.task).history
        point = dict(zip(("epoch", "step"), job.point, strict=True))
        document["job"] = {"master_seed": job.master_seed, "task": job.task, "next": point}
        where = f"epoch {job.epoch}, step {job.step}"
        output.say(f"job: master seed {job.master_seed}, task {job.task}; next: {where}")
    return bool(found), document


def _answer(args: argparse.Namespace) -> int:
    from ..tools import checkpoints

    if args.number is None:
        name = "STEP" if args.question == "at" else "SAMPLE"
        raise exit_codes.Exit(f"fastseed show: {args.question} needs {name}")
    job = checkpoints.inspect(args.path).lineage(args.task)
    if args.question == "at":
        epoch, step = args.epoch, args.number
        if epoch is None:
            epoch, step = checkpoints.locate(job, step)
        visits, title = job.at(epoch, step), f"step {step} of epoch {epoch}"
    else:
        visits, title = job.where(args.number), f"sample {args.number}"
    rows, next_step = checkpoints.rows_of(job, visits), job.history.point
    point = dict(zip(("epoch", "step"), next_step, strict=True))
    output.emit({"job": args.path, "next": point, "visits": rows})
    if rows:
        columns = [name for name in rows[0] if name != "key" and rows[0][name] is not None]
        cells = [[row[name] for name in columns] for row in rows]
        output.say(title)
        output.table(columns, cells, limit=args.limit)
    to_come = sum((row["epoch"], row["step"]) >= next_step for row in rows)
    later = f", {to_come} of them to come" if to_come else ""
    output.say(f"{len(rows)} visit(s){later}; next: epoch {next_step[0]}, step {next_step[1]}")
    return exit_codes.OK
