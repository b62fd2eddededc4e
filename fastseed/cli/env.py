"""`fastseed env capture|show|diff`: the environment of a run."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from .._utils.types import StateDict
from . import exit_codes, output

if TYPE_CHECKING:
    from ..tools.environment import Difference

_STYLES = {"critical": "bold red", "high": "yellow", "medium": "", "low": "dim"}


def add(parser: argparse.ArgumentParser) -> None:
    """Describe this subcommand and add its three actions."""
    parser.description = (
        "Record the software and hardware environment of a run, show it, and compare two of them."
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    one = actions.add_parser(
        "capture",
        help="write this environment to a folder",
        description="Write packages, modules, hardware, driver, variables, switches and git state "
        "to a folder. Of variables only settings are stored, all other values are redacted.",
    )
    one.add_argument("dir", metavar="DIR", help="a new or empty folder")
    one.add_argument(
        "--patches",
        action="store_true",
        help="also uncommitted changes as text, WITH ANY SECRET that is in them",
    )
    output.add_json(one)

    one = actions.add_parser(
        "show",
        help="print a capture",
        description="Print a capture, or one section of it, as JSON.",
    )
    one.add_argument("dir", metavar="DIR", help="the folder of a capture")
    one.add_argument("--section", metavar="NAME", help="only this section")
    one.add_argument("--patch", metavar="NAME", help="only this patch, for git apply")

    one = actions.add_parser(
        "diff",
        help="print the differences of two captures, most severe first",
        description="Print the differences from A to B, most severe first. "
        "Ends with 0 without differences and with 1 otherwise.",
    )
    one.add_argument("a", metavar="A", help="the folder of a capture")
    one.add_argument("b", metavar="B", help="the folder of another")
    output.add_all(one)
    one.add_argument(
        "--level",
        choices=tuple(_STYLES),
        default="low",
        help="ignore anything less severe, also in the exit code (low: nothing)",
    )
    output.add_json(one)


def run(args: argparse.Namespace) -> int:
    """Run one of the actions."""
    return {"capture": _capture, "show": _show, "diff": _diff}[args.action](args)


def _capture(args: argparse.Namespace) -> int:
    from ..tools import environment

    capture = environment.capture(args.dir, patches=args.patches)
    if args.json:
        output.emit({"directory": args.dir, **capture.header})
        return exit_codes.OK
    sections = sum(bool(section) for section in capture.sections.values())
    output.say(f"{args.dir}: {sections} sections in {capture.header['seconds']:.2f} s")
    for problem in capture.header["problems"]:
        output.say(f"  problem: {problem}")
    return exit_codes.OK


def _show(args: argparse.Namespace) -> int:
    from ..tools import environment

    capture = environment.load(args.dir)
    what, name = ("section", args.section) if args.patch is None else ("patch", args.patch)
    found: StateDict = capture.sections if args.patch is None else capture.patches
    if name is not None and name not in found:
        message = f"fastseed env show: --{what} must be one of {', '.join(found)}, got {name!r}"
        raise exit_codes.Exit(exit_codes.USAGE, message)
    if args.patch is not None:
        output.copy(capture.patches[name])
    else:
        document = {"captured": capture.header, "sections": found, "patches": capture.patches}
        output.emit(document if name is None else {name: found[name]})
    return exit_codes.OK


def _diff(args: argparse.Namespace) -> int:
    from ..tools import environment

    a, b = environment.load(args.a), environment.load(args.b)
    levels = list(_STYLES)[: list(_STYLES).index(args.level) + 1]
    found = [one for one in environment.diff(a, b) if one.level in levels]
    counts = {level: sum(one.level == level for one in found) for level in _STYLES}
    if args.json:
        document = {"a": args.a, "b": args.b, "equal": not found}
        output.emit({**document, "summary": counts, "differences": found})
        return exit_codes.FOUND if found else exit_codes.OK
    if found:
        output.table(
            ("level", "what", "A", "B", "why it matters"),
            [(d.level, d.path, *_values(d), d.why) for d in found],
            styles=[_STYLES[d.level] for d in found],
            most=args.most,
        )
    levels_found = [f"{count} {level}" for level, count in counts.items() if count]
    output.say(", ".join(levels_found) or "no difference")
    return exit_codes.FOUND if found else exit_codes.OK


def _values(difference: Difference) -> tuple[str, str]:
    """Return both values; of two lists of text, the elements that only one has."""
    a, b = difference.before, difference.after
    if isinstance(a, list) and isinstance(b, list):
        a, b = [one for one in a if one not in b] or a, [one for one in b if one not in a] or b
    return ("-" if a is None else _short(a)), ("-" if b is None else _short(b))


def _short(value: object, limit: int = 48) -> str:
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        value = " ".join(value)
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
