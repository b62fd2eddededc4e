"""The command `fastseed`: a subcommand is a module with ``ABOUT``, ``add`` and ``run``.

They import the library inside ``run``, so that help takes no time.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import re
import sys
from collections.abc import Collection, Sequence
from typing import Any, NoReturn

from . import exit_codes, output

COMMANDS = {
    "run": "start a program with seed and determinism variables set",
    "check": "report what a program seeds and what it does not",
    "verify": "run a program several times, kill it, seed it anew, and compare",
    "diff": "find the first difference of two recordings, checkpoints, environments or logs",
    "show": "show a recording, a checkpoint, an environment, or the samples of a job",
}
"""The subcommands with their help, in the order in which it shows them."""


class Parser(argparse.ArgumentParser):
    """An argument parser that raises ``exit_codes.Exit``, so that errors can be JSON."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # No abbreviations: a new option must not change the meaning of an old command line.
        super().__init__(*args, **{"allow_abbrev": False, **kwargs})
        self.formatter_class = argparse.RawDescriptionHelpFormatter

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse unknown options here: argparse would show the usage of `fastseed` alone."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown

    def error(self, message: str) -> NoReturn:
        raise exit_codes.Exit(f"{self.format_usage()}{self.prog}: {message}")


def parser(commands: Collection[str] = tuple(COMMANDS)) -> argparse.ArgumentParser:
    """Return the parser of `fastseed`; only ``commands`` are imported and have arguments."""
    from .._utils.version import __version__

    top = Parser(
        prog="fastseed",
        description="Make a run reproducible, verify that it is, and find out why it is not.",
        epilog=exit_codes.describe(),
    )
    top.add_argument("--version", action="version", version=f"fastseed {__version__}")
    output.add_common(top)
    subparsers = top.add_subparsers(dest="command", metavar="COMMAND")
    for name, help in COMMANDS.items():
        one = subparsers.add_parser(name, help=help)
        if name in commands:
            output.add_common(one)
            module = importlib.import_module(f".{name}", __name__)
            one.description = module.ABOUT
            module.add(one)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run `fastseed`, print errors, and return the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    output.json_only = "--json" in arguments[: (*arguments, "--").index("--")]
    try:
        args = parser(arguments[:1]).parse_args(arguments)
        output.json_only = args.json  # the program's own --json does not count
        if args.command is None:
            code = _summary()
        else:
            code = int(importlib.import_module(f".{args.command}", __name__).run(args))
        sys.stdout.flush()  # here, where a broken pipe can be handled
        return code
    except SystemExit as done:  # argparse, after --help and --version
        return done.code if isinstance(done.code, int) else exit_codes.OK
    except (Exception, KeyboardInterrupt) as error:
        return _report(error, " ".join(["fastseed", *COMMANDS.keys() & arguments[:1]]))
    finally:
        output.json_only = False


def _summary() -> int:
    import torch

    from .._backend.build import build_info
    from .._utils import environ

    info = build_info()
    variables = {n: v for n, v in sorted(os.environ.items()) if n.startswith(environ.PREFIX)}
    devices = ["cpu", *map(torch.cuda.get_device_name, range(torch.cuda.device_count()))]
    output.emit({**info, "devices": devices, "variables": variables})
    output.say(f"fastseed {info['version']}, torch {info['torch']}")
    simd = f"{info['simd']}; " if info["simd"] else ""
    output.say(f"backend    {info['backend']} ({simd}native part: {info['native']})")
    output.say(f"CUDA part  {info['cuda']}")
    output.say(f"devices    {', '.join(devices)}")
    for name, value in variables.items():
        output.say(f"{name}={value}")
    for name, text in COMMANDS.items():
        output.say(f"fastseed {name:<8} {text}")
    return exit_codes.OK


def _report(error: BaseException, command: str) -> int:
    code = exit_codes.code_of(error)
    if code == exit_codes.PIPE:
        # The interpreter would report the broken pipe again when it flushes at its end.
        with contextlib.suppress(Exception):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return code
    if isinstance(error, KeyboardInterrupt):
        output.say("fastseed: interrupted", error=True)
        return code
    if code == exit_codes.BUG:
        import traceback

        traceback.print_exception(error)
    message = str(error) or type(error).__name__
    if isinstance(error, OSError) and error.errno is not None:
        name = "" if error.filename is None else f"{error.filename!r}: "
        message = f"{name}{error.strerror}"
    if not isinstance(error, exit_codes.Exit):  # a function of the library is not what was called
        message = f"{command}: {re.sub(r'^fastseed[. a-zA-Z_]*: ', '', message)}"
    output.say(message, error=True)
    output.emit({"error": {"exit_code": code, "message": message}})
    return code
