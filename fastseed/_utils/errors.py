"""Errors with more to tell than their text."""

from __future__ import annotations

import itertools
from typing import Any


class ReseedError(RuntimeError):
    """Some generators could not be reseeded; all others were.

    Calling ``reseed`` again, once the cause is gone, gives exactly the state of a clean run.

    Attributes:
        failures: what each failing generator raised, by stream name.
    """

    def __init__(self, failures: dict[str, Exception]) -> None:
        reasons = "; ".join(f"{name}: {_short(repr(e))}" for name, e in failures.items())
        super().__init__(f"fastseed.reseed: these generators were not reseeded: {reasons}")
        self.failures = failures

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.failures,)


def _short(text: str) -> str:
    return text if len(text) <= 500 else f"{text[:497]}..."


def reseed_error(failures: dict[str, Exception]) -> ReseedError:
    """The error to raise, with the failures chained one behind another for the traceback."""
    chain = list(failures.values())
    for error, following in itertools.pairwise(chain):
        if error.__context__ is None and error is not following:
            error.__context__ = following
    whole = ReseedError(failures)
    whole.__cause__ = chain[0]
    return whole
