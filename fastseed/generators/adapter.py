"""The protocol of generator adapters, and how exact states are written as bytes."""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from ..derivation.streams import Stream

LOW64 = 2**64 - 1
MT_WORDS = 624

# A state of MT19937 as Python's random and NumPy describe it: the words, the position, whether a
# Gaussian is cached, and that Gaussian (else 0).
_MT19937 = struct.Struct(f"<{4 * MT_WORDS}sIId")
MT19937_BYTES = _MT19937.size


class GeneratorAdapter(Protocol):
    """Sets, saves and restores the state of one generator, or of a group of them."""

    def reseed(self, stream: Stream) -> None:
        """Set the whole state from the keys of ``stream``."""

    def save(self) -> Any:
        """Return the exact state of this moment, for ``restore`` in this process."""

    def restore(self, saved: Any) -> None:
        """Restore what ``save`` or ``parse_state`` returned."""

    def state(self) -> torch.Tensor | None:
        """Return the exact state as a 1-D uint8 tensor; None if it cannot be read now."""

    def parse_state(self, state: torch.Tensor) -> Any:
        """Return a state in the form that ``restore`` takes; ValueError if it is invalid."""


ADAPTERS: dict[type, Callable[[Any], GeneratorAdapter]] = {}
"""The adapter of a generator, by the generator's class."""

A = TypeVar("A", bound=Callable[..., Any])


def adapts(kind: type) -> Callable[[A], A]:
    """Make a class the adapter of generators of ``kind`` and of its subclasses."""

    def add(adapter: A) -> A:
        ADAPTERS[kind] = adapter
        return adapter

    return add


def adapter_of(kind: type) -> Callable[[Any], GeneratorAdapter] | None:
    """Return the adapter of generators of a class; None for any other class."""
    if not issubclass(kind, tuple(ADAPTERS)) or issubclass(kind, random.SystemRandom):
        return None  # a SystemRandom takes no seed
    return next(ADAPTERS[base] for base in kind.__mro__ if base in ADAPTERS)


class MembersAdapter:
    """The adapter of a ``GeneratorPool`` or a ``StreamBank``: member i has the key of index i."""

    def __init__(self, target: Any) -> None:
        self.target = target

    def reseed(self, stream: Stream) -> None:
        self.target._reseed_members(stream)

    def state(self) -> torch.Tensor:
        states: torch.Tensor = self.target._pack()
        return states

    def parse_state(self, state: torch.Tensor) -> Any:
        return self.target._parse(state)

    def save(self) -> Any:
        return self.target._parse(self.target._pack())

    def restore(self, saved: Any) -> None:
        self.target._load(saved)


def pack(data: bytes) -> torch.Tensor:
    """Return bytes as a 1-D uint8 tensor."""
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def unpack(state: torch.Tensor) -> bytes:
    """Return the bytes of a uint8 tensor."""
    return state.contiguous().cpu().numpy().tobytes()


def pack_mt19937(words: npt.ArrayLike, position: int, gauss: float | None) -> torch.Tensor:
    """Return a state of MT19937 as bytes; ``gauss`` is the cached Gaussian, if there is one."""
    data = np.array(words, "<u4").tobytes()
    return pack(_MT19937.pack(data, position, gauss is not None, gauss or 0.0))


def unpack_mt19937(state: torch.Tensor) -> tuple[bytes, int, float | None]:
    """Return the words, the position and the cached Gaussian; ValueError if one is invalid."""
    data = unpack(state)
    if len(data) != _MT19937.size:
        raise ValueError(f"it must be {_MT19937.size} bytes long, got {len(data)}")
    words, position, has_gauss, gauss = _MT19937.unpack(data)
    if position > MT_WORDS:
        raise ValueError(f"its position must be in [0, {MT_WORDS}], got {position}")
    check_words(np.frombuffer(words, "<u4"))
    if has_gauss > 1 or not math.isfinite(gauss):
        raise ValueError(f"its cached Gaussian must be one finite number, got {has_gauss}, {gauss}")
    return words, position, gauss if has_gauss else None


def check_words(words: npt.NDArray[np.integer[Any]]) -> None:
    """Refuse the one state of MT19937 from which every random number is zero."""
    if not (int(words[0]) & 0x80000000 or words[1:].any()):  # the other bits of word 0 are unused
        raise ValueError("its MT19937 words must not all be zero")
