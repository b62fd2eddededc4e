"""The adapter of Python's ``random``."""

from __future__ import annotations

import random
import struct
from typing import Any

import torch

from ..derivation.streams import Stream
from .adapter import MT_WORDS, adapts, pack_mt19937, unpack_mt19937

_VERSION = 3  # of random.getstate(), in every supported Python
_WORDS = struct.Struct(f"<{MT_WORDS}I")

State = tuple[int, tuple[int, ...], float | None]  # of random.getstate()


@adapts(random.Random)
class PythonRandom:
    """The global generator of ``random``, or a ``random.Random``.

    It takes all 128 bits of the key by ``random.seed(key)``.
    """

    def __init__(self, generator: random.Random | None = None) -> None:
        self._generator: Any = random if generator is None else generator

    def reseed(self, stream: Stream) -> None:
        self._generator.seed(stream.key())

    def save(self) -> State:
        state: State = self._generator.getstate()
        return state

    def restore(self, saved: State) -> None:
        self._generator.setstate(saved)

    def state(self) -> torch.Tensor:
        _, words, gauss = self._generator.getstate()
        return pack_mt19937(words[:-1], words[-1], gauss)

    def parse_state(self, state: torch.Tensor) -> State:
        words, position, gauss = unpack_mt19937(state)
        return _VERSION, (*_WORDS.unpack(words), position), gauss
