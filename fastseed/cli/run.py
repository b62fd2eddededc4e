"""`fastseed run`: start a program with the variables that must be set before Python starts."""

from __future__ import annotations

import argparse
import os
import shlex

from . import exit_codes, output

NOT_STARTED, NOT_FOUND = 126, 127  # what `env` and shells end with

_ABOUT = """\
Set PYTHONHASHSEED and the other variables that are read once at the start, and become the program:
its output, its signals and its exit code are its own. No shell is involved. In a Python program
`fastseed.init()` takes the seed and --deterministic from here.
"""
_CODES = f"""\
exit codes: the program's own (a shell shows 128 + n after signal n), whatever they mean, and before
it starts
  {exit_codes.USAGE:>3}  wrong usage, a folder that is in use
  {NOT_STARTED:>3}  the program cannot be run
  {NOT_FOUND:>3}  there is no such program
"""


def add(parser: argparse.ArgumentParser) -> None:
    """Describe this subcommand and add its arguments."""
    parser.usage = "fastseed run [--seed N] [--deterministic] [--capture DIR] -- PROGRAM …"
    parser.description, parser.epilog = _ABOUT, _CODES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--seed", type=int, metavar="N", help="the master seed, 0 to 2**64 - 1")
    parser.add_argument(
        "--deterministic", action="store_true", help="deterministic algorithms, or errors"
    )
    parser.add_argument(
        "--warn-only", action="store_true", help="deterministic algorithms, or warnings"
    )
    parser.add_argument(
        "--capture", metavar="DIR", help="write the environment to this folder (fastseed env)"
    )
    parser.add_argument("--name", help="the name of this run: capture to DIR/NAME")
    parser.add_argument("--quiet", action="store_true", help="do not print the variables")
    parser.add_argument("--dry-run", action="store_true", help="print the variables, start nothing")
    output.add_json(parser)
    output.add_program(parser)


def run(args: argparse.Namespace) -> int:
    """Set the variables, capture the environment, and become the program."""
    from .._utils import environ
    from ..determinism import launch

    command = output.program(args)
    if args.name is not None and args.capture is None:
        raise exit_codes.Exit("fastseed run: --name needs --capture DIR")
    if args.json and not args.dry_run:
        problem = "--json needs --dry-run, since the output is the program's"
        raise exit_codes.Exit(f"fastseed run: {problem}")
    how = "warn" if args.warn_only else args.deterministic
    new = launch.variables(os.environ, seed=args.seed, deterministic=how)
    if args.capture is not None:
        new[environ.RUN_DIR] = os.path.abspath(launch.run_folder(args.capture, args.name))
    if args.dry_run:
        if args.json:
            output.emit({"variables": new, "command": command})
        else:
            for name, value in new.items():
                output.say(f"{name}={value}")
        return exit_codes.OK
    os.environ.update(new)
    if args.capture is not None:
        from ..tools import environment

        environment.capture(new[environ.RUN_DIR])
    if not args.quiet:
        shown = " ".join(f"{name}={value}" for name, value in new.items())
        output.say(f"fastseed run: {shown or 'all variables were set already'}", error=True)
    try:
        return launch.become(command, os.environ)
    except OSError as error:
        problem = f"{command[0]!r}: {error.strerror}"
        code = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_STARTED
        if command[0].endswith(".py") and os.path.isfile(command[0]):
            code = NOT_STARTED
            problem = f"{command[0]!r} is not executable; write -- python {shlex.join(command)}"
        raise exit_codes.Exit(f"fastseed run: {problem}", code) from None
