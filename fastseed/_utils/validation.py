"""Argument checks; errors read ``fastseed.<function>: <argument> must be <rule>, got <value>``.

Checks return the value in the type that the rest of the code uses.
"""

from __future__ import annotations

import builtins
import itertools
import math
import numbers
import operator
import os
import pathlib
import reprlib
import sys
import types
from collections.abc import Collection
from typing import Any, TypeVar

T = TypeVar("T")

_LONGEST = 80  # characters of a value in a message
_MOST_BITS = 1024  # of an integer that is printed
# Values whose repr is short and reads nothing that may be large, slow or freed.
_PLAIN = (
    *(bool, float, complex, range, type(None), type(Ellipsis), type, pathlib.PurePath),
    *(types.FunctionType, types.BuiltinFunctionType, types.ModuleType),
)


def short_repr(value: object) -> str:
    """Return a text of at most 80 characters for an error message, whatever the value is."""
    try:
        text = _SHORT.repr(value)
    except Exception:
        return f"a {type(value).__name__} without a repr"
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


class _ShortRepr(reprlib.Repr):
    """Texts without the elements of tensors, and without a ``repr`` that may print megabytes."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 4
        self.maxlist = self.maxtuple = self.maxdict = 8
        self.maxstring = 2 * _LONGEST

    def repr_int(self, value: int, level: int) -> str:
        bits = value.bit_length()
        return repr(value) if bits <= _MOST_BITS else f"an integer of {bits} bits"

    def repr_dict(self, value: Any, level: int) -> str:  # not sorted: a key may be a tensor
        if level <= 0:
            return "{...}"
        items = itertools.islice(dict.items(value), self.maxdict)
        texts = [f"{self.repr1(k, level - 1)}: {self.repr1(v, level - 1)}" for k, v in items]
        return f"{{{', '.join([*texts, *['...'][: len(value) - len(texts)]])}}}"

    def repr_set(self, value: Any, level: int) -> str:
        listed = list(itertools.islice(value, self.maxlist + 1))
        return f"{type(value).__name__}({self.repr_list(listed, level)})"

    def repr_frozenset(self, value: Any, level: int) -> str:
        return self.repr_set(value, level)

    def repr_instance(self, value: Any, level: int) -> str:
        kind = type(value)
        for base in ("tuple", "list", "dict"):  # of subclasses
            if isinstance(value, getattr(builtins, base)):
                return f"{kind.__name__}({getattr(self, f'repr_{base}')(value, level)})"
        if isinstance(value, (str, bytes, bytearray)):
            return repr(value[: _LONGEST + 1])
        torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
        if torch is not None:
            if isinstance(value, torch.Tensor):
                return f"tensor of shape {tuple(value.shape)} and dtype {value.dtype}"
            if isinstance(value, (torch.dtype, torch.device, torch.layout, torch.memory_format)):
                return repr(value)
        if numpy is not None:
            if isinstance(value, numpy.ndarray):
                return f"array of shape {value.shape} and dtype {str(value.dtype)[:_LONGEST]}"
            if isinstance(value, (numpy.number, numpy.bool_)):
                return repr(value)
        if isinstance(value, _PLAIN) or kind.__module__.partition(".")[0] == "fastseed":
            return repr(value)
        if isinstance(value, int):
            return self.repr_int(int(value), level)
        module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
        return f"<{module}{kind.__qualname__} object>"


_SHORT = _ShortRepr()


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
        is_number = type(choice) is int and isinstance(value, numbers.Integral)  # of NumPy too
        is_alike = type(choice) is type(value) or (is_number and not isinstance(value, bool))
        if is_alike and choice == value:
            return choice
    names = ", ".join(repr(choice) for choice in choices)
    raise value_error(function, argument, f"one of {names}", value)
