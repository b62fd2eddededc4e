"""Draws from Python's, NumPy's and torch's own generators before anything has seeded them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch

_MT_WORDS = 624
_FURTHEST = 1 << 15  # states of 624 words that are tried: some 20 million draws


def generations(
    start: np.ndarray[Any, Any], words: np.ndarray[Any, Any], furthest: int
) -> int | None:
    """How many times the 624 words of an MT19937 were made anew since ``start``; None if never."""
    scratch = np.random.MT19937()
    scratch.state = {"bit_generator": "MT19937", "state": {"key": start, "pos": _MT_WORDS}}
    for generation in range(furthest):
        # The first word holds one bit that counts, which seeding leaves open.
        if np.array_equal(scratch.state["state"]["key"][1:], words[1:]):
            return generation
        scratch.random_raw(_MT_WORDS, output=False)
    return None


class Unseeded:
    """The generators that have not been seeded yet, from a moment at which none has been."""

    def __init__(self) -> None:
        self._begun = {name: read() for name, (_, read) in _GLOBALS.items()}
        self._drawn: set[str] = set()

    def look(self) -> None:
        """Keep in mind which were drawn from up to here."""
        self._drawn |= {
            name for name, begun in self._begun.items()
            if begun is not None and _was_drawn(begun, _GLOBALS[name][1]())
        }  # fmt: skip

    def skip(self) -> None:
        """Draws since :meth:`look` do not count."""
        self._begun = {name: _GLOBALS[name][1]() for name in self._begun}

    def settle(self, names: Iterable[str] = ()) -> list[str]:
        """Those that were drawn from, in words; from now on they count as seeded.

        Args:
            names: ``python``, ``numpy``, ``torch``; all of them by default.
        """
        asked = [name for name in tuple(names) or _GLOBALS if name in self._begun]
        self.look()
        for name in asked:
            del self._begun[name]
        return [_GLOBALS[name][0] for name in asked if name in self._drawn]


def _was_drawn(begun: tuple[Any, Any], now: tuple[Any, Any] | None) -> bool:
    """Whether a state follows from another; one that does not was put there by somebody."""
    if now is None:
        return False
    (words, place), (later, later_place) = begun, now
    if isinstance(words, int):  # torch: its seed, and its state
        return bool(words == later and place != later_place)
    if np.array_equal(words, later):
        return bool(place != later_place)
    return generations(words, later, _FURTHEST) is not None


def _python() -> tuple[Any, Any]:
    words = random.getstate()[1]
    return np.array(words[:-1], np.uint32), words[-1]


def _numpy() -> tuple[Any, Any] | None:
    held: Any = np.random.get_state(legacy=False)
    if held["bit_generator"] != "MT19937":
        return None
    return held["state"]["key"].copy(), held["state"]["pos"]


def _torch() -> tuple[Any, Any]:
    return torch.initial_seed(), torch.get_rng_state().numpy().tobytes()


_GLOBALS: dict[str, tuple[str, Callable[[], tuple[Any, Any] | None]]] = {
    "python": ("Python's generator (the module random)", _python),
    "numpy": ("NumPy's generator (the module numpy.random)", _numpy),
    "torch": ("torch's generator", _torch),
}
