"""The command `fastseed`: one subcommand a module, nothing but arguments and printing.

A subcommand ``name`` is a module ``name.py`` here with two functions: ``add(subparsers)`` adds its
parser under that name, ``run(args)`` does the work and returns one of the codes of ``exits.py``. It
imports what it needs of the library inside ``run``, so that help stays quick, and lets the
library's errors pass: :func:`main` prints them and ends with the right code.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any, NoReturn

from . import exit_codes, output

COMMANDS: tuple[str, ...] = (
    "run",
    "verify",
    "lint",
    "bisect",
    "env",
    "doctor",
    "completion",
)
"""The subcommands, in the order in which help shows them."""


class Parser(argparse.ArgumentParser):
    """argparse's, but a wrong argument raises, so that ``--json`` holds for errors too."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # No abbreviations: a new option must not change what an old command line means.
        super().__init__(*args, **{"allow_abbrev": False, **kwargs})

    def error(self, message: str) -> NoReturn:
        raise exit_codes.Exit(
            exit_codes.USAGE, f"{self.format_usage()}{self.prog}: error: {message}"
        )


def parser(commands: Sequence[str] = COMMANDS) -> argparse.ArgumentParser:
    """The parser of `fastseed` with these subcommands; only their modules are imported."""
    from ..seeder.api import __version__

    top = Parser(
        prog="fastseed",
        description="Make a run deterministic, prove that it is, and find out why when it is not.",
        epilog=exit_codes.describe(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"fastseed {__version__}")
    top.set_defaults(whole=parser)  # for the subcommand that completes all of them
    subparsers = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name in commands:
        importlib.import_module(f".{name}", __name__).add(subparsers)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run `fastseed` with ``argv`` (of this process by default); returns the exit code.

    Never raises and never exits: errors are printed, a bug's with its traceback. With ``--json``
    an error is a JSON document as well: ``{"error": {"exit_code": …, "message": …}}``.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        code = _run(arguments)
        sys.stdout.flush()  # here, where a closed pipe is still ours to handle
        return code
    except SystemExit as done:  # argparse, after --help and --version
        return done.code if isinstance(done.code, int) else exit_codes.OK
    except (Exception, KeyboardInterrupt) as error:
        return _report(error, arguments)


def _run(arguments: list[str]) -> int:
    # One module is enough where the first argument names it.
    chosen = [name for name in COMMANDS if arguments[:1] == [name]]
    args = parser(chosen or COMMANDS).parse_args(arguments)
    code: Any = importlib.import_module(f".{args.command}", __name__).run(args)
    return int(code)


def _report(error: BaseException, arguments: list[str]) -> int:
    """Print an error that ended the command; the exit code."""
    code = exit_codes.code_of(error)
    if code == exit_codes.PIPE:
        # Or the interpreter complains about the closed pipe once more when it flushes at its end.
        with contextlib.suppress(Exception):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return code
    if code == exit_codes.INTERRUPTED:
        output.say("fastseed: interrupted", error=True)
        return code
    if code == exit_codes.BUG:
        traceback.print_exception(error)
    message = _message(error)
    output.say(message if isinstance(error, exit_codes.Exit) else f"error: {message}", error=True)
    ours = arguments[: arguments.index("--")] if "--" in arguments else arguments
    if "--json" in ours:
        output.emit({"error": {"exit_code": code, "message": message}})
    return code


def _message(error: BaseException) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"fastseed: {error.filename!r}: {error.strerror}"
    return str(error) or type(error).__name__
