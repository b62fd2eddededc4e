"""The subcommand ``fastseed doctor``."""

from __future__ import annotations

import argparse
import contextlib
import os
import runpy
import sys
import traceback
from typing import TYPE_CHECKING

from . import exit_codes, output

if TYPE_CHECKING:
    from ..debug.rng_audit import Finding

_ABOUT = """\
Without SCRIPT, print build and process information. With it, run the script in this process as
__main__ and print at its end what is seeded, what is not, which unregistered generators were used,
and which calls seeded a default generator. The script draws the same numbers as without fastseed
doctor. If it leaves a process group of several ranks (under torchrun, for example), the ranks also
check that they agree.
"""

_KINDS = {
    "unregistered": "used, but not registered",
    "unseeded": "used, but made without a seed",
    "seeded": "seeded by a call outside fastseed",
    "repeated": "used again",
    "unmoved": "all in the scope of init",
}


def add(parser: argparse.ArgumentParser) -> None:
    """Describe this subcommand and add its arguments."""
    parser.description = _ABOUT
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    output.add_json(parser)
    parser.add_argument("script", nargs="?", metavar="SCRIPT", help="a Python file")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="its arguments")


def run(args: argparse.Namespace) -> int:
    """Run the script, examine this process, and print."""
    from ..debug import checkup

    names: dict[str, object] = {}  # kept until the checkup, since they hold generators
    findings: list[Finding] = []
    failed = None
    if args.script:
        findings, failed = _run_script(args.script, args.arguments, args.json, names)
    rows = checkup.doctor(ranks=None if args.script else False)
    if not args.script:
        rows = [row for row in rows if row.topic in ("build", "process")]
    wrong = any(row.status == checkup.WRONG for row in rows)
    if args.json:
        output.emit({"rows": rows, "findings": findings, "script": failed})
    else:
        output.table(("topic", "item", "", "detail"), rows)
        if findings:
            found = [(_KINDS.get(f.kind, f.kind), f.what, f.where) for f in findings]
            output.table(("finding", "what", "where"), found)
        if failed:
            output.say(f"the script ended with {failed}", error=True)
    return exit_codes.FOUND if wrong or findings or failed else exit_codes.OK


def _run_script(
    script: str, arguments: list[str], quiet: bool, names: dict[str, object]
) -> tuple[list[Finding], str | None]:
    """Run a script as `python script` does; return the findings of an audit, and how it failed.

    Its globals are put into ``names``.
    """
    from ..debug import rng_audit

    if not os.path.isfile(script):
        raise exit_codes.Exit(f"fastseed doctor: SCRIPT must be a file, got {script!r}")
    failed = None
    before = sys.argv, sys.path[:]
    sys.argv = [script, *arguments]
    sys.path.insert(0, os.path.dirname(os.path.abspath(script)))
    elsewhere = contextlib.redirect_stdout(sys.stderr) if quiet else contextlib.nullcontext()
    try:
        with rng_audit.audit() as report, elsewhere:
            try:
                names |= runpy.run_path(script, run_name="__main__")
            except SystemExit as end:
                if end.code not in (None, 0):
                    failed = f"exit code {end.code}"
            except Exception as error:
                traceback.print_exception(error)
                failed = f"{type(error).__name__}: {error}"
    finally:
        sys.argv, sys.path[:] = before
    return report.findings, failed
