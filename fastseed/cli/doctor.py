"""`fastseed doctor`: what is seeded, what is not, and what came of it."""

from __future__ import annotations

import argparse
import contextlib
import os
import runpy
import sys
import traceback
from dataclasses import dataclass, field
from typing import Any

from . import exit_codes, output

_ABOUT = """\
Without a script: what this installation is. With one: run it in this process as __main__, watch its
random numbers, and say at its end what is seeded, what is not, which generators nobody registered
were drawn from, and who seeded again. The script draws what it draws without it. Where it leaves a
process group of several ranks (under torchrun, say), they are asked whether they agree.
"""

_SAYS = {
    "unregistered": "drawn from, not registered",
    "unseeded": "drawn from, made without a seed",
    "early": "drawn from before it was seeded",
    "seeded": "seeded by a call that is not fastseed's",
    "repeated": "used again",
}


def add(subparsers: Any) -> None:
    """Add this subcommand."""
    parser = subparsers.add_parser(
        "doctor",
        help="say what is seeded and what is not, of a script at its end",
        description=_ABOUT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    output.add_json(parser)
    parser.add_argument("script", nargs="?", metavar="SCRIPT", help="a Python file")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="its arguments")


@dataclass
class _Seen:
    """What a script came to."""

    failed: str | None = None
    findings: list[Any] = field(default_factory=list)
    names: dict[str, Any] = field(default_factory=dict)  # its globals, which hold generators


def run(args: argparse.Namespace) -> int:
    """Examine, and print."""
    from ..debug import checkup

    seen = _run_script(args.script, args.arguments, args.json) if args.script else _Seen()
    rows = checkup.examine(ranks=None if args.script else False)
    if not args.script:
        rows = [row for row in rows if row.topic in ("build", "process")]
    wrong = any(row.status == checkup.WRONG for row in rows) or seen.findings or seen.failed
    if args.json:
        output.emit(
            {
                "rows": [row._asdict() for row in rows],
                "findings": [finding._asdict() for finding in seen.findings],
                "script": seen.failed,
            }
        )
    else:
        output.table(("topic", "what", "", "says"), [tuple(row) for row in rows])
        if seen.findings:
            said = [(_SAYS.get(f.kind, f.kind), f.what, f.where) for f in seen.findings]
            output.table(("finding", "what", "where"), said)
        if seen.failed:
            output.say(f"the script ended with {seen.failed}", error=True)
    return exit_codes.FOUND if wrong else exit_codes.OK


def _run_script(script: str, arguments: list[str], quiet: bool) -> _Seen:
    """Run it as `python script` would, under an audit."""
    from ..debug import rng_audit

    if not os.path.isfile(script):
        raise exit_codes.Exit(
            exit_codes.USAGE, f"fastseed doctor: SCRIPT must be a file, got {script!r}"
        )
    seen = _Seen()
    before = sys.argv, sys.path[:]
    sys.argv = [script, *arguments]
    sys.path.insert(0, os.path.dirname(os.path.abspath(script)))
    elsewhere = contextlib.redirect_stdout(sys.stderr) if quiet else contextlib.nullcontext()
    try:
        with rng_audit.audit(fresh=True) as watched, elsewhere:
            try:
                seen.names = runpy.run_path(script, run_name="__main__")
            except SystemExit as end:
                if end.code not in (None, 0):
                    seen.failed = f"exit code {end.code}"
            except Exception as error:
                traceback.print_exception(error)
                seen.failed = f"{type(error).__name__}: {error}"
    finally:
        sys.argv, sys.path[:] = before
    seen.findings = watched.findings
    return seen
