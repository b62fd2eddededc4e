"""Reading a configuration file of which nothing is trusted: JSON, YAML or TOML.

Every reader gives plain dicts, lists and scalars, and refuses what a reader usually lets pass: a
key twice (the last one wins otherwise), NaN and infinity, nesting without end, YAML aliases that
grow into gigabytes, YAML tags that build objects. Bounds: 1 MiB, 32 levels, 100,000 values.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import re
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from .._utils.validation import describe

MAX_BYTES = 2**20
MAX_DEPTH = 32
MAX_VALUES = 100_000

_MAX_DIGITS = 40  # of an integer; more can be no seed, and quadratic to read


class Pairs(list[tuple[Any, Any]]):
    """An object's keys and values before anybody has lost one of two."""


class Constant(str):
    """``NaN`` and its kin as JSON's reader meets them, without knowing where."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def read(function: str, path: str | os.PathLike[str]) -> dict[str, Any]:
    """The document of a file, by its suffix: ``.json``, ``.yaml``, ``.yml`` or ``.toml``.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is too large, too deep, damaged, or holds what is refused; the message names
            the key's path (``determinism.numpy_seed``) wherever the reader knows it.
        ImportError: the reader is an extra that is not installed.
    """
    file = Path(path)
    reader = _READERS.get(file.suffix.lower())
    if reader is None:
        raise ValueError(
            f"{function}: path must end in one of {tuple(_READERS)}, got {describe(str(path))}"
        )
    text = _text(function, file)
    try:
        found = reader(function, text)
    except RecursionError:
        _too_deep(function)
    plain = _plain(function, found, (), [0])
    if not isinstance(plain, dict):
        raise ValueError(f"{function}: the file must hold an object, got {describe(plain)}")
    return plain


def _text(function: str, file: Path) -> str:
    # Without waiting for whoever writes to a pipe of that name.
    handle = os.open(file, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    with os.fdopen(handle, "rb") as stream:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ValueError(f"{function}: path must be a regular file, got {describe(str(file))}")
        data = stream.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ValueError(f"{function}: the file must hold at most {MAX_BYTES} bytes, got more")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{function}: the file must be UTF-8, got {error}") from None


def _too_deep(function: str) -> NoReturn:
    raise ValueError(f"{function}: the file must nest at most {MAX_DEPTH} levels, got more")


def dotted(path: tuple[Any, ...]) -> str:
    """A key's path as messages show it: ``determinism.numpy_seed``, ``train.lr[2]``."""
    text = ""
    for part in path:
        name = part if isinstance(part, str) and part[:80].isidentifier() else describe(part)
        name = name if len(name) <= 80 else f"{name[:77]}..."
        text += f"[{part}]" if isinstance(part, int) else f".{name}" if text else name
    return text or "the file"


def _plain(function: str, value: Any, path: tuple[Any, ...], count: list[int]) -> Any:
    """Dicts for pairs, with everything refused that no file should hold."""
    count[0] += 1
    if count[0] > MAX_VALUES:
        raise ValueError(f"{function}: the file must hold at most {MAX_VALUES} values, got more")
    if len(path) > MAX_DEPTH:
        _too_deep(function)
    if isinstance(value, Pairs):
        found: dict[Any, Any] = {}
        for key, inner in value:
            if not isinstance(key, str):
                raise ValueError(
                    f"{function}: keys of {dotted(path)} must be strings, got {describe(key)}"
                )
            if key in found:
                raise ValueError(f"{function}: {dotted((*path, key))} must be there once, got two")
            found[key] = _plain(function, inner, (*path, key), count)
        return found
    if isinstance(value, dict):  # of TOML, whose reader refuses a key twice
        return _plain(function, Pairs(value.items()), path, count)
    if isinstance(value, list):
        return [_plain(function, one, (*path, i), count) for i, one in enumerate(value)]
    if isinstance(value, Constant) or (isinstance(value, float) and not math.isfinite(value)):
        raise ValueError(f"{function}: {dotted(path)} must be finite, got {value!r}")
    return value


def _library(function: str, name: str, extra: str) -> Any:
    """The reader of a format, which may not be installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(
            f'{function}: this file needs {name}; pip install "fastseed[{extra}]"'
        ) from error


# ---------------------------------------------------------------- JSON


def _integer(digits: str) -> Any:
    return int(digits) if len(digits) <= _MAX_DIGITS else Constant(f"{digits[:20]}…")


def _json(function: str, text: str) -> Any:
    try:
        return json.loads(
            text, object_pairs_hook=Pairs, parse_constant=Constant, parse_int=_integer
        )
    except json.JSONDecodeError as error:
        raise ValueError(f"{function}: the file must be JSON, got {error}") from None


# ---------------------------------------------------------------- TOML


def _toml(function: str, text: str) -> Any:
    reader = _library(function, "tomllib" if sys.version_info >= (3, 11) else "tomli", "toml")
    for number, line in enumerate(text.splitlines(), 1):
        # Its reader's time grows with the square of either.
        if re.search(r"[0-9_]{1000}", line) or line.count(".") > 1000:
            raise ValueError(f"{function}: line {number} must be of a settings file, got a bomb")
    try:
        return reader.loads(text)
    except reader.TOMLDecodeError as error:
        raise ValueError(
            f"{function}: the file must be TOML, got {error}{_line(error, text)}"
        ) from None
    except ValueError as error:  # an integer of more digits than Python reads
        raise ValueError(f"{function}: the file must be TOML, got {error}") from None


def _line(error: ValueError, text: str) -> str:
    """The line that an error names: of a key that is there twice, the key."""
    found = re.search(r"at line (\d+)", str(error))
    lines = text.splitlines()
    if found is None or not 0 < int(found[1]) <= len(lines):
        return ""
    return f": {describe(lines[int(found[1]) - 1].strip())}"


# ---------------------------------------------------------------- YAML


def _yaml(function: str, text: str) -> Any:
    yaml = _library(function, "yaml", "yaml")
    reader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        depth = 0
        for event in yaml.parse(text, reader):  # iterative: nesting costs no stack
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > MAX_DEPTH:
                _too_deep(function)
        loader = reader(text)
        try:
            node = loader.get_single_node()
            return None if node is None else _node(function, loader, node, (), [0])
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        shown = " ".join(str(error).split())
        raise ValueError(f"{function}: the file must be YAML, got {shown}") from None


def _node(function: str, loader: Any, node: Any, path: tuple[Any, ...], count: list[int]) -> Any:
    """A node's value. An alias is walked as often as it stands there, and counted each time."""
    yaml: Any = sys.modules["yaml"]
    count[0] += 1
    if count[0] > MAX_VALUES:
        raise ValueError(
            f"{function}: the file must hold at most {MAX_VALUES} values, got more through aliases"
        )
    if len(path) > MAX_DEPTH:
        _too_deep(function)
    if node.tag not in _TAGS:
        raise ValueError(f"{function}: {dotted(path)} must be plain, got the tag {node.tag!r}")
    if isinstance(node, yaml.MappingNode):
        pairs = Pairs()
        for key, inner in node.value:
            name = loader.construct_scalar(key) if isinstance(key, yaml.ScalarNode) else key
            pairs.append((name, _node(function, loader, inner, (*path, name), count)))
        return pairs
    if isinstance(node, yaml.SequenceNode):
        return [_node(function, loader, one, (*path, i), count) for i, one in enumerate(node.value)]
    if node.tag == "tag:yaml.org,2002:int" and len(node.value) > _MAX_DIGITS:
        return Constant(f"{node.value[:20]}…")
    try:
        return loader.construct_object(node)
    # A date or number that is none (`!!int ""`, `!!bool maybe`): PyYAML lets any of these escape.
    except (ValueError, LookupError, AttributeError, ArithmeticError):
        raise ValueError(
            f"{function}: {dotted(path)} must be a value, got {describe(node.value)}"
        ) from None


_TAGS = frozenset(
    f"tag:yaml.org,2002:{kind}"
    for kind in ("map", "seq", "null", "bool", "int", "float", "str", "timestamp")
)

_READERS: dict[str, Callable[[str, str], Any]] = {
    ".json": _json,
    ".yaml": _yaml,
    ".yml": _yaml,
    ".toml": _toml,
}
