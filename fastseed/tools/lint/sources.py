"""Which files are linted, and what their text is: Python files, and the code of notebooks."""

from __future__ import annotations

import io
import json
import os
import re
import stat
import tokenize
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

SUFFIXES = (".py", ".ipynb")
LARGEST = 8 << 20  # bytes; what is longer holds data, not a script
_SKIPPED = {"__pycache__", "node_modules", "site-packages"}
_ENVIRONMENTS = ("pyvenv.cfg", "conda-meta")  # what only the folder of an environment holds

_MAGIC = re.compile(r"^\s*(?:[%!?]|[\w.]+\s*\?{1,2}\s*$)|^\s*[\w, ]+=\s*[%!]")
_FOREIGN = re.compile(r"^%%(?!time|timeit|capture|prun|debug)\w*")  # cells of another language


class Unreadable(Exception):
    """A file that cannot be parsed as Python: the reason and the position."""

    def __init__(self, message: str, line: int = 1, column: int = 1, cell: int = 0) -> None:
        super().__init__(message)
        self.message, self.line, self.column, self.cell = message, line, column, cell


class Source(NamedTuple):
    """The text of a file."""

    path: str
    text: str
    places: tuple[tuple[int, int], ...] = ()
    """For each line of a notebook's ``text``: its cell and the line in that cell, from 1."""

    def place(self, line: int) -> tuple[int, int]:
        """(cell, line in it) of a line of the text; the cell is 0 in a Python file."""
        if not self.places:
            return 0, max(line, 1)
        return self.places[min(max(line, 1), len(self.places)) - 1]


def find(paths: Iterable[str | os.PathLike[str]]) -> list[str]:
    """Return the files below the given paths, each once, sorted.

    Hidden folders, virtual environments, ``site-packages`` and links to folders are left out; a
    path that is given is taken as it is.

    Raises:
        TypeError: a path is no path.
        FileNotFoundError: it is not there.
        ValueError: it is neither a file nor a folder.
    """
    found: dict[str, str] = {}
    if isinstance(paths, (str, bytes, os.PathLike)):
        raise TypeError(f"fastseed.tools.lint.check: paths must be a list of paths, got {paths!r}")
    for given in paths:
        path = os.fspath(given)
        if not isinstance(path, str):
            raise TypeError(
                f"fastseed.tools.lint.check: paths must be strings or Paths, got {path!r}"
            )
        if "\0" in path:
            raise ValueError(f"fastseed.tools.lint.check: paths must be paths, got {path!r}")
        mode = os.stat(path).st_mode
        if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
            raise ValueError(
                f"fastseed.tools.lint.check: paths must be files or folders, got {path!r}"
            )
        for one in _below(path) if stat.S_ISDIR(mode) else (path,):
            found.setdefault(os.path.abspath(one), os.path.normpath(one))
    return sorted(found.values(), key=lambda p: p.split(os.sep))


def _below(folder: str) -> Iterator[str]:
    for at, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if _wanted(at, name))
        for name in sorted(files):
            path = os.path.join(at, name)
            if name.endswith(SUFFIXES) and not name.startswith(".") and os.path.isfile(path):
                yield path


def _wanted(at: str, name: str) -> bool:
    if name.startswith(".") or name in _SKIPPED:
        return False
    return not any(os.path.exists(os.path.join(at, name, sign)) for sign in _ENVIRONMENTS)


def read(path: str) -> Source:
    """The text of a file, as Python reads it: its encoding from its first two lines, or UTF-8.

    Raises:
        Unreadable: it cannot be opened or decoded, is too large, or is no notebook.
    """
    try:
        with open(path, "rb") as file:
            data = file.read(LARGEST + 1)
    except OSError as error:
        raise Unreadable(f"it cannot be opened: {error.strerror}") from error
    if len(data) > LARGEST:
        raise Unreadable(f"it is longer than {LARGEST >> 20} MiB")
    if path.endswith(".ipynb"):
        return _notebook(path, data)
    return Source(path, _decoded(data))


def _decoded(data: bytes) -> str:
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        text = data.decode(encoding)
    except (SyntaxError, LookupError) as error:
        raise Unreadable(f"its encoding is not known: {error}") from error
    except ValueError as error:  # UnicodeDecodeError, and codecs that are not of text
        start = getattr(error, "start", 0)
        line = data.count(b"\n", 0, start) + 1
        raise Unreadable(f"it cannot be decoded: {error}", line) from error
    # As Python reads it: lines end in \n alone, also where \r stood.
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def _notebook(path: str, data: bytes) -> Source:
    try:
        document: Any = json.loads(data)
        cells = document["cells"]
        texts = [(n, _cell_text(cell)) for n, cell in enumerate(cells, 1) if _is_code(cell)]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Unreadable(f"it is no notebook: {type(error).__name__}: {error}") from error
    lines: list[str] = []
    places: list[tuple[int, int]] = []
    for number, text in texts:
        # split, not splitlines: Python ends a line at \n, \r and \r\n alone.
        own = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        if _FOREIGN.match(next((line for line in own if line.strip()), "")):
            continue
        for i, line in enumerate(own, 1):
            lines.append(_without_magic(line))
            places.append((number, i))
    return Source(path, "\n".join(lines) + "\n", tuple(places) or ((1, 1),))


def _is_code(cell: dict[str, Any]) -> bool:
    return cell.get("cell_type") == "code"


def _cell_text(cell: dict[str, Any]) -> str:
    text = cell.get("source", "")
    return text if isinstance(text, str) else "".join(text)


def _without_magic(line: str) -> str:
    """A line for IPython alone becomes ``pass`` at the same place."""
    if not _MAGIC.match(line):
        return line
    return line[: len(line) - len(line.lstrip())] + "pass"
