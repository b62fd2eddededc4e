"""`fastseed lint`: find what keeps scripts from being reproducible, without running them."""

from __future__ import annotations

import argparse
from typing import Any

from . import exit_codes, output

_ABOUT = """\
Read Python files and notebooks, and say what keeps them from being reproducible. Nothing is
imported or run. A comment `# fastseed: ignore[FS101]` on a line keeps the linter quiet there,
`# fastseed: ignore-file[FS101]` in the whole file; without brackets they mean all rules.
"""


def add(subparsers: Any) -> None:
    """Add this subcommand."""
    parser = subparsers.add_parser(
        "lint",
        help="find what keeps scripts from being reproducible, without running them",
        description=_ABOUT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "paths", nargs="*", metavar="PATH", help="files and folders (the current folder)"
    )
    for name, what in (("--select", "check these rules alone"), ("--ignore", "leave these out")):
        parser.add_argument(
            name,
            action="append",
            metavar="IDS",
            help=f"{what}: ids, or the start of several, as FS101,FS4",
        )
    parser.add_argument(
        "--adopted",
        action="store_true",
        help="apply the rules for jobs that use fastseed to files that do not use it yet",
    )
    parser.add_argument("--rules", action="store_true", help="print the rules and end")
    parser.add_argument(
        "--explain", metavar="ID", help="explain a rule, with an example and its fix"
    )
    output.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Check, and print; 1 if anything was found."""
    from ..tools import lint

    if args.rules:
        return _rules(args)
    if args.explain:
        return _explain(args)
    select = None if args.select is None else _ids(args.select)
    paths = args.paths or ["."]
    report = lint.check(paths, select=select, ignore=_ids(args.ignore), adopted=args.adopted)
    if not report.files:
        raise exit_codes.Exit(
            exit_codes.USAGE, f"fastseed lint: no Python files in {', '.join(paths)}"
        )
    if args.json:
        output.emit(_document(report))
    else:
        _print(report)
    return exit_codes.FOUND if report.findings else exit_codes.OK


def _ids(values: list[str] | None) -> list[str]:
    return [id.strip() for value in values or () for id in value.split(",")]


def _rules(args: argparse.Namespace) -> int:
    from ..tools import lint

    if args.json:
        output.emit([rule._asdict() for rule in lint.RULES.values()])
    else:
        rows = [(rule.id, rule.name, rule.level, rule.message) for rule in lint.RULES.values()]
        output.table(("rule", "name", "level", "what is wrong"), rows)
    return exit_codes.OK


def _explain(args: argparse.Namespace) -> int:
    from ..tools import lint

    text = lint.explain(args.explain.upper())
    rule = lint.RULES[args.explain.upper()]
    if args.json:
        output.emit({**rule._asdict(), "explanation": text})
    else:
        output.say(f"{text}\n\n{rule.level}, {rule.when}\nfix: {rule.fix}")
    return exit_codes.OK


def _document(report: Any) -> dict[str, Any]:
    from ..tools import lint

    findings = []
    for one in report.findings:
        rule = lint.RULES[one.rule]
        whole = {**one._asdict(), "name": rule.name, "level": rule.level, "fix": rule.fix}
        findings.append(whole)
    return {"files": report.files, "findings": findings, "ignored": report.ignored}


def _print(report: Any) -> None:
    for one in report.findings:
        cell = f"cell {one.cell}:" if one.cell else ""
        output.say(f"{one.path}:{cell}{one.line}:{one.column}: {one.rule} {one.message}")
        output.say(f"    fix: {one.fix}")
    found = f"{len(report.findings)} finding{'s' * (len(report.findings) != 1)}"
    files = f"{report.files} file{'s' * (report.files != 1)}"
    ignored = f", {report.ignored} ignored by comments" if report.ignored else ""
    output.say(f"{found} in {files}{ignored}")
