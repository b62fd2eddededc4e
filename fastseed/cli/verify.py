"""`fastseed verify`: run a training command in four ways, and prove that it is one run."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from . import exit_codes, output

_ABOUT = """\
Run a training command whole (X epochs), half (X/2 epochs, with a checkpoint), resumed from there,
and without a seed, some times each. The first three have to be one run, to the last bit of every
loss; runs without a seed have to differ. What was run is kept in DIR: started again, only what is
missing is run. Reports are written to DIR/report.
"""
_PLACES = """\
the command: words in braces are places; words between [ and ] are left out where a place in them
has no value, and `or` between them separates alternatives, of which the first that fits is taken.
It is started from a list of arguments, never through a shell.
"""
_EXAMPLE = """\
example:
  fastseed verify --epochs 8 --dir verification --log metrics.jsonl -- \\
    python train.py --epochs {epochs} --metrics {run}/metrics.jsonl --checkpoint {checkpoint} \\
    [ --resume {resume} or --seed {seed} ]
"""


def add(subparsers: Any) -> None:
    """Add this subcommand."""
    from ..tools.verify.command import PLACES

    places = "".join(f"  {{{name}}}".ljust(15) + f"{text}\n" for name, text in PLACES.items())
    parser = subparsers.add_parser(
        "verify",
        help="prove that a training command repeats and resumes, to the last bit",
        usage="fastseed verify --epochs X --dir DIR [options] -- PROGRAM …",
        description=_ABOUT,
        epilog=f"{_PLACES}{places}\n{_EXAMPLE}\n{exit_codes.describe()}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--epochs", type=int, required=True, metavar="X", help="epochs, from 2")
    output.complete(
        parser.add_argument("--dir", required=True, metavar="DIR", help="folder of the runs"),
        "folders",
    )
    parser.add_argument("--runs", type=int, default=8, metavar="N", help="of each experiment (8)")
    parser.add_argument("--jobs", type=int, default=1, metavar="J", help="runs at a time (1)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="the master seed (0)")
    parser.add_argument("--no-control", action="store_true", help="no unseeded runs")
    parser.add_argument(
        "--deterministic", action="store_true", help="start runs as fastseed run --deterministic"
    )
    parser.add_argument(
        "--log",
        metavar="PATH",
        help="where a run writes its losses, below {run}; its output by default",
    )
    parser.add_argument(
        "--format",
        metavar="NAME",
        help="of the log: jsonl, dlll, csv, tensorboard or regex (found out by default)",
    )
    parser.add_argument("--value", default="loss", metavar="KEY", help="the loss's name (loss)")
    parser.add_argument("--step", metavar="KEY", help="the step's name, or several with commas")
    parser.add_argument(
        "--pattern", metavar="REGEX", help="for lines: a group named value, perhaps one named step"
    )
    parser.add_argument(
        "--require",
        choices=("bit-identical", "variance"),
        default="bit-identical",
        help="what it takes to pass (bit-identical)",
    )
    parser.add_argument("--no-probe", action="store_true", help="do not look for draws unaccounted")
    parser.add_argument("--timeout", type=float, metavar="SECONDS", help="for a run")
    parser.add_argument("--restart", action="store_true", help="throw away the runs in DIR")
    output.add_json(parser)
    parser.add_argument("program", nargs=argparse.REMAINDER, metavar="-- PROGRAM …")


def run(args: argparse.Namespace) -> int:
    """Verify, write the reports, print."""
    from ..tools import verify
    from ..tools.verify import reports

    command = args.program[1:] if args.program[:1] == ["--"] else args.program
    if not command:
        raise exit_codes.Exit(
            exit_codes.USAGE, "fastseed verify: give a program: … -- python train.py …"
        )
    with _terminable(), _shown(args.json) as progress:
        report = verify.verify(
            command,
            directory=args.dir,
            epochs=args.epochs,
            runs=args.runs,
            jobs=args.jobs,
            seed=args.seed,
            control=not args.no_control,
            deterministic=args.deterministic,
            log=args.log,
            format=args.format,
            value=args.value,
            step=args.step,
            pattern=args.pattern,
            require=args.require,
            probe=not args.no_probe,
            timeout=args.timeout,
            restart=args.restart,
            progress=progress,
        )
    written = reports.write(report, os.path.join(args.dir, "report"))
    if args.json:
        from ..tools.verify.reports import json_report

        sys.stdout.write(json_report.text(report))
    else:
        _print(report, written)
    return exit_codes.OK if report.passed else exit_codes.FOUND


def _print(report: Any, written: Any) -> None:
    from ..tools.verify.reports import terminal

    for made in (terminal.checks, terminal.experiments, terminal.paired, terminal.findings):
        shown = made(report)
        if shown.rows:
            output.table(shown.columns, shown.rows, title=shown.title, styles=shown.styles)
            output.say()
    for note in report.notes:
        output.say(f"note: {note}")
    for why in written.skipped.values():
        output.say(f"note: {why}")
    for path in written.values():
        output.say(f"wrote {path}")
    word = "PASSED" if report.passed else "FAILED"
    output.say(f"{word}: {report.verdict}: {report.says}")


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM and a closed terminal end the runs as Ctrl-C does, rather than leave them behind."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before: dict[Any, Any] = {}
    if threading.current_thread() is threading.main_thread():  # others may not
        for one in (signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
            if signal.getsignal(one) is signal.SIG_DFL:  # not where nohup has it ignored
                before[one] = signal.signal(one, interrupt)
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


@contextlib.contextmanager
def _shown(quiet: bool) -> Iterator[Any]:
    """What is called with each event: a bar with the time left, or a line a run."""
    if quiet:
        yield lambda _: None
        return
    try:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
    except ImportError:
        yield _Lines()
        return
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _Lines()
        return
    columns = (
        TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"),
        TextColumn("time left"), TimeRemainingColumn(elapsed_when_finished=True),
    )  # fmt: skip
    # A run may take long, and the estimate has to live on what the last hour said.
    with Progress(*columns, console=console, speed_estimate_period=3600) as bar:
        task = bar.add_task("runs", total=None)
        yield lambda event: bar.update(
            task, total=event.total, completed=event.done, description=event.name
        )


class _Lines:
    """A line for each run that has ended, with how long the rest may take."""

    def __init__(self) -> None:
        self._begin: float | None = None
        self._kept = 0.0

    def __call__(self, event: Any) -> None:
        if event.what == "started":
            if self._begin is None:
                self._begin, self._kept = time.monotonic(), event.done
            return
        text = f"{event.done / event.total:4.0%}  {event.name} "
        text += "was there" if event.what == "kept" else f"took {event.seconds:.1f} s"
        made = event.done - self._kept
        if self._begin is not None and made > 0 and event.done < event.total:
            each = (time.monotonic() - self._begin) / made
            text += f", about {_time(each * (event.total - event.done))} left"
        output.say(text, error=True)
        sys.stderr.flush()


def _time(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
