"""`fastseed env capture|show|diff`: what a run stood on."""

from __future__ import annotations

import argparse
import json
from typing import Any

from . import exit_codes, output

_ROWS = 40  # differences that the table shows without --all
_STYLES = {"critical": "bold red", "high": "yellow", "medium": "", "low": "dim"}


def add(subparsers: Any) -> None:
    """Add the parser of `env` and of its three actions."""
    top = subparsers.add_parser(
        "env",
        help="capture, show and compare what a run stood on",
        description="Capture what a run stands on, show it, and find what differs between two.",
    )
    actions = top.add_subparsers(dest="action", metavar="ACTION", required=True)

    one = actions.add_parser(
        "capture",
        help="write a capture of this environment to a folder",
        description="Write packages, libraries, drivers, limits, variables, switches and git state "
        "to a folder, without secrets. Environment variables are kept by an allow-list.",
    )
    output.add_folder(one, "dir", "a new or empty folder")
    one.add_argument("--all-env", action="store_true", help="all variables, redacted")
    one.add_argument("--clocks", action="store_true", help="also the GPUs' clocks and temperatures")
    one.add_argument("--no-patches", action="store_true", help="do not keep uncommitted diffs")
    one.add_argument("--overwrite", action="store_true", help="replace a capture that is there")
    one.add_argument(
        "--timeout",
        type=float,
        default=10.0,
        metavar="SECONDS",
        help="longest time for each external program (10)",
    )
    output.add_json(one)

    one = actions.add_parser(
        "show", help="print a capture", description="Print a capture, or one section of it."
    )
    output.add_folder(one, "dir", "a capture's folder")
    one.add_argument("--section", metavar="NAME", help="this section alone")
    output.add_json(one)

    one = actions.add_parser(
        "diff",
        help="what differs between two captures, what matters most first",
        description="Print what differs from A to B, what matters most first. "
        "Ends with 0 if nothing does and with 1 if something does.",
    )
    output.add_folder(one, "a", "a capture's folder")
    output.add_folder(one, "b", "another's")
    one.add_argument("--all", action="store_true", help=f"all rows, not the first {_ROWS}")
    one.add_argument(
        "--level",
        choices=tuple(_STYLES),
        default="low",
        help="nothing below this level, for the exit code too (low: everything)",
    )
    output.add_json(one)


def run(args: argparse.Namespace) -> int:
    """Do what `env` was asked to; the exit code."""
    code: int = {"capture": _capture, "show": _show, "diff": _diff}[args.action](args)
    return code


def _capture(args: argparse.Namespace) -> int:
    from ..tools import environment

    capture = environment.capture(
        args.dir,
        all_env=args.all_env,
        clocks=args.clocks,
        patches=not args.no_patches,
        overwrite=args.overwrite,
        timeout=args.timeout,
    )
    if args.json:
        output.emit({"directory": args.dir, **capture.header})
        return exit_codes.OK
    sections = sum(bool(section) for section in capture.sections.values())
    output.say(f"{args.dir}: {sections} sections in {capture.header['seconds']:.2f} s")
    for problem in capture.header["problems"]:
        output.say(f"  not captured: {problem}")
    return exit_codes.OK


def _show(args: argparse.Namespace) -> int:
    from ..tools import environment

    capture = environment.load(args.dir)
    sections = capture.sections
    if args.section is not None:
        if args.section not in sections:
            raise exit_codes.Exit(
                exit_codes.USAGE,
                f"fastseed env show: --section must be one of {', '.join(sections)}, "
                f"got {args.section!r}",
            )
        sections = {args.section: sections[args.section]}
    if args.json:
        document = {"captured": capture.header, "sections": sections, "patches": capture.patches}
        output.emit(sections if args.section is not None else document)
        return exit_codes.OK
    if args.section is None:
        output.say(f"captured {capture.header.get('at')} by {capture.header.get('by')}")
        for problem in capture.header.get("problems", ()):
            output.say(f"not captured: {problem}")
    for name, section in sections.items():
        if section:
            output.say()
            output.table(("field", "value"), list(_fields(section)), title=name)
    return exit_codes.OK


def _fields(section: dict[str, Any]) -> list[tuple[str, str]]:
    """A section's fields, one level of objects opened."""
    rows = []
    for key, value in section.items():
        if isinstance(value, dict) and value:
            rows += [
                (_short(f"{key}/{inner}", 200), _short(one, 100)) for inner, one in value.items()
            ]
        else:
            rows.append((_short(key, 200), _short(value, 100)))
    return rows


def _diff(args: argparse.Namespace) -> int:
    from ..tools import environment

    levels = list(_STYLES)[: list(_STYLES).index(args.level) + 1]
    found = [one for one in environment.diff(args.a, args.b) if one.level in levels]
    if args.json:
        differences = [one._asdict() for one in found]
        output.emit(
            {
                "a": args.a,
                "b": args.b,
                "equal": not found,
                "summary": environment.summary(found),
                "differences": differences,
            }
        )
    elif not found:
        output.say("no difference")
    else:
        shown = found if args.all else found[:_ROWS]
        output.table(
            ("level", "what", "A", "B", "why it matters"),
            [(d.level, d.path, *_values(d), d.why) for d in shown],
            styles=[_STYLES[d.level] for d in shown],
        )
        if len(shown) < len(found):
            output.say(f"… and {len(found) - len(shown)} more (--all shows them)")
        counts = environment.summary(found)
        output.say(", ".join(f"{count} {level}" for level, count in counts.items() if count))
    return exit_codes.FOUND if found else exit_codes.OK


def _values(difference: Any) -> tuple[str, str]:
    """Both values; of two lists only what one has and the other has not."""
    a, b = difference.before, difference.after
    if isinstance(a, list) and isinstance(b, list):
        in_a, in_b = (set(map(json.dumps, one)) for one in (a, b))
        only_a = [one for one in a if json.dumps(one) not in in_b]
        only_b = [one for one in b if json.dumps(one) not in in_a]
        if only_a or only_b:
            a, b = only_a, only_b
    empty = {"added": ("-", _short(b)), "removed": (_short(a), "-")}
    return empty.get(difference.kind, (_short(a), _short(b)))


def _short(value: Any, limit: int = 48) -> str:
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        text = " ".join(value)
    elif isinstance(value, dict) and isinstance(value.get("version"), str):
        text = value["version"]
    else:
        text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
