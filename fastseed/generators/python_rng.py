"""The adapter of Python's :mod:`random`."""

from __future__ import annotations

import random

import torch

from ..derivation.streams import Stream
from .adapter import pack_mt19937, unpack_mt19937

_VERSION = 3  # of random.getstate(), in every supported Python


class PythonRandom:
    """The global generator of :mod:`random`, or a :class:`random.Random`.

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

    def state(self) -> torch.Tensor:
        """Return ``getstate()`` as bytes."""
        _, words, gauss = self._generator.getstate()
        return pack_mt19937(words[:-1], words[-1], gauss)

    def check_state(self, state: torch.Tensor) -> None:
        """Raise ValueError unless :meth:`load_state` accepts ``state``."""
        unpack_mt19937(state)

    def load_state(self, state: torch.Tensor) -> None:
        """Restore what :meth:`state` returned, by ``setstate()``."""
        words, position, gauss = unpack_mt19937(state)
        self._generator.setstate((_VERSION, (*words.tolist(), position), gauss))
