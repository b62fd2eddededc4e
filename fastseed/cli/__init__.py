"""The command `fastseed`: one subcommand a module, with its arguments and its printing.

A subcommand ``name`` is a module ``name.py`` with two functions: ``add(parser)`` describes it and
adds its arguments, ``run(args)`` does the work and returns one of the codes of ``exit_codes.py``.
Modules import the library inside ``run``, so that help takes no time. ``main`` prints the errors of
the library.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import importlib
import os
import sys
from collections.abc import Collection, Sequence
from typing import Any, NoReturn

from . import exit_codes, output

COMMANDS = {
    "run": "run a program with seed and determinism variables set",
    "verify": "verify that a training command repeats and resumes, to the last bit",
    "bisect": "find the first difference of two recorded runs",
    "checkpoint": "show and compare the random number states in checkpoints of any framework",
    "data": "say which step has which sample, and where two jobs have other samples",
    "env": "record the environment of a run, and compare two",
    "doctor": "report what a script seeds and what it does not",
}
"""The subcommands with their help, in the order in which it shows them."""


class Parser(argparse.ArgumentParser):
    """An argument parser that raises ``exit_codes.Exit``, so that errors can be JSON.

    A subcommand refuses unknown options itself, with its own usage and the option that is meant.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # No abbreviations: a new option must not change the meaning of an old command line.
        super().__init__(*args, **{"allow_abbrev": False, **kwargs})

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            known = [option for action in self._actions for option in action.option_strings]
            meant = difflib.get_close_matches(unknown[0].partition("=")[0], known, 1)
            hint = f"; did you mean {meant[0]}?" if meant else ""
            self.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
        return found, unknown

    def error(self, message: str) -> NoReturn:
        usage = f"{self.format_usage()}{self.prog}: error: {message}"
        raise exit_codes.Exit(usage)


class _Version(argparse.Action):
    """Print the version; it is looked up when it is requested."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        from .._utils.version import __version__

        print(f"fastseed {__version__}")
        parser.exit()


def parser(commands: Collection[str] = tuple(COMMANDS)) -> argparse.ArgumentParser:
    """Return the parser of `fastseed`; imports the modules of ``commands`` only.

    The other subcommands are there for the help, without their arguments.
    """
    top = Parser(
        prog="fastseed",
        description="Make a run reproducible, verify that it is, and find out why it is not.",
        epilog=exit_codes.describe(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action=_Version, nargs=0, help="print the version")
    subparsers = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, help in COMMANDS.items():
        one = subparsers.add_parser(name, help=help)
        if name in commands:
            importlib.import_module(f".{name}", __name__).add(one)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run `fastseed` and return its exit code.

    Prints errors, those of a bug with their traceback; with ``--json`` also as a JSON document,
    ``{"error": {"exit_code": …, "message": …}}``. ``argv`` are by default those of this process.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        args = parser(arguments[:1]).parse_args(arguments)
        code = int(importlib.import_module(f".{args.command}", __name__).run(args))
        sys.stdout.flush()  # here, where a broken pipe can be handled
        return code
    except SystemExit as done:  # argparse, after --help and --version
        return done.code if isinstance(done.code, int) else exit_codes.OK
    except (Exception, KeyboardInterrupt) as error:
        return _report(error, arguments)


def _report(error: BaseException, arguments: list[str]) -> int:
    """Print an error that ended the command, and return the exit code."""
    code = exit_codes.code_of(error)
    if code == exit_codes.PIPE:
        # The interpreter would report the broken pipe again when it flushes at its end.
        with contextlib.suppress(Exception):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return code
    if code == exit_codes.INTERRUPTED:
        output.say("fastseed: interrupted", error=True)
        return code
    if code == exit_codes.BUG:
        import traceback

        traceback.print_exception(error)
    message = str(error) or type(error).__name__
    if isinstance(error, MemoryError):
        message = "fastseed: there is too little memory"
    if isinstance(error, OSError) and error.filename is not None:
        message = f"fastseed: {error.filename!r}: {error.strerror}"
    output.say(message if isinstance(error, exit_codes.Exit) else f"error: {message}", error=True)
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    if "--json" in options:
        output.emit({"error": {"exit_code": code, "message": message}})
    return code
