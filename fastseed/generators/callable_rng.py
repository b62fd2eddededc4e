"""The adapter of a function that seeds something."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

import torch

from ..derivation.streams import Stream

BITS = (31, 32, 63, 64, 128)
"""The sizes of seeds that a callable can be registered with."""


class SeedFunction:
    """``f(seed: int)``, called with a seed of ``bits`` bits."""

    is_bulk = False

    def __init__(self, function: Callable[[int], object], bits: int = 31) -> None:
        self._function = function
        self.bits = bits

    def reseed(self, stream: Stream) -> None:
        """Call the function with a seed of ``stream``; its exceptions are not caught."""
        self._function(stream.seed(self.bits))

    def state(self) -> None:
        """Return None: the state behind a function cannot be read."""

    def parse_state(self, state: torch.Tensor) -> NoReturn:
        """Raise ValueError: there is no state to restore."""
        raise ValueError("a callable has no state to restore")

    def save(self) -> None:
        """Return None: there is nothing to restore."""

    def restore(self, saved: None) -> None:
        """Do nothing."""
