"""Which files are linted, and what their text is: Python files, and the code of notebooks."""

from __future__ import annotations

import json
import os
import re
import tokenize
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from ..._utils.validation import check_instance, type_error, value_error

_FUNCTION = "tools.lint.check"
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
        TypeError: a path is not a path.
        FileNotFoundError: there is no such file or folder.
        ValueError: a path is neither a file nor a folder.
    """
    if isinstance(paths, (str, bytes, os.PathLike)):
        raise type_error(_FUNCTION, "paths", "a list of paths", paths)
    found: dict[str, str] = {}
    for given in paths:
        path = check_instance(_FUNCTION, "paths", os.fspath(given), str, "strings or Path objects")
        os.stat(path)  # FileNotFoundError
        if not (os.path.isdir(path) or os.path.isfile(path)):
            raise value_error(_FUNCTION, "paths", "files or folders", path)
        for one in _below(path) if os.path.isdir(path) else (path,):
            found.setdefault(os.path.abspath(one), os.path.normpath(one))
    return sorted(found.values(), key=lambda p: p.split(os.sep))


def _below(folder: str) -> Iterator[str]:
    for at, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if _wanted(at, name))
        for name in files:
            path = os.path.join(at, name)
            if name.endswith((".py", ".ipynb")) and name[0] != "." and os.path.isfile(path):
                yield path


def _wanted(at: str, name: str) -> bool:
    if name.startswith(".") or name in _SKIPPED:
        return False
    return not any(os.path.exists(os.path.join(at, name, sign)) for sign in _ENVIRONMENTS)


def read(path: str) -> Source:
    """The text of a file, as Python reads it: its encoding from its first two lines, or UTF-8.

    Raises:
        Unreadable: it cannot be opened or decoded, or is no notebook.
    """
    try:
        if path.endswith(".ipynb"):
            return _notebook(path)
        with tokenize.open(path) as file:
            return Source(path, file.read())
    except OSError as error:
        raise Unreadable(f"it cannot be opened: {error.strerror}") from error
    except (SyntaxError, LookupError, ValueError) as error:
        raise Unreadable(f"it cannot be decoded: {error}") from error


def _notebook(path: str) -> Source:
    try:
        with open(path, encoding="utf-8") as file:
            cells = json.load(file)["cells"]
        texts = [_text(cell) if cell["cell_type"] == "code" else "" for cell in cells]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise Unreadable(f"it is no notebook: {type(error).__name__}: {error}") from error
    lines: list[str] = []
    places: list[tuple[int, int]] = []
    for number, text in enumerate(texts, 1):
        if _FOREIGN.match(text.lstrip("\n")):
            continue
        for i, line in enumerate(text.split("\n"), 1):
            lines.append(_without_magic(line))
            places.append((number, i))
    return Source(path, "\n".join(lines) + "\n", tuple(places))


def _text(cell: dict[str, Any]) -> str:
    """The text of a cell, with the line ends that Python knows as ``\\n``."""
    return "".join(cell["source"]).replace("\r\n", "\n").replace("\r", "\n")


def _without_magic(line: str) -> str:
    """A line for IPython alone becomes ``pass`` at the same place."""
    if not _MAGIC.match(line):
        return line
    return line[: len(line) - len(line.lstrip())] + "pass"
