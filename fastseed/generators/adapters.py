"""How one 128-bit key becomes the state of each random library.

Every sink here is a small class: ``reseed(key)`` sets the generator, ``state()`` packs what it
holds into a uint8 tensor, ``check(state)`` refuses what ``load(state)`` could not take. None of
them knows where keys come from (see :mod:`fastseed.derivation.streams`).
"""

from __future__ import annotations

import ctypes
import math
import random
import struct
import sys
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from .._backend import derive_ops, native

LOW64 = 2**64 - 1
BITS = (31, 32, 63, 64, 128)
MT_WORDS = 624


class Sink(Protocol):
    """A generator that takes a key."""

    def reseed(self, key: int) -> None:
        """Set the generator's whole state from ``key`` (128 bits)."""

    def state(self) -> torch.Tensor | None:
        """The exact state as a 1-D uint8 tensor; None where it cannot be read."""

    def check(self, state: torch.Tensor) -> None:
        """Raise ValueError unless :meth:`load` would accept ``state``. Changes nothing."""

    def load(self, state: torch.Tensor) -> None:
        """Put back what :meth:`state` gave."""


def pack(data: bytes) -> torch.Tensor:
    """Bytes as a 1-D uint8 tensor."""
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def unpack(state: torch.Tensor) -> bytes:
    """The inverse of :func:`pack`."""
    return state.contiguous().cpu().numpy().tobytes()


class PackedMT:
    """A packed MT19937: its words, position and flags of what is cached, then what is cached.

    Little-endian, the same on every machine; ``csrc/python/states.cpp`` writes the same.

    Args:
        cached: what may be cached, as codes of :mod:`struct`; bit i of the flags says whether
            the i-th of them is, which is zero otherwise.
        extra: what follows the flags otherwise.
    """

    HEAD = struct.Struct(f"<{4 * MT_WORDS}sHH")

    def __init__(self, cached: str = "d", extra: str = "") -> None:
        self._cached, self._extra = len(cached), len(extra)
        self._tail = struct.Struct(f"<{extra}{cached}")
        self.size = self.HEAD.size + self._tail.size

    def pack(self, words: Any, position: int, extra: tuple[int, ...], *cached: Any) -> bytes:
        """``words`` as 624 integers; ``cached`` with None for what is not."""
        flags = sum((value is not None) << i for i, value in enumerate(cached))
        held = (0.0 if value is None else value for value in cached)
        data = np.asarray(words).astype("<u4").tobytes()
        return self.HEAD.pack(data, position, flags) + self._tail.pack(*extra, *held)

    def unpack(self, data: bytes) -> tuple[npt.NDArray[np.uint32], int, tuple[Any, ...]]:
        """Words, position, and what was packed behind them; ValueError if it is damaged."""
        if len(data) != self.size:
            raise ValueError(f"it must hold {self.size} bytes, got {len(data)}")
        raw, position, flags = self.HEAD.unpack_from(data)
        words = np.frombuffer(raw, "<u4").astype(np.uint32)
        if position > MT_WORDS:
            raise ValueError(f"its position must be in [0, {MT_WORDS}], got {position}")
        # It would draw zeros for ever. Of word 0, the recurrence reads the top bit alone.
        if not (words[1:].any() or words[0] & 0x80000000):
            raise ValueError("its MT19937 words must not be all zero")
        if flags >= 1 << self._cached:
            raise ValueError(f"its flags must be below {1 << self._cached}, got {flags}")
        tail = list(self._tail.unpack_from(data, self.HEAD.size))
        for i in range(self._cached):
            if not flags >> i & 1:
                at = self._extra + i
                if tail[at] != 0 or math.copysign(1, tail[at]) < 0:
                    raise ValueError(f"what is not cached must be 0, got {tail[at]}")
                tail[at] = None
        return words, position, tuple(tail)


class PythonSink:
    """The global generator of the standard library's :mod:`random`, or one of its instances.

    Takes ``random.seed(key)``, all 128 bits. In CPython the same state is written in place when
    the memory of the instance was seen to hold what ``getstate`` says.
    """

    _FORMAT = PackedMT()

    def __init__(self, generator: random.Random | None = None) -> None:
        # The hidden instance behind the module's functions, which others may have wrapped.
        self._generator: random.Random = random._inst if generator is None else generator
        self.address = self._find_state()

    def _find_state(self) -> int | None:
        """Where the instance keeps its index and words: right behind its header, in CPython."""
        generator = self._generator
        gil = getattr(sys, "_is_gil_enabled", lambda: True)()
        if (
            native.generators is None
            or sys.implementation.name != "cpython"
            or not gil
            or type(generator) is not random.Random
        ):
            return None
        address = id(generator) + object.__basicsize__
        size = 4 * (MT_WORDS + 1)
        if random.Random.__basicsize__ < object.__basicsize__ + size:
            return None
        held = struct.unpack(f"=i{MT_WORDS}I", ctypes.string_at(address, size))
        version, words, _ = generator.getstate()
        return address if version == 3 and words == (*held[1:], held[0]) else None

    def reseed(self, key: int) -> None:
        """Seed with all 128 bits of ``key`` (:func:`random.seed` hashes no information away)."""
        if self.address is None:
            self._generator.seed(key)
            return
        native.generators.write_python(self.address, key & LOW64, key >> 64)
        self.finish()

    def finish(self) -> None:
        """After the words were written in place: empty the cached Gaussian."""
        self._generator.gauss_next = None  # type: ignore[attr-defined]

    @property
    def gauss(self) -> float | None:
        """The cached Gaussian."""
        return self._generator.gauss_next  # type: ignore[attr-defined,no-any-return]

    @gauss.setter
    def gauss(self, value: float | None) -> None:
        self._generator.gauss_next = value  # type: ignore[attr-defined]

    def state(self) -> torch.Tensor:
        """Words, position, and the cached Gaussian."""
        version, words, gauss = self._generator.getstate()
        if version != 3:
            raise RuntimeError(
                f"fastseed.state_dict: Python's random must have states of version 3, got {version}"
            )
        return pack(self._FORMAT.pack(words[:-1], words[-1], (), gauss))

    def _parse(self, state: torch.Tensor) -> tuple[Any, ...]:
        words, position, (gauss,) = self._FORMAT.unpack(unpack(state))
        return 3, (*words.tolist(), position), gauss

    def check(self, state: torch.Tensor) -> None:
        """See :class:`Sink`."""
        self._parse(state)

    def load(self, state: torch.Tensor) -> None:
        """See :class:`Sink`."""
        self._generator.setstate(self._parse(state))


class TorchSink:
    """A :class:`torch.Generator` of any device; the default one of the CPU unless given.

    On the CPU it takes the full MT19937 state and reports the key's low 64 bits as its seed; on
    other devices that seed, at offset 0. The generator's mutex is held while it is written.
    """

    # Generator.get_state() of a CPU generator: the seed, left and seeded (int32), next, 624 words
    # in 64 bits each; a cached normal between two doubles that torch no longer uses, and whether
    # there is one; a cached float normal, and whether there is one.
    _TORCH = struct.Struct(f"=QiiQ{8 * MT_WORDS}sdddi4xfB3x")
    _SIZE = _TORCH.size
    _FORMAT = PackedMT("df", "Q")

    def __init__(self, generator: torch.Generator | None = None) -> None:
        self._generator = torch.default_generator if generator is None else generator

    def reseed(self, key: int) -> None:
        """Set the state that belongs to ``key``."""
        if native.generators is not None:
            native.generators.reseed(self._generator, key & LOW64, key >> 64)
        elif self._is_mt19937():
            self._generator.set_state(self._full_state(key))
        else:
            self._generator.manual_seed(key & LOW64)

    def _is_mt19937(self) -> bool:
        """Whether it is torch's own CPU generator; other libraries have some on the CPU too."""
        cpu = self._generator.device.type == "cpu"
        return cpu and self._generator.get_state().numel() == self._SIZE

    def _full_state(self, key: int) -> torch.Tensor:
        state = torch.zeros_like(self._generator.get_state())
        words = derive_ops.mt19937_state(key).astype(np.uint64).tobytes()
        head = struct.pack("=QiiQ", key & LOW64, 1, 1, 0) + words
        state[: len(head)] = pack(head)
        return state

    def state(self) -> torch.Tensor:
        """Packed where it is torch's own CPU generator; else what ``get_state`` gives."""
        whole = self._generator.get_state()
        if not self._is_mt19937():
            return whole
        held = self._TORCH.unpack(unpack(whole))
        seed, left, seeded, after, words, _, normal, _, cached, float_normal, float_cached = held
        # Fresh from a seed, or one of 624 words after another: all that torch itself writes.
        if seeded != 1 or left != self._left(after):
            raise RuntimeError(
                "fastseed.state_dict: a torch CPU generator must hold a state that torch made, "
                f"got one with {left} words left after {after}"
            )
        packed = self._FORMAT.pack(
            np.frombuffer(words, np.uint64),
            after,
            (seed,),
            normal if cached else None,
            float_normal if float_cached else None,
        )
        return pack(packed)

    def whole(self) -> torch.Tensor:
        """What ``get_state`` gives, whoever made it."""
        return self._generator.get_state()

    def size(self) -> int:
        """The bytes of :meth:`state`."""
        return self._FORMAT.size if self._is_mt19937() else self._generator.get_state().numel()

    @staticmethod
    def _left(after: int) -> int:
        """How many words torch counts as left when the next one is number ``after``."""
        return 1 if after == 0 else MT_WORDS + 1 - after

    def _parse(self, state: torch.Tensor) -> bytes:
        """What ``set_state`` takes."""
        data = unpack(state)
        if self._is_mt19937():
            words, after, (seed, normal, float_normal) = self._FORMAT.unpack(data)
            return self._TORCH.pack(
                *(seed, self._left(after), 1, after, words.astype(np.uint64).tobytes()),
                *(0.0, normal or 0.0, 0.0, normal is not None),
                *(float_normal or 0.0, float_normal is not None),
            )
        size = self._generator.get_state().numel()
        if len(data) != size:
            raise ValueError(f"it must hold {size} bytes, got {len(data)}")
        if self._generator.device.type == "cuda" and size == 16:
            (offset,) = struct.unpack_from("=q", data, 8)
            if offset < 0 or offset % 4 != 0:
                raise ValueError(f"its offset must be a multiple of 4, got {offset}")
        return data

    def check(self, state: torch.Tensor) -> None:
        """See :class:`Sink`. torch itself takes an all-zero state, and then draws zeros."""
        self._parse(state)

    def load(self, state: torch.Tensor) -> None:
        """See :class:`Sink`. A copy, because torch (2.13) crashes on a view with an offset."""
        self._generator.set_state(pack(self._parse(state)))


class CallableSink:
    """``f(seed: int)``, called with a seed of ``bits`` bits."""

    def __init__(self, function: Callable[[int], Any], bits: int = 31) -> None:
        self._function = function
        self.bits = bits

    def call(self, seed: int) -> None:
        """Call the function; what it raises comes through."""
        self._function(seed)

    def reseed(self, key: int) -> None:
        """Call it with the lowest bits of ``key``."""
        self.call(key & (1 << self.bits) - 1)

    def state(self) -> None:
        """A function's state cannot be read."""

    def check(self, state: torch.Tensor) -> None:
        """See :class:`Sink`."""
        raise ValueError("a callable has no state to put back")

    def load(self, state: torch.Tensor) -> None:
        """See :class:`Sink`."""
        self.check(state)
