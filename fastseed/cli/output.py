"""What the subcommands share of printing: tables, JSON, one option.

Text that comes from files may hold anything; what goes to a terminal from here holds no control
characters, so that nothing but this module moves a cursor or sets a colour.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from typing import Any

# C0 but for newline and tab, DEL, C1, and what reorders or hides text (Unicode's bidi controls).
_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def add_json(parser: argparse.ArgumentParser) -> None:
    """Give a subcommand the option ``--json`` (``args.json``)."""
    parser.add_argument("--json", action="store_true", help="print one JSON document instead")


def add_folder(parser: argparse.ArgumentParser, name: str, help: str) -> None:
    """A positional argument that shells complete with folders."""
    complete(parser.add_argument(name, metavar=name.upper(), help=help), "folders")


def complete(action: argparse.Action, what: str) -> None:
    """Say what shells complete an argument with: ``"files"`` or ``"folders"``."""
    # The names of shtab's own functions (its FILE and DIRECTORY), so that it need not be there.
    table = {
        "files": {
            "bash": "_shtab_compgen_files",
            "zsh": "_files",
            "tcsh": "f",
            "fish": "(__fish_complete_path (commandline -ct))",
            "powershell": "_shtab_powershell_compgen_files",
        },
        "folders": {
            "bash": "_shtab_compgen_dirs",
            "zsh": "_files -/",
            "tcsh": "d",
            "fish": "(__fish_complete_directories)",
            "powershell": "_shtab_powershell_compgen_dirs",
        },
    }
    action.complete = table[what]  # type: ignore[attr-defined]


def clean(text: object) -> str:
    """``text`` with control characters written out, as ``\\x1b``."""
    return _CONTROL.sub(lambda found: ascii(found.group())[1:-1], str(text))


def say(text: object = "", *, error: bool = False) -> None:
    """Print a line, cleaned, on standard output or standard error."""
    stream = sys.stderr if error else sys.stdout
    line = clean(text)
    encoding = getattr(stream, "encoding", None) or "utf-8"
    # A terminal of another encoding gets escapes, not a UnicodeEncodeError.
    print(line.encode(encoding, "backslashreplace").decode(encoding), file=stream)


def emit(document: Any) -> None:
    """Print one JSON document: ASCII, and NaN or infinity are an error (they are not JSON)."""
    print(json.dumps(document, indent=2, ensure_ascii=True, allow_nan=False))


def table(
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    title: str = "",
    styles: Sequence[str] = (),
) -> None:
    """Print a table: with rich on a terminal where it is installed, as aligned text otherwise.

    Piped output is always plain and never wrapped or cut, so that `grep` finds what it looks for.

    Args:
        columns: the headings.
        rows: the cells of each row, as many as columns.
        title: a line above it.
        styles: rich's style for each row (``"bold red"``, ``""``); none by default.
    """
    cells = [[clean(cell) for cell in row] for row in rows]
    if not _rich_table(columns, cells, title, styles):
        _plain_table(columns, cells, title)


def _rich_table(
    columns: Sequence[str], cells: list[list[str]], title: str, styles: Sequence[str]
) -> bool:
    """Print with rich; False where that is not installed or nobody looks at a terminal."""
    try:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text
    except ImportError:
        return False
    console = Console()
    if not console.is_terminal:
        return False
    drawn = Table(title=Text(title) if title else None, title_justify="left")
    for column in columns:
        drawn.add_column(column, overflow="fold")
    for i, row in enumerate(cells):  # Text, not str: "[bold]" in a cell is text, no markup
        drawn.add_row(*map(Text, row), style=styles[i] if i < len(styles) else "")
    console.print(drawn)
    return True


def _plain_table(columns: Sequence[str], cells: list[list[str]], title: str) -> None:
    flat = [[cell.replace("\n", "\\n").replace("\t", "\\t") for cell in row] for row in cells]
    lines = [list(columns), *flat]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    lines.insert(1, ["-" * width for width in widths])
    if title:
        say(title)
    for line in lines:
        say("  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip())
