"""`fastseed verify`: show that a program repeats, survives a kill, and depends on its seed."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

from . import exit_codes, output

if TYPE_CHECKING:
    from ..tools.verify import Report, Run

ABOUT = """\
Run a program whole; then kill it with SIGKILL at several places, and start the same command again;
then run it with another seed: each several times. Whole runs must be equal, a run that was killed
must give the rest of the whole run, and another seed must change something. Compared are losses
(JSON lines with "loss" and "step"), else the lines of the output, and recordings. In the words of
commands {run} is an empty folder, the same one when a run is started again, and {seed} is the seed.
"""
_EXAMPLES = """\
examples:
  fastseed verify --seed 42 --out verified --log log.jsonl train.py --folder {run}
  fastseed verify --ranks 1,2,4 train.py
  fastseed verify --seeds 0,1,2 -- python train.py --seed {seed}
"""
_WORDS = {True: "passed", False: "FAILED", None: "not checked"}


def add(parser: argparse.ArgumentParser) -> None:
    parser.usage = "fastseed verify [options] PROGRAM ..."
    parser.epilog = f"{_EXAMPLES}\n{exit_codes.describe()}"

    def option(name: str, help: str, **how: Any) -> None:
        parser.add_argument(name, help=help, **how)

    option("--times", "runs of each experiment (default: 2)", type=int, default=2, metavar="N")
    option("--no-kill", "kill no run", action="store_false", dest="kill")
    option("--no-other-seed", "with no other seed", action="store_false", dest="other_seed")
    option("--ranks", "compare only these numbers of ranks", type=_numbers, metavar="N,N,...")
    option("--seed", "the seed of init() without a number", type=int, metavar="N")
    option("--seeds", "whether these seeds reach every part", type=_numbers, metavar="N,N,...")
    option("--allow", "verdicts of --seeds that are right", type=_pairs, metavar="PART=VERDICT,...",
           default={})  # fmt: skip
    output.add_deterministic(parser)
    option("--log", "a log of losses below {run} (default: the output)", metavar="PATH")
    option("--value", "name of the loss (default: loss)", default="loss", metavar="KEY")
    option("--timeout", "time limit of each run", type=float, metavar="SECONDS")
    option("--out", "a new folder for runs, report and picture of losses", metavar="DIR")
    output.add_program(parser)


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        rule = f"must be integers, separated by commas, got {text!r}"
        raise argparse.ArgumentTypeError(rule) from None


def _pairs(text: str) -> dict[str, str]:
    try:
        return dict(pair.split("=") for pair in text.split(","))
    except ValueError:
        rule = f"must be PART=VERDICT, separated by commas, got {text!r}"
        raise argparse.ArgumentTypeError(rule) from None


def run(args: argparse.Namespace) -> int:
    command = output.command_of(args)
    from ..tools import environment
    from ..tools.verify import verify

    names = ("times", "kill", "other_seed", "ranks", "seed", "seeds", "allow",
             "deterministic", "log", "value", "timeout", "out")  # fmt: skip
    given: dict[str, Any] = {name: getattr(args, name) for name in names}
    _end_on_signals()
    report = verify(command, progress=_print_progress, **given)
    if args.out is not None:
        environment.capture(os.path.join(args.out, "environment"))
    output.emit(report.document())
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
    if report.reach:
        leaves = [leaf[:3] for leaf in report.reach]
        output.table(("part", "verdict", "details"), leaves, limit=args.limit)
        output.say()
    checks = [(one.title, _WORDS[one.passed], one.message) for one in report.checks]
    output.table(("check", "", "details"), checks)
    output.say()
    for note in report.notes:
        output.say(f"note: {note}")
    if args.out is not None:
        output.say(f"wrote {args.out}")
        has_picture = os.path.exists(os.path.join(args.out, "losses.png"))
        if not has_picture and any(map(report.losses_of, report.runs)):
            output.say("note: no losses.png without matplotlib: pip install matplotlib")
    output.say(report.verdict.upper())


def _print_progress(event: str | Run) -> None:
    if output.json_only:
        return
    if not isinstance(event, str):
        how = "was killed after" if event.killed else "took"
        output.say(f"{event.name} {how} {event.seconds:.1f} s", error=True)
    elif sys.stderr.isatty():  # what begins, until the next line takes its place
        output.say(f"{event} ...", error=True, end="\x1b[K\r")


def _end_on_signals() -> None:
    """Let SIGTERM and a closed terminal end the runs, as Ctrl-C does."""

    def interrupt(number: int, _: object) -> None:
        raise exit_codes.Signalled(number)

    for one in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(one) is signal.SIG_DFL:  # not if ignored, as under nohup
            signal.signal(one, interrupt)
