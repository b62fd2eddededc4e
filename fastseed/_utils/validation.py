"""Argument checks and the one form that error messages have.

``fastseed.<function>: <argument> must be <rule>, got <value>``; a ``TypeError`` also names the
type. Checks return the value in the type that the rest of the code uses.
"""

from __future__ import annotations

import math
import os
import reprlib
import sys
from collections.abc import Collection
from typing import Any, TypeVar

T = TypeVar("T")

_LONGEST = 80  # characters of a value in a message


class _Repr(reprlib.Repr):
    """``repr`` that does not read the elements of tensors, whose memory may have been freed."""

    def repr1(self, x: object, level: int) -> str:
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(x, torch.Tensor):
            return f"tensor of shape {tuple(x.shape)} and dtype {x.dtype}"
        if type(x) in (list, tuple, dict, set, frozenset):
            return super().repr1(x, level)
        return repr(x)


_repr = _Repr()
_repr.maxtuple = _repr.maxlist = _repr.maxdict = 20


def describe(value: object) -> str:
    """Return ``repr(value)``, cut to 80 characters; never raises, never reads a tensor."""
    try:
        text = _repr.repr(value)
    except Exception:  # an integer with thousands of digits, for example
        text = f"a {type(value).__name__} without a repr"
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def type_error(function: str, argument: str, rule: str, value: object) -> TypeError:
    """Return the error for an argument of the wrong type."""
    kind = type(value).__name__
    return TypeError(
        f"fastseed.{function}: {argument} must be {rule}, got {describe(value)} of type {kind}"
    )


def value_error(function: str, argument: str, rule: str, value: object) -> ValueError:
    """Return the error for an argument of the right type with a wrong value."""
    return ValueError(f"fastseed.{function}: {argument} must be {rule}, got {describe(value)}")


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
        # numpy.integer, without importing NumPy: what has __index__ and is no bool or tensor
        is_integer = hasattr(type(value), "__index__") and hasattr(type(value), "bit_count")
        if isinstance(value, bool) or not (isinstance(value, int) or is_integer):
            raise type_error(function, argument, "an integer", value)
    number = int(value)
    if not low <= number <= high:
        raise value_error(function, argument, f"in [{low}, {high}]", value)
    return number


def check_float(function: str, argument: str, value: Any, low: float, high: float) -> float:
    """Return ``value`` as a finite float of [low, high]; ints pass, bools and tensors do not."""
    kind = type(value)
    if isinstance(value, bool) or not hasattr(kind, "__float__") or hasattr(kind, "__len__"):
        raise type_error(function, argument, "a number", value)
    try:
        number = float(value)
    except (TypeError, ValueError):  # an array or a tensor of several numbers
        raise type_error(function, argument, "a number", value) from None
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
