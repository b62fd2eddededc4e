"""`fastseed data at|where|diff`: which step of a job has which sample."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from .._utils import StateDict
from . import exit_codes, output

if TYPE_CHECKING:
    from ..data import Lineage
    from ..data.lineage import Visits

_JOB = "a contract of Lineage.save, or a checkpoint: a file or a folder"


def add(parser: argparse.ArgumentParser) -> None:
    """Describe this subcommand and add its three actions."""
    parser.description = (
        "Say which samples a step of a job has, which steps have a sample, and where two jobs have "
        "other samples, from the journal that the state of fastseed.data.steps contains. "
        "Checkpoints of any framework are read as data; no code in them is run."
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True)

    text = "list the samples of a step"
    one = actions.add_parser("at", help=text, description=f"{text.capitalize()}, on all ranks.")
    one.set_defaults(action=_at)
    one.add_argument("step", metavar="STEP", type=int, help="from 0, counted over all epochs")
    one.add_argument("job", metavar="JOB", help=_JOB)
    one.add_argument("--epoch", metavar="E", type=int, help="STEP is counted in this epoch")
    one.add_argument("--rank", metavar="R", type=int, help="only the samples of this rank")

    text = "list the steps that have a sample"
    description = f"{text.capitalize()}, those to come too."
    one = actions.add_parser("where", help=text, description=description)
    one.set_defaults(action=_where)
    one.add_argument("sample", metavar="SAMPLE", type=int, help="its index in the dataset")
    one.add_argument("job", metavar="JOB", help=_JOB)
    text = "SAMPLE is counted in this source of a mixture"
    one.add_argument("--source", metavar="NAME", help=text)

    text = "compare the samples of two jobs, step by step"
    description = f"{text.capitalize()}. Ends with 0 if they are equal and with 1 otherwise."
    one = actions.add_parser("diff", help=text, description=description)
    one.set_defaults(action=_diff)
    one.add_argument("a", metavar="A", help=_JOB)
    one.add_argument("b", metavar="B", help="the same of the other job")

    for name, action in actions.choices.items():
        if name != "at":
            text = "only epochs 0 to N - 1 (default: those that have begun)"
            action.add_argument("--epochs", metavar="N", type=int, help=text)
        if name != "diff":
            output.add_all(action)
        text = "the loop's task, if a checkpoint has several loops"
        action.add_argument("--task", metavar="T", type=int, help=text)
        output.add_json(action)


def run(args: argparse.Namespace) -> int:
    """Run one of the actions."""
    code: int = args.action(args)
    return code


def _at(args: argparse.Namespace) -> int:
    from ..tools import journals

    job = journals.read(args.job, task=args.task)
    epoch, step = args.epoch, args.step
    if epoch is None:
        epoch, step = journals.locate(job, step)
    return _print(args, job, job.at(epoch, step, rank=args.rank), f"step {step} of epoch {epoch}")


def _where(args: argparse.Namespace) -> int:
    from ..tools import journals

    if args.epochs is not None and args.epochs < 1:
        raise exit_codes.Exit(f"fastseed data where: N must be at least 1, got {args.epochs}")
    job = journals.read(args.job, task=args.task)
    epochs = None if args.epochs is None else range(args.epochs)
    visits = job.where(args.sample, args.source, epochs=epochs)
    of = f" of {args.source}" if args.source else ""
    return _print(args, job, visits, f"sample {args.sample}{of}")


def _print(args: argparse.Namespace, job: Lineage, visits: Visits, title: str) -> int:
    from ..tools import journals

    rows, next_step = journals.rows(job, visits), job.history.point
    if args.json:
        point = dict(zip(("epoch", "step"), next_step, strict=True))
        output.emit({"job": args.job, "next": point, "visits": rows})
        return exit_codes.OK
    if rows:
        columns = [name for name in rows[0] if name != "key" and rows[0][name] is not None]
        cells = [[row[name] for name in columns] for row in rows]
        output.table(columns, cells, title=title, most=args.most)
    to_come = sum((row["epoch"], row["step"]) >= next_step for row in rows)
    later = f", {to_come} of them to come" if to_come else ""
    output.say(f"{len(rows)} visit(s){later}; next: epoch {next_step[0]}, step {next_step[1]}")
    return exit_codes.OK


def _diff(args: argparse.Namespace) -> int:
    from ..tools import journals

    jobs = [journals.read(path, task=args.task) for path in (args.a, args.b)]
    found = journals.diff(*jobs, epochs=args.epochs)
    code = exit_codes.OK if found else exit_codes.FOUND
    if args.json:
        document: StateDict = {"a": args.a, "b": args.b, "equal": bool(found)}
        output.emit({**document, **found._asdict()})
        return code
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
    return code


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.3%}" if whole else "0%"
