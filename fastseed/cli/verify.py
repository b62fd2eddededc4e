"""`fastseed verify`: show that a training command repeats and resumes, or only that it repeats."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from .._utils import StateDict
from . import exit_codes, output

if TYPE_CHECKING:
    from ..tools.verify.runner import Event

_ABOUT = """\
Run a training command uninterrupted (X epochs), truncated (X/2 epochs, with a checkpoint), resumed
from that checkpoint, and unseeded, several times each. The first three have to agree to the last
bit of every loss; the unseeded baseline has to differ. Runs are kept in DIR: started again, only
missing runs are run. Reports are written to DIR/report. With --repeat-only, run any program twice
as it is, and compare what it prints and what fastseed.debug.Watch records. With --ranks, run a
script under torchrun with several numbers of ranks, and compare what fastseed.debug.Watch records.
"""
_PLACEHOLDERS = """\
the command: names in braces are placeholders; words between [ and ] are left out if a placeholder
in them has no value, and `or` between them separates alternatives, of which the first that has its
values is used. The command is started without a shell.
"""
_EXAMPLE = """\
examples:
  fastseed verify --repeat-only -- python train.py
  fastseed verify --ranks 1,2,3,4 -- train.py --steps 10
  fastseed verify --epochs 8 --dir verification --log metrics.jsonl -- \\
    python train.py --epochs {epochs} --metrics {run}/metrics.jsonl --checkpoint {checkpoint} \\
    [ --resume {resume} or --seed {seed} ]
"""
# Arguments whose names are fields of fastseed.tools.verify.Options.
_ARGUMENTS: dict[str, StateDict] = {
    "--epochs": {"type": int, "metavar": "X", "help": "epochs, at least 2"},
    "--dir": {"dest": "directory", "metavar": "DIR", "help": "run folder"},
    "--runs": {"type": int, "metavar": "N", "help": "runs of each experiment (default: 8)"},
    "--jobs": {"type": int, "metavar": "J", "help": "runs at a time (default: 1)"},
    "--seed": {"type": int, "metavar": "N", "help": "master seed (default: 0)"},
    "--no-baseline": {
        "dest": "baseline", "action": "store_false", "help": "skip the unseeded baseline"
    },
    "--deterministic": {
        "action": "store_true", "help": "start runs as fastseed run --deterministic does"
    },
    "--log": {"metavar": "PATH", "help": "the log of a run, below {run} (default: its output)"},
    "--value": {"metavar": "KEY", "help": "name of the loss (default: loss)"},
    "--step": {"metavar": "KEY", "help": "name of the step, or several separated by commas"},
    "--timeout": {"type": float, "metavar": "SECONDS", "help": "time limit of each run"},
}  # fmt: skip
_PASSED = {True: "passed", False: "FAILED", None: "not checked"}
_OF_ALL = ("seed", "deterministic", "timeout")  # the options that --repeat-only and --ranks have


def add(parser: argparse.ArgumentParser) -> None:
    """Describe this subcommand and add its arguments."""
    from ..tools.verify import PLACEHOLDERS

    names = "".join(f"  {{{name}}}".ljust(15) + f"{text}\n" for name, text in PLACEHOLDERS.items())
    parser.usage = (
        "fastseed verify --epochs X --dir DIR [options] -- PROGRAM ...\n"
        "       fastseed verify --repeat-only [options] -- PROGRAM ...\n"
        "       fastseed verify --ranks N,N,... [options] -- SCRIPT ..."
    )
    parser.description = _ABOUT
    parser.epilog = f"{_PLACEHOLDERS}{names}\n{_EXAMPLE}\n{exit_codes.describe()}"
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    for name, how in _ARGUMENTS.items():
        # Options without a value stay out, so that the defaults are those of Options.
        parser.add_argument(name, default=argparse.SUPPRESS, **how)
    modes = parser.add_mutually_exclusive_group()
    modes.add_argument(
        "--repeat-only", action="store_true", help="run the program twice as it is, and compare"
    )
    modes.add_argument(
        "--ranks",
        type=_numbers,
        metavar="N,N,...",
        help="run the script under torchrun with each of these numbers of ranks, and compare",
    )
    output.add_json(parser)
    output.add_program(parser)


def run(args: argparse.Namespace) -> int:
    """Check what is given, and verify."""
    command = output.program(args)
    names = [how.get("dest", name[2:]) for name, how in _ARGUMENTS.items()]
    given = {name: getattr(args, name) for name in names if hasattr(args, name)}
    if args.repeat_only or args.ranks:
        mode = "--repeat-only" if args.repeat_only else "--ranks"
        if surplus := sorted(given.keys() - set(_OF_ALL)):
            allowed = ", ".join(f"--{name}" for name in _OF_ALL)
            problem = f"{mode} takes {allowed} and --json only, got {', '.join(surplus)}"
            raise exit_codes.Exit(f"fastseed verify: {problem}")
        if args.ranks:
            return _compare_ranks(command, args.ranks, given, args.json)
        return _repeat(command, given, args.json)
    if not {"epochs", "directory"} <= given.keys():
        problem = "--epochs X and --dir DIR are needed; --repeat-only and --ranks run without them"
        raise exit_codes.Exit(f"fastseed verify: {problem}")
    return _verify(command, given, args.json)


def _repeat(command: list[str], given: StateDict, as_json: bool) -> int:
    """Run the program twice, and print whether the runs are equal."""
    from ..tools import verify

    with _interruptible():
        found = verify.repeat(command, **given)
    if as_json:
        output.emit({"equal": bool(found), **found._asdict()})
        return exit_codes.OK if found else exit_codes.FOUND
    if found.line is not None:
        output.say(f"the output differs first in line {found.line}:")
        for line in (found.a, found.b):
            output.say(f"    {'(the output has ended)' if line is None else line}")
    if found.recorded is not None:
        output.say(f"recordings: {found.recorded}")
    count = f"{found.lines} line{'s' * (found.lines != 1)} of output"
    output.say(f"PASSED: two runs are equal in {count}" if found else "FAILED: two runs differ")
    return exit_codes.OK if found else exit_codes.FOUND


def _numbers(text: str) -> list[int]:
    """Parse numbers that are separated by commas."""
    return [int(part) for part in text.split(",")]


def _compare_ranks(command: list[str], ranks: list[int], given: StateDict, as_json: bool) -> int:
    """Run the script with each number of ranks, and print whether the runs are equal."""
    from ..tools import verify

    with _interruptible():
        found = verify.compare_ranks(command, ranks, **given)
    if as_json:
        runs = [run._asdict() for run in found.runs]
        output.emit({"equal": bool(found), "runs": runs, "notes": found.notes})
        return exit_codes.OK if found else exit_codes.FOUND
    words = {True: "equal", False: "DIFFERENT"}
    rows = [(run.ranks, run.steps, run.digest, words[not run.difference]) for run in found.runs]
    output.table(("ranks", "steps", "weights", "state after each step"), rows)
    output.say()
    for run in found.runs:
        if run.difference:
            output.say(f"first difference: {run.difference}")
    for note in found.notes:
        output.say(f"note: {note}")
    if found:
        output.say("PASSED: the same bits on every number of ranks")
    else:
        output.say("FAILED: the bits depend on the number of ranks")
    return exit_codes.OK if found else exit_codes.FOUND


def _verify(command: list[str], given: StateDict, as_json: bool) -> int:
    """Run the four experiments, write the reports, print."""
    from ..tools import verify
    from ..tools.verify import reports

    options = verify.Options(command=command, **given)
    with _interruptible():
        report = verify.verify(options, None if as_json else _print_event)
    written = reports.write(report, os.path.join(options.directory, "report"))
    if as_json:
        sys.stdout.write(reports.to_json(report))
        return exit_codes.OK if report else exit_codes.FOUND
    checks = [(one.name, one.title, _PASSED[one.passed], one.message) for one in report.checks]
    output.table(("check", "property", "result", "details"), checks, title="Checks")
    columns = ("experiment", "runs", "last step", "loss", "time")
    output.say()
    output.table(columns, reports.experiments(report), title="Experiments")
    output.say()
    for cause in report.causes:
        output.say(f"cause: {cause}")
    for note in report.notes:
        output.say(f"note: {note}")
    if len(written) == 1:
        output.say('note: no curves.png without matplotlib: pip install "fastseed[report]"')
    for path in written:
        output.say(f"wrote {os.path.relpath(path)}")
    word = "PASSED" if report else "FAILED"
    output.say(f"{word}: {report.verdict}: {report.summary}")
    return exit_codes.OK if report else exit_codes.FOUND


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """SIGTERM and a closed terminal end the runs, as Ctrl-C does."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

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


def _print_event(event: Event) -> None:
    if event.what != "started":
        how = "kept" if event.what == "kept" else f"took {event.seconds:.1f} s"
        output.say(f"{event.done} of {event.total}: {event.name} {how}", error=True)
        sys.stderr.flush()
