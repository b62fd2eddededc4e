"""`fastseed run`: start a program with the variables that must be set before Python starts."""

from __future__ import annotations

import argparse
import os
import shlex

from . import exit_codes, output

ABOUT = """\
Set PYTHONHASHSEED and the other variables that are read once at the start, and become the program:
its output, its signals and its exit code are its own. No shell is involved. In a Python program
`fastseed.init()`, without a number, takes the seed and --deterministic from here. A script (*.py)
or `-m` with a module is started by this Python. With --out and no program, only the environment is
recorded.
"""


def add(parser: argparse.ArgumentParser) -> None:
    parser.usage = "fastseed run [--seed N] [--deterministic[=warn]] [--out DIR] PROGRAM ..."
    parser.epilog = exit_codes.describe()
    parser.add_argument("--seed", type=int, metavar="N", help="the master seed, 0 to 2**64 - 1")
    output.add_deterministic(parser)
    text = "the folder of this run: the environment goes to DIR/environment, Watch writes to DIR"
    parser.add_argument("--out", metavar="DIR", help=text)
    text = "with --out: also uncommitted changes as text, WITH ANY SECRET that is in them"
    parser.add_argument("--patches", action="store_true", help=text)
    output.add_program(parser)


def run(args: argparse.Namespace) -> int:
    from .._utils import environ
    from ..determinism import launch

    only_record = args.out is not None and not output.program_of(args, needed=False)
    command = [] if only_record else output.command_of(args)
    if args.json and not only_record:
        raise exit_codes.Exit("fastseed run: --json is not possible: the output is the program's")
    new = launch.variables(os.environ, seed=args.seed, deterministic=args.deterministic)
    if args.out is not None:
        new[environ.RUN_DIR] = os.path.abspath(args.out)
    os.environ.update(new)
    if args.out is not None:
        from ..tools import environment

        folder = os.path.join(args.out, "environment")
        found = environment.capture(folder, patches=args.patches)
        if only_record:
            output.emit({"environment": folder, **found["about"]})
            output.say(f"recorded the environment in {folder}")
            return exit_codes.OK
    shown = " ".join(f"{name}={value}" for name, value in new.items())
    output.say(f"fastseed run: {shown or 'all variables were set already'}", error=True)
    try:
        return launch.become(command, os.environ)
    except OSError as error:
        problem = f"{shlex.join(command[:1])}: {error.strerror}"
        is_missing = isinstance(error, FileNotFoundError)
        code = exit_codes.NOT_FOUND if is_missing else exit_codes.NOT_STARTED
        raise exit_codes.Exit(f"fastseed run: {problem}", code) from None
