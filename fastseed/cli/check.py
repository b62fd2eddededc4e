"""`fastseed check`: what a program seeds and what it does not."""

from __future__ import annotations

import argparse
import contextlib
import os
import runpy
import sys
import traceback

from . import exit_codes, output

ABOUT = """\
Run a program in this process as __main__ and print at its end what is seeded, what is not, which
unregistered generators were used, and which calls seeded a default generator. The program draws the
same numbers as without fastseed check. If it leaves a process group of several ranks, the ranks
also check that they agree.
"""


def add(parser: argparse.ArgumentParser) -> None:
    """Describe this subcommand and add its arguments."""
    parser.usage = "fastseed check [--json] [--all] [SCRIPT ... | -m MODULE ...]"
    output.add_program(parser)


def run(args: argparse.Namespace) -> int:
    """Run the program, examine this process, and print."""
    words = output.program_of(args)
    if not args.module and not os.path.isfile(words[0]):
        raise exit_codes.Exit(f"fastseed check: PROGRAM must be a file, got {words[0]!r}")
    from ..debug import checkup, generator_use

    names: dict[str, object] = {}  # kept until the examination, since they hold generators
    with generator_use.watched_use() as used:
        failed = _run(words, args.module, names)
    rows = [*checkup.examine(module=None, ranks=None), *used]
    wrong = any(row.status == generator_use.WRONG for row in rows)
    output.emit({"rows": rows, "program": failed})
    output.table(("topic", "item", "", "detail"), rows, limit=args.limit)
    if failed:
        output.say(f"the program ended with: {failed}", error=True)
    if failed:  # what it would have done afterwards is unknown
        return exit_codes.UNAVAILABLE
    return exit_codes.FOUND if wrong else exit_codes.OK


def _run(words: list[str], is_module: bool, names: dict[str, object]) -> str | None:
    """Run a program as `python` does; return how it failed. Its globals are put into ``names``."""
    before = sys.argv, sys.path[:]
    sys.argv = list(words)
    folder = "" if is_module else os.path.dirname(os.path.abspath(words[0]))
    sys.path.insert(0, folder or os.getcwd())
    try:
        with contextlib.redirect_stdout(sys.stderr if output.json_only else sys.stdout):
            if is_module:
                names |= runpy.run_module(words[0], run_name="__main__", alter_sys=True)
            else:
                names |= runpy.run_path(words[0], run_name="__main__")
    except SystemExit as end:
        if end.code in (None, 0):
            return None
        return f"exit code {end.code}" if isinstance(end.code, int) else str(end.code)
    except Exception as error:
        traceback.print_exception(error)
        return f"{type(error).__name__}: {error}"
    finally:
        sys.argv, sys.path[:] = before
    return None
