"""`fastseed env capture|show|diff`: the environment of a run."""

from __future__ import annotations

import argparse
import json

from .._utils import StateDict
from . import exit_codes, output

_LEVELS = ("critical", "high", "medium", "low")
_WIDEST = 48  # characters of a value in a table


def add(parser: argparse.ArgumentParser) -> None:
    """Describe this subcommand and add its three actions."""
    parser.description = (
        "Record the software and hardware environment of a run, show it, and compare two of them."
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True)

    description = (
        "Write packages, modules, hardware, driver, variables, switches and git state to a folder. "
        "Of variables only settings are stored, all other values are redacted."
    )
    one = actions.add_parser(
        "capture", help="write this environment to a folder", description=description
    )
    one.set_defaults(action=_capture)
    one.add_argument("dir", metavar="DIR", help="a new or empty folder")
    text = "also uncommitted changes as text, WITH ANY SECRET that is in them"
    one.add_argument("--patches", action="store_true", help=text)
    output.add_json(one)

    description = "Print a capture, or one section of it, as JSON."
    one = actions.add_parser("show", help="print a capture", description=description)
    one.set_defaults(action=_show)
    one.add_argument("dir", metavar="DIR", help="the folder of a capture")
    one.add_argument("--section", metavar="NAME", help="only this section")
    one.add_argument("--patch", metavar="NAME", help="only this patch, for git apply")

    text = "print the differences of two captures, most severe first"
    description = f"{text.capitalize()}. Ends with 0 without differences and with 1 otherwise."
    one = actions.add_parser("diff", help=text, description=description)
    one.set_defaults(action=_diff)
    one.add_argument("a", metavar="A", help="the folder of a capture")
    one.add_argument("b", metavar="B", help="the folder of another")
    output.add_all(one)
    text = "ignore anything less severe, also in the exit code (low: nothing)"
    one.add_argument("--level", choices=_LEVELS, default="low", help=text)
    output.add_json(one)


def run(args: argparse.Namespace) -> int:
    """Run one of the actions."""
    code: int = args.action(args)
    return code


def _capture(args: argparse.Namespace) -> int:
    from ..tools import environment

    header, sections, _ = environment.capture(args.dir, patches=args.patches)
    if args.json:
        output.emit({"directory": args.dir, **header})
        return exit_codes.OK
    output.say(f"{args.dir}: {sum(map(bool, sections.values()))} sections in {header['seconds']} s")
    for problem in header["problems"]:
        output.say(f"  problem: {problem}")
    return exit_codes.OK


def _show(args: argparse.Namespace) -> int:
    from ..tools import environment

    header, sections, patches = environment.load(args.dir)
    what, name = ("section", args.section) if args.patch is None else ("patch", args.patch)
    held: StateDict = {**(sections if args.patch is None else patches)}
    if name is not None and name not in held:
        rule = f"--{what} must be one of {', '.join(held)}"
        raise exit_codes.Exit(f"fastseed env show: {rule}, got {name!r}")
    if what == "patch":
        output.copy(patches[name])
    elif name is not None:
        output.emit({name: held[name]})
    else:
        output.emit({"captured": header, "sections": sections, "patches": patches})
    return exit_codes.OK


def _diff(args: argparse.Namespace) -> int:
    from ..tools import environment

    levels = _LEVELS[: _LEVELS.index(args.level) + 1]
    found = [one for one in environment.diff(args.a, args.b) if one.level in levels]
    counts = {level: sum(one.level == level for one in found) for level in _LEVELS}
    if args.json:
        document: StateDict = {"a": args.a, "b": args.b, "equal": not found}
        output.emit({**document, "summary": counts, "differences": found})
    else:
        rows = [(d.level, d.path, *_values(d.before, d.after), d.why) for d in found]
        if rows:
            columns = ("level", "what", "A", "B", "why it matters")
            output.table(columns, rows, most=args.most)
        levels_found = [f"{count} {level}" for level, count in counts.items() if count]
        output.say(", ".join(levels_found) or "no difference")
    return exit_codes.FOUND if found else exit_codes.OK


def _values(a: object, b: object) -> tuple[str, str]:
    """Return both values; of two lists of text, the elements that only one has."""
    if isinstance(a, list) and isinstance(b, list):
        a, b = [one for one in a if one not in b] or a, [one for one in b if one not in a] or b
    return _short(a), _short(b)


def _short(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        value = " ".join(value)
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 1]}…"
