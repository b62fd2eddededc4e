"""Strict JSON (RFC 8259): no NaN, no number beyond a double, no duplicate key."""

from __future__ import annotations

import hashlib
import json
import math
from typing import NoReturn

from . import JSON, StateDict


class Invalid(ValueError):
    """The reason that a document is refused; completes the sentence "it must be …"."""


def parse(text: str | bytes) -> JSON:
    """Return the value that ``text`` holds, or raise Invalid."""
    try:
        return json.loads(
            text, object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite
        )
    except Invalid:
        raise
    except RecursionError:
        raise Invalid("nested less deeply") from None
    except ValueError as error:
        raise Invalid(f"a whole JSON document ({error})") from None


def signed(fields: StateDict) -> StateDict:
    """Return an object with the SHA-256 of its other fields, which finds damage."""
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    return {**fields, "sha256": hashlib.sha256(text.encode()).hexdigest()}


def is_whole(given: StateDict) -> bool:
    """Return whether an object is as ``signed`` made it."""
    try:
        return signed({k: v for k, v in given.items() if k != "sha256"}) == given
    except (TypeError, ValueError, RecursionError):  # no JSON
        return False


def _unique(pairs: list[tuple[str, JSON]]) -> dict[str, JSON]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise Invalid("without duplicate keys")
    return found


def _no_constant(name: str) -> NoReturn:
    raise Invalid(f"without {name}")


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise Invalid(f"without {digits[:20]}")
    return number
