"""The subcommand ``fastseed doctor``."""

from __future__ import annotations

import argparse
import contextlib
import os
import runpy
import sys
import traceback
from dataclasses import dataclass, field
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


@dataclass
class _Outcome:
    """How a script ended, and what the audit found."""

    failed: str | None = None
    findings: list[Finding] = field(default_factory=list)
    names: dict[str, object] = field(default_factory=dict)  # its globals, which hold generators


def run(args: argparse.Namespace) -> int:
    """Run the script, examine this process, and print."""
    from ..debug import checkup

    outcome = _run_script(args.script, args.arguments, args.json) if args.script else _Outcome()
    rows = checkup.doctor(ranks=None if args.script else False)
    if not args.script:
        rows = [row for row in rows if row.topic in ("build", "process")]
    wrong = any(row.status == checkup.WRONG for row in rows)
    if args.json:
        output.emit({"rows": rows, "findings": outcome.findings, "script": outcome.failed})
    else:
        output.table(("topic", "item", "", "detail"), [tuple(row) for row in rows])
        if outcome.findings:
            found = [(_KINDS.get(f.kind, f.kind), f.what, f.where) for f in outcome.findings]
            output.table(("finding", "what", "where"), found)
        if outcome.failed:
            output.say(f"the script ended with {outcome.failed}", error=True)
    return exit_codes.FOUND if wrong or outcome.findings or outcome.failed else exit_codes.OK


def _run_script(script: str, arguments: list[str], quiet: bool) -> _Outcome:
    """Run a script as `python script` does, under an audit."""
    from ..debug import rng_audit

    if not os.path.isfile(script):
        raise exit_codes.Exit(
            exit_codes.USAGE, f"fastseed doctor: SCRIPT must be a file, got {script!r}"
        )
    outcome = _Outcome()
    before = sys.argv, sys.path[:]
    sys.argv = [script, *arguments]
    sys.path.insert(0, os.path.dirname(os.path.abspath(script)))
    elsewhere = contextlib.redirect_stdout(sys.stderr) if quiet else contextlib.nullcontext()
    try:
        with rng_audit.audit() as report, elsewhere:
            try:
                outcome.names = runpy.run_path(script, run_name="__main__")
            except SystemExit as end:
                if end.code not in (None, 0):
                    outcome.failed = f"exit code {end.code}"
            except Exception as error:
                traceback.print_exception(error)
                outcome.failed = f"{type(error).__name__}: {error}"
    finally:
        sys.argv, sys.path[:] = before
    outcome.findings = report.findings
    return outcome
