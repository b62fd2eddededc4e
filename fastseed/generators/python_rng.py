"""The adapter of Python's ``random``."""

from __future__ import annotations

import functools
import random
import struct
from collections.abc import Callable

import torch

from ..derivation.streams import Stream
from .adapter import MT_WORDS, pack_mt19937, unpack_mt19937

_VERSION = 3  # of random.getstate(), in every supported Python
_WORDS = struct.Struct(f"<{MT_WORDS}I")


State = tuple[int, tuple[int, ...], float | None]  # of random.getstate()


class PythonRandom:
    """The global generator of ``random``, or a ``random.Random``.

    It takes all 128 bits of the key by ``random.seed(key)``.
    """

    is_bulk = False

    def __init__(self, generator: random.Random | None = None) -> None:
        # The instance behind the module's functions, which other tools may have replaced.
        self._generator: random.Random = random._inst if generator is None else generator

    def reseed(self, stream: Stream) -> None:
        """Seed with the key of ``stream``."""
        self.seed(stream.key())

    def seed(self, key: int) -> None:
        """Seed with all 128 bits of ``key``."""
        self._generator.seed(key)

    def hold(self) -> Callable[[], None]:
        """Return a function that restores the exact state of this moment."""
        return functools.partial(self._generator.setstate, self._generator.getstate())

    def state(self) -> torch.Tensor:
        """Return ``getstate()`` as bytes."""
        _, words, gauss = self._generator.getstate()
        return pack_mt19937(words[:-1], words[-1], gauss)

    def parse_state(self, state: torch.Tensor) -> State:
        """Return what ``setstate()`` takes; ValueError if the state is invalid."""
        words, position, gauss = unpack_mt19937(state)
        return _VERSION, (*_WORDS.unpack(words), position), gauss

    def load_state(self, parsed: State) -> None:
        """Restore a state that ``parse_state`` returned."""
        self._generator.setstate(parsed)
