"""How one 128-bit key becomes the state of each random library.

Every sink here is a small class: ``reseed(key)`` sets the generator, ``state()`` packs what it
holds into a uint8 tensor, ``check(state)`` refuses what ``load(state)`` could not take. None of
them knows where keys come from (see :mod:`fastseed.streams`).
"""

from __future__ import annotations

import ctypes
import random
import struct
import sys
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import torch

from . import _native, _ops

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


def check_mt_words(words: np.ndarray[Any, Any], position: int) -> None:
    """An all-zero MT19937 state draws zeros for ever; only the top bit of word 0 counts."""
    if not 0 <= position <= MT_WORDS:
        raise ValueError(f"its position must be in [0, {MT_WORDS}], got {position}")
    if not (words[1:].any() or words[0] & 0x80000000):
        raise ValueError("its MT19937 words must not be all zero")


class PythonSink:
    """The global generator of the standard library's :mod:`random`, or one of its instances.

    Takes ``random.seed(key)``, all 128 bits. In CPython the same state is written in place when
    the memory of the instance was seen to hold what ``getstate`` says.
    """

    _FORMAT = struct.Struct(f"<{MT_WORDS}Iii?d")  # words, position, version, is a Gaussian cached?

    def __init__(self, generator: random.Random | None = None) -> None:
        # The hidden instance behind the module's functions, which others may have wrapped.
        self._generator: random.Random = random._inst if generator is None else generator
        self.address = self._find_state()

    def _find_state(self) -> int | None:
        """Where the instance keeps its index and words: right behind its header, in CPython."""
        generator = self._generator
        gil = getattr(sys, "_is_gil_enabled", lambda: True)()
        if (
            _native.generators is None
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
        _native.generators.write_python(self.address, key & LOW64, key >> 64)
        self.finish()

    def finish(self) -> None:
        """After the words were written in place: empty the cached Gaussian."""
        self._generator.gauss_next = None  # type: ignore[attr-defined]

    def state(self) -> torch.Tensor:
        """Words, position, and the cached Gaussian."""
        version, words, gauss = self._generator.getstate()
        return pack(
            self._FORMAT.pack(
                *words[:-1], words[-1], version, gauss is not None, 0.0 if gauss is None else gauss
            )
        )

    def _parse(self, state: torch.Tensor) -> tuple[Any, ...]:
        data = unpack(state)
        if len(data) != self._FORMAT.size:
            raise ValueError(f"it must be {self._FORMAT.size} bytes, got {len(data)}")
        *words, position, version, has_gauss, gauss = self._FORMAT.unpack(data)
        if version != 3:
            raise ValueError(f"its version must be 3, got {version}")
        check_mt_words(np.array(words, dtype=np.uint32), position)
        return version, (*words, position), gauss if has_gauss else None

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

    # What Generator.get_state() of a CPU generator begins with: the seed, left and seeded (int32),
    # next, then 624 words in 64 bits each. The rest holds cached normals, zero when there are none.
    _WORDS_AT, _SIZE = 24, 5056
    _FLAGS_AT = 5040, 5052  # that a double, a float normal is cached

    def __init__(self, generator: torch.Generator | None = None) -> None:
        self._generator = torch.default_generator if generator is None else generator

    def reseed(self, key: int) -> None:
        """Set the state that belongs to ``key``."""
        if _native.generators is not None:
            _native.generators.reseed(self._generator, key & LOW64, key >> 64)
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
        words = _ops.mt19937_state(key).astype(np.uint64).tobytes()
        head = struct.pack("=QiiQ", key & LOW64, 1, 1, 0) + words
        state[: len(head)] = pack(head)
        return state

    def state(self) -> torch.Tensor:
        """What :meth:`torch.Generator.get_state` gives."""
        return self._generator.get_state()

    def check(self, state: torch.Tensor) -> None:
        """See :class:`Sink`. torch itself takes an all-zero state, and then draws zeros."""
        size = self._generator.get_state().numel()
        if state.numel() != size:
            raise ValueError(f"it must be {size} bytes, got {state.numel()}")
        if self._generator.device.type == "cuda" and size == 16:
            (offset,) = struct.unpack_from("=q", unpack(state), 8)
            if offset < 0 or offset % 4 != 0:
                raise ValueError(f"its offset must be a multiple of 4, got {offset}")
        if self._is_mt19937():
            data = unpack(state)
            flags = struct.unpack_from("=i", data, self._FLAGS_AT[0])[0], data[self._FLAGS_AT[1]]
            if not {*flags} <= {0, 1}:
                raise ValueError(f"its flags of cached normals must be 0 or 1, got {flags}")
            _, left, seeded, after = struct.unpack_from("=QiiQ", data)
            words = np.frombuffer(data, np.uint64, MT_WORDS, self._WORDS_AT)
            # Fresh from a seed, or one of 624 words after another: all that torch itself writes.
            in_place = (left, after) == (1, 0) or (1 <= left <= MT_WORDS and left + after == 625)
            if seeded != 1 or not in_place or (words >> np.uint64(32)).any():
                raise ValueError("it must be the state of a torch CPU generator")
            check_mt_words(words.astype(np.uint32), after)

    def load(self, state: torch.Tensor) -> None:
        """See :class:`Sink`. A copy, because torch (2.13) crashes on a view with an offset."""
        self._generator.set_state(pack(unpack(state)))


class CallableSink:
    """``f(seed: int)``, called with the lowest ``bits`` bits of the key."""

    def __init__(self, function: Callable[[int], Any], bits: int = 31) -> None:
        self._function = function
        self._mask = (1 << bits) - 1

    def reseed(self, key: int) -> None:
        """Call the function; what it raises comes through."""
        self._function(key & self._mask)

    def state(self) -> None:
        """A function's state cannot be read."""

    def check(self, state: torch.Tensor) -> None:
        """See :class:`Sink`."""
        raise ValueError("a callable has no state to put back")

    def load(self, state: torch.Tensor) -> None:
        """See :class:`Sink`."""
        self.check(state)
