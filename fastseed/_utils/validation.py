"""Argument checks; errors read ``fastseed.<function>: <argument> must be <rule>, got <value>``.

Checks return the value in the type that the rest of the code uses.
"""

from __future__ import annotations

import collections
import math
import numbers
import operator
import os
import pathlib
import sys
import types
from collections.abc import Collection, Iterator
from typing import Any, TypeVar

T = TypeVar("T")

_LONGEST = 80  # characters of a value in a message
_DEEPEST = 8  # containers within each other
_MOST_BITS = 1024  # of an integer that is printed
_BRACKETS: dict[type[Any], str] = {
    list: "[]",
    tuple: "()",
    dict: "{}",
    set: "{}",
    frozenset: "{}",
    collections.deque: "[]",
}
_BARE = (list, tuple, dict)  # shown without their names
# Values whose repr is short and reads nothing that may be large, slow or freed.
_PLAIN = (
    *(bool, float, complex, range, type(None), type(Ellipsis), type, pathlib.PurePath),
    *(types.FunctionType, types.BuiltinFunctionType, types.ModuleType),
)
_PLAIN_OF_TORCH = ("dtype", "device", "layout", "memory_format")


def short_repr(value: object) -> str:
    """Return a text of at most 80 characters for an error message, whatever the value is."""
    text = ""
    try:
        for piece in _pieces(value, _DEEPEST):
            text += piece
            if len(text) > _LONGEST:
                return text[: _LONGEST - 3] + "..."
    except Exception:
        return f"a {type(value).__name__} without a repr"
    return text


def _pieces(value: Any, depth: int) -> Iterator[str]:
    """Yield the text of a value in parts, so that no more of it is made than is shown."""
    base = next((kind for kind in _BRACKETS if isinstance(value, kind)), None)
    if base is None:
        yield _atom(value)
        return
    brackets = _BRACKETS[base]
    name = "" if type(value) in _BARE else type(value).__name__
    yield f"{name}({brackets[0]}" if name else brackets[0]
    for i, item in enumerate(dict.items(value) if base is dict else base.__iter__(value)):
        yield ", " if i else ""
        if depth == 0:
            yield "..."
            break
        if base is dict:
            key, item = item
            yield from _pieces(key, depth - 1)
            yield ": "
        yield from _pieces(item, depth - 1)
    if type(value) is tuple and len(value) == 1:
        yield ","
    yield f"{brackets[1]})" if name else brackets[1]


def _atom(value: Any) -> str:
    """Return the text of a value: no elements of tensors, no ``repr`` that may print megabytes."""
    kind = type(value)
    if isinstance(value, (str, bytes, bytearray)):
        return repr(value[: _LONGEST + 1])
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None:
        if isinstance(value, torch.Tensor):
            return f"tensor of shape {tuple(value.shape)} and dtype {value.dtype}"
        if isinstance(value, tuple(getattr(torch, name) for name in _PLAIN_OF_TORCH)):
            return repr(value)
    if numpy is not None:
        if isinstance(value, numpy.ndarray):
            return f"array of shape {value.shape} and dtype {str(value.dtype)[:_LONGEST]}"
        if isinstance(value, (numpy.number, numpy.bool_)):
            return repr(value)
    if isinstance(value, _PLAIN) or kind.__module__.partition(".")[0] == "fastseed":
        return repr(value)
    if isinstance(value, int):
        bits = int.bit_length(value)
        return int.__repr__(value) if bits <= _MOST_BITS else f"an integer of {bits} bits"
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return f"<{module}{kind.__qualname__} object>"


def type_error(function: str, argument: str, rule: str, value: object) -> TypeError:
    """Return the error for an argument of the wrong type."""
    kind = type(value).__name__
    return TypeError(
        f"fastseed.{function}: {argument} must be {rule}, got {short_repr(value)} of type {kind}"
    )


def value_error(function: str, argument: str, rule: str, value: object) -> ValueError:
    """Return the error for an argument of the right type with a wrong value."""
    return ValueError(f"fastseed.{function}: {argument} must be {rule}, got {short_repr(value)}")


def check_instance(
    function: str, argument: str, value: object, kind: type[T] | tuple[type[T], ...], rule: str
) -> T:
    """Return ``value`` if it is an instance of ``kind``; ``rule`` says so in words."""
    if not isinstance(value, kind):
        raise type_error(function, argument, rule, value)
    return value


def check_int(function: str, argument: str, value: Any, low: int, high: int) -> int:
    """Return ``value`` as an int of [low, high]; NumPy integers pass, bools and floats do not."""
    if type(value) is not int:
        if isinstance(value, bool) or not isinstance(value, numbers.Integral):
            raise type_error(function, argument, "an integer", value)
        value = operator.index(value)
    if not low <= value <= high:
        raise value_error(function, argument, f"in [{low}, {high}]", value)
    return int(value)


def check_float(function: str, argument: str, value: Any, low: float, high: float) -> float:
    """Return ``value`` as a finite float of [low, high]; ints pass, bools and tensors do not."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise type_error(function, argument, "a number", value)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not (math.isfinite(number) and low <= number <= high):
        raise value_error(function, argument, f"in [{low}, {high}]", value)
    return number


def check_bool(function: str, argument: str, value: object) -> bool:
    """Return ``value`` as a bool; ``numpy.bool_`` passes, integers do not."""
    if not (isinstance(value, bool) or type(value).__name__ in ("bool", "bool_")):
        raise type_error(function, argument, "a bool", value)
    return bool(value)


def check_text(function: str, argument: str, value: object) -> str:
    """Return ``value`` if it is a non-empty string that UTF-8 can encode."""
    if not isinstance(value, str):
        raise type_error(function, argument, "a string", value)
    if not value:
        raise value_error(function, argument, "a non-empty string", value)
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise value_error(function, argument, "a string with a UTF-8 encoding", value) from error
    return value


def check_path(function: str, argument: str, value: object) -> str:
    """Return a path as a string, if it can name a file."""
    if not isinstance(value, (str, bytes, os.PathLike)):
        raise type_error(function, argument, "a path", value)
    try:
        text = os.fsdecode(value)
        os.fsencode(text)
    except UnicodeEncodeError:
        raise value_error(function, argument, "the name of a file", value) from None
    if not text or "\0" in text:
        raise value_error(function, argument, "the name of a file", text)
    return text


def check_choice(function: str, argument: str, value: object, choices: Collection[T]) -> T:
    """Return ``value`` if it equals one of ``choices``."""
    for choice in choices:
        if type(choice) is type(value) and choice == value:
            return choice
    names = ", ".join(repr(choice) for choice in choices)
    raise value_error(function, argument, f"one of {names}", value)
