"""`fastseed verify`: show that a program repeats, survives a kill, and depends on its seed."""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import signal
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from .._utils import StateDict
from . import exit_codes, output

if TYPE_CHECKING:
    from ..tools.verify import Report, Run

_ABOUT = """\
Run a program whole; then kill it with SIGKILL when half of the whole run's records of
fastseed.debug.Watch, else half of its lines of output, are there, and start the same command again;
then run it with another seed: each several times. Whole runs must be equal, a run that was killed
must continue as if nothing had happened, and another seed must change something. Compared are
losses (JSON lines with "loss" and "step", in the output or in --log), else the lines of the output,
and recordings.

In the words of the program {run} is an empty folder for a run's output, the same one when it is
started again, and {seed} is the seed. No shell is involved.
"""
_EXAMPLES = """\
examples:
  fastseed verify --seed 42 train.py --checkpoint {run}/checkpoint.pt
  fastseed verify --out verified --log log.jsonl train.py --folder {run}
  fastseed verify --stop "python train.py --epochs 2 --save {run}/c.pt" \\
    --resume "python train.py --epochs 4 --load {run}/c.pt" train.py --epochs 4
  fastseed verify --ranks 1,2,4 train.py
"""
_WORDS = {True: "passed", False: "FAILED", None: "not checked"}


def add(parser: argparse.ArgumentParser) -> None:
    """Describe this subcommand and add its arguments."""
    parser.usage = "fastseed verify [options] PROGRAM ..."
    parser.description = _ABOUT
    parser.epilog = f"{_EXAMPLES}\n{exit_codes.describe()}"
    text = "runs of each experiment (default: 2)"
    parser.add_argument("--times", type=int, default=2, metavar="N", help=text)
    text = "a command that stops in the middle, in place of the kill"
    parser.add_argument("--stop", type=shlex.split, metavar="CMD", help=text)
    text = "the command that then continues"
    parser.add_argument("--resume", type=shlex.split, metavar="CMD", help=text)
    for name, text in (("--no-kill", "kill no run"), ("--no-other-seed", "with no other seed")):
        parser.add_argument(name, action="store_false", dest=name[5:].replace("-", "_"), help=text)
    text = "in place of all this: run under torchrun with each of these numbers of ranks"
    parser.add_argument("--ranks", type=_numbers, metavar="N,N,...", help=text)
    text = "the seed of init() without a number (default: the program's own)"
    parser.add_argument("--seed", type=int, metavar="N", help=text)
    output.add_deterministic(parser)
    text = "a log of losses below {run} (default: the output)"
    parser.add_argument("--log", metavar="PATH", help=text)
    parser.add_argument(
        "--value", default="loss", metavar="KEY", help="name of the loss (default: loss)"
    )
    parser.add_argument("--step", metavar="KEY", help="name of the step, or several: epoch,step")
    parser.add_argument("--timeout", type=float, metavar="SECONDS", help="time limit of each run")
    text = "keep the runs, a report and a picture of the losses in this new folder"
    parser.add_argument("--out", metavar="DIR", help=text)
    output.add_program(parser)


def _numbers(text: str) -> list[int]:
    """Parse numbers that are separated by commas."""
    return [int(part) for part in text.split(",")]


def run(args: argparse.Namespace) -> int:
    """Verify, and print."""
    command = output.command_of(args)
    from ..tools import environment
    from ..tools.verify import verify

    names = ("times", "stop", "resume", "kill", "other_seed", "ranks", "seed", "deterministic",
             "log", "value", "step", "timeout", "out")  # fmt: skip
    given: StateDict = {name: getattr(args, name) for name in names}
    if not args.json:
        given["progress"] = _print_run
    with _interruptible():
        report = verify(command, **given)
        if args.out is not None:
            environment.capture(os.path.join(args.out, "environment"))
    if args.json:
        output.emit(report.document())
    else:
        _print(report, args)
    return exit_codes.OK if report else exit_codes.FOUND


def _print(report: Report, args: argparse.Namespace) -> None:
    if report.ranks:
        rows = [
            (run.ranks, run.steps, run.digest, "DIFFERENT" if run.difference else "equal")
            for run in report.ranks
        ]
        output.table(("ranks", "steps", "weights", "state after each step"), rows)
    else:
        columns = ("experiment", "runs", "lines", "last loss", "time")
        output.table(columns, report.experiments())
    output.say()
    checks = [(one.title, _WORDS[one.passed], one.message) for one in report.checks]
    output.table(("check", "", "details"), checks)
    output.say()
    for cause in report.causes:
        output.say(f"cause: {cause}")
    for note in report.notes:
        output.say(f"note: {note}")
    if args.out is not None:
        names = [name for name in ("report.json", "losses.png")
                 if os.path.exists(os.path.join(args.out, name))]  # fmt: skip
        output.say(f"wrote {', '.join(os.path.join(args.out, name) for name in names)}")
        if len(names) == 1 and any(report.curve_of(one).values for one in report.measured):
            output.say('note: no losses.png without matplotlib: pip install "fastseed[report]"')
    output.say(report.verdict.upper())


def _print_run(run: Run) -> None:
    how = "was killed after" if run.killed else "took"
    output.say(f"{run.name} {how} {run.seconds:.1f} s", error=True)
    sys.stderr.flush()


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """SIGTERM and a closed terminal end the runs, as Ctrl-C does."""

    def interrupt(number: int, _: object) -> None:
        raise exit_codes.Signalled(number)

    before: dict[signal.Signals, signal._HANDLER] = {}
    if threading.current_thread() is threading.main_thread():  # other threads may not set handlers
        for one in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(one) is signal.SIG_DFL:  # not if ignored, as under nohup
                before[one] = signal.signal(one, interrupt)
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
