"""`fastseed run`: start a program with what has to be there before Python starts."""

from __future__ import annotations

import argparse
import os
from typing import Any

from . import exit_codes, output

NOT_STARTED = 126
"""The program is there and cannot be run; with the next one what `env` and shells end with."""
NOT_FOUND = 127
"""There is no such program."""

_ABOUT = """\
Set PYTHONHASHSEED, and what else is read once at the start, and become the program: its output,
signals and exit code are its own. It is started from a list of arguments, never through a shell.
`fastseed.init()` in the script takes the seed and --deterministic from here.
"""
_CODES = f"""\
exit codes: the program's own (for a shell 128 + n after signal n), and
  {exit_codes.USAGE:>3}  wrong usage, a bad configuration, a folder that is in use
  {exit_codes.UNAVAILABLE:>3}  could not be done here (an extra that is missing)
  {NOT_STARTED:>3}  the program cannot be run
  {NOT_FOUND:>3}  there is no such program
"""


def add(subparsers: Any) -> None:
    """Add this subcommand."""
    parser = subparsers.add_parser(
        "run",
        help="start a program with the seeds and switches that precede Python",
        usage="fastseed run [--seed N] [--deterministic] [--config FILE] [--capture DIR] "
        "-- PROGRAM …",
        description=_ABOUT,
        epilog=_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seed", type=_seed, metavar="N", help="the master seed, 0 to 2**64 - 1")
    parser.add_argument(
        "--deterministic", action="store_true", help="deterministic algorithms, errors where none"
    )
    parser.add_argument(
        "--warn-only", action="store_true", help="--deterministic with warnings for errors"
    )
    output.complete(
        parser.add_argument(
            "--config", metavar="FILE", help="a JSON, YAML or TOML file with a determinism section"
        ),
        "files",
    )
    output.complete(
        parser.add_argument(
            "--capture", metavar="DIR", help="write the environment to this folder (fastseed env)"
        ),
        "folders",
    )
    parser.add_argument("--name", help="of this run: its capture goes to DIR/NAME")
    parser.add_argument("--quiet", action="store_true", help="say nothing of what is set")
    parser.add_argument("--dry-run", action="store_true", help="print the variables, start nothing")
    output.add_json(parser)
    parser.add_argument("program", nargs=argparse.REMAINDER, metavar="-- PROGRAM …")


def _seed(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 20 and int(text) < 2**64):
        raise argparse.ArgumentTypeError(f"must be an integer in [0, {2**64 - 1}], got {text!r}")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Set the variables, capture, and become the program."""
    from ..determinism import launch

    command = args.program[1:] if args.program[:1] == ["--"] else args.program
    if not command or not command[0]:
        raise exit_codes.Exit(
            exit_codes.USAGE, "fastseed run: give a program: fastseed run -- python …"
        )
    if args.name is not None and args.capture is None:
        raise exit_codes.Exit(exit_codes.USAGE, "fastseed run: --name needs --capture DIR")
    if args.json and not args.dry_run:
        raise exit_codes.Exit(
            exit_codes.USAGE, "fastseed run: --json needs --dry-run: the output is the program's"
        )
    new = launch.variables(
        os.environ,
        seed=args.seed,
        deterministic="warn" if args.warn_only else args.deterministic,
        file=args.config,
    )
    if args.capture is not None:
        if args.dry_run:
            launch.check_name(args.name)
            folder = os.path.join(args.capture, args.name or "")
        else:
            folder = str(launch.run_folder(args.capture, args.name))
        new[launch.RUN_DIR] = os.path.abspath(folder)
    if args.dry_run:
        _show(new, command, args.json)
        return exit_codes.OK
    os.environ.update(new)
    if args.capture is not None:
        _capture(folder)
    if not args.quiet:
        shown = " ".join(f"{name}={value}" for name, value in new.items())
        output.say(f"fastseed run: {shown or 'everything was set'}", error=True)
    try:
        return launch.become(command, os.environ)
    except OSError as error:
        code = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_STARTED
        raise exit_codes.Exit(code, f"fastseed run: {command[0]!r}: {error.strerror}") from None


def _show(new: dict[str, str], command: list[str], as_json: bool) -> None:
    if as_json:
        output.emit({"variables": new, "command": command})
        return
    for name, value in new.items():
        output.say(f"{name}={value}")


def _capture(folder: str) -> None:
    try:
        from ..tools import environment
    except ImportError as error:
        raise exit_codes.Exit(
            exit_codes.UNAVAILABLE, f"fastseed run: --capture cannot be done here: {error}"
        ) from None
    environment.capture(folder)
