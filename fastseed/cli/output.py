"""Printing for the subcommands: lines, tables, JSON, and the options that they share."""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import re
import sys
from collections.abc import Sequence
from typing import Any

from .._utils import JSON
from . import exit_codes

json_only = False
"""With ``--json``: ``emit`` prints then, and ``say`` and ``table`` do not."""

_WIDEST = 60  # characters of a value in a table
MAX_ROWS = 40  # of a table without --all

_STYLES = {  # of cells with these words
    **dict.fromkeys(("wrong", "FAILED", "DIFFERENT"), "bold red"),
    **dict.fromkeys(("fine", "passed", "good", "equal"), "green"),
    **dict.fromkeys(("note", "not checked"), "yellow"),
}

# Text of files must not move the cursor or set a colour.
# C0 except newline and tab, DEL, C1, and the characters that reorder or hide text (bidi controls).
_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def add_common(parser: argparse.ArgumentParser) -> None:
    """Add ``--json`` and ``--all`` (``args.json`` and ``args.limit``, for ``table``)."""
    parser.add_argument("--json", action="store_true", help="print one JSON document instead")
    parser.add_argument(
        "--all", action="store_const", const=None, default=MAX_ROWS, dest="limit",
        help=f"all rows, not the first {MAX_ROWS}",
    )  # fmt: skip


def add_deterministic(parser: argparse.ArgumentParser) -> None:
    """Add ``--deterministic[=warn]`` (``args.deterministic``, as ``launch.variables`` takes it)."""
    for name, value in (("--deterministic", True), ("--deterministic=warn", "warn")):
        parser.add_argument(
            name, dest="deterministic", action="store_const", const=value, default=False,
            help=f"deterministic algorithms, or {'warnings' if value == 'warn' else 'errors'}",
        )  # fmt: skip


def add_program(parser: argparse.ArgumentParser) -> None:
    """Add a program: a script or ``-m`` and a module; ``--`` before it is accepted."""
    parser.add_argument("-m", dest="module", action="store_true", help="PROGRAM is a module")
    parser.add_argument("program", nargs=argparse.REMAINDER, metavar="PROGRAM ...")


def program_of(args: argparse.Namespace, *, needed: bool = True) -> list[str]:
    words: list[str] = args.program[1:] if args.program[:1] == ["--"] else args.program
    if words[:1] == ["-m"] and not args.module:
        args.module, words = True, words[1:]
    if words and not words[0]:
        raise exit_codes.Exit(f"fastseed {args.command}: PROGRAM must not be empty")
    if needed and not words:
        example = f"fastseed {args.command} train.py ..."
        raise exit_codes.Exit(f"fastseed {args.command}: a program is missing: {example}")
    return words


def command_of(args: argparse.Namespace) -> list[str]:
    """Return the command; a Python script or module is started by this interpreter."""
    words = program_of(args)
    if args.module:
        return [sys.executable, "-m", *words]
    return [sys.executable, *words] if words[0].endswith(".py") else words


def say(text: object = "", *, error: bool = False, end: str = "\n") -> None:
    """Print a line on standard output or standard error; control characters as escapes."""
    if json_only and not error:
        return
    stream = sys.stderr if error else sys.stdout
    encoding = getattr(stream, "encoding", None) or "utf-8"
    # Escapes rather than a UnicodeEncodeError on a terminal with another encoding.
    shown = _clean(text).encode(encoding, "backslashreplace").decode(encoding)
    print(shown, end=end, file=stream, flush=end != "\n")


def _clean(text: object) -> str:
    return _CONTROL.sub(lambda found: ascii(found.group())[1:-1], str(text))


def emit(document: object) -> None:
    """Print one JSON document; digests are 32 hexadecimal digits, NaN a text."""
    if json_only:
        print(json.dumps(_plain(document), indent=2, ensure_ascii=True, allow_nan=False))


def _plain(value: Any) -> JSON:
    if dataclasses.is_dataclass(value):
        return _plain(vars(value))
    if isinstance(value, dict):
        return {name: _plain(held) for name, held in value.items()}
    if isinstance(value, (list, tuple)):
        held = getattr(value, "_asdict", None)
        return [*map(_plain, value)] if held is None else _plain(held())
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return f"{value:032x}" if isinstance(value, int) and value >= 2**64 else value


def table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], *, limit: int | None = None
) -> None:
    """Print at most ``limit`` rows; on a terminal by rich, if it is installed.

    Elsewhere text is aligned and never wrapped or cut, so that `grep` works.
    """
    cells = [
        [_clean(cell).replace("\n", "\\n").replace("\t", "\\t") for cell in row]
        for row in rows[:limit]
    ]
    if not _on_terminal(columns, cells):
        widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
        for line in (columns, ["-" * width for width in widths], *cells):
            say("  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip())
    if len(cells) < len(rows):
        say(f"… and {len(rows) - len(cells)} more (--all shows them)")


def _on_terminal(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> bool:
    if json_only or not sys.stdout.isatty():
        return False
    try:
        from rich import box, console, table, text
    except ImportError:
        return False
    shown = table.Table(*columns, box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in shown.columns:
        column.overflow = "fold"  # nothing is cut
    for row in cells:
        shown.add_row(*(text.Text(cell, _STYLES.get(cell, "")) for cell in row))
    console.Console().print(shown)
    return True


def short(value: object) -> str:
    """Return a value as text that a table has room for."""
    if value is None:
        return "-"
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 1]}…"
