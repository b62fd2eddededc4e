"""How one 128-bit key becomes the state of each random library.

Every sink here is a small class: ``reseed(key)`` sets the generator, ``state()`` packs what it
holds into a uint8 tensor, ``check(state)`` refuses what ``load(state)`` could not take. None of
them knows where keys come from (see :mod:`fastseed.streams`).
"""

from __future__ import annotations

import ctypes
import json
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
_MT_WORDS = 624


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


def _pack(data: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def _unpack(state: torch.Tensor) -> bytes:
    return state.contiguous().cpu().numpy().tobytes()


def _check_mt_words(words: np.ndarray[Any, Any], position: int) -> None:
    """An all-zero MT19937 state draws zeros for ever; only the top bit of word 0 counts."""
    if not 0 <= position <= _MT_WORDS:
        raise ValueError(f"its position must be in [0, {_MT_WORDS}], got {position}")
    if not (words[1:].any() or words[0] & 0x80000000):
        raise ValueError("its MT19937 words must not be all zero")


class PythonSink:
    """The global generator of the standard library's :mod:`random`, or one of its instances.

    Takes ``random.seed(key)``, all 128 bits. In CPython the same state is written in place when
    the memory of the instance was seen to hold what ``getstate`` says.
    """

    _FORMAT = struct.Struct(f"<{_MT_WORDS}Iii?d")  # words, position, version, is a Gaussian cached?

    def __init__(self, generator: random.Random | None = None) -> None:
        # The bound method's owner is the hidden instance behind the module's functions.
        self._generator: random.Random = generator or random.seed.__self__  # type: ignore[attr-defined]
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
        size = 4 * (_MT_WORDS + 1)
        if random.Random.__basicsize__ < object.__basicsize__ + size:
            return None
        held = struct.unpack(f"=i{_MT_WORDS}I", ctypes.string_at(address, size))
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
        return _pack(
            self._FORMAT.pack(
                *words[:-1], words[-1], version, gauss is not None, 0.0 if gauss is None else gauss
            )
        )

    def _parse(self, state: torch.Tensor) -> tuple[Any, ...]:
        data = _unpack(state)
        if len(data) != self._FORMAT.size:
            raise ValueError(f"it must be {self._FORMAT.size} bytes, got {len(data)}")
        *words, position, version, has_gauss, gauss = self._FORMAT.unpack(data)
        if version != 3:
            raise ValueError(f"its version must be 3, got {version}")
        _check_mt_words(np.array(words, dtype=np.uint32), position)
        return version, (*words, position), gauss if has_gauss else None

    def check(self, state: torch.Tensor) -> None:
        """See :class:`Sink`."""
        self._parse(state)

    def load(self, state: torch.Tensor) -> None:
        """See :class:`Sink`."""
        self._generator.setstate(self._parse(state))


def _rebuild(bit_generator: Any, key: int) -> None:
    """The bit generator as if newly made from ``SeedSequence(key)``, in place."""
    fresh = type(bit_generator)(np.random.SeedSequence(key))
    state = fresh.__getstate__()
    if isinstance(state, tuple):  # with its seed sequence, so that spawn() follows
        bit_generator.__setstate__(state)
    else:
        bit_generator.state = fresh.state


def _plain(value: Any) -> Any:
    """A bit generator's state in types that JSON has."""
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, np.ndarray):
        return {"dtype": str(value.dtype), "values": value.tolist()}
    return int(value) if isinstance(value, np.integer) else value


def _rich(value: Any) -> Any:
    """The inverse of :func:`_plain`."""
    if isinstance(value, dict):
        if set(value) == {"dtype", "values"}:
            return np.array(value["values"], dtype=value["dtype"])
        return {k: _rich(v) for k, v in value.items()}
    return value


class _NumpyState:
    """Exact state of a NumPy generator of any kind, as JSON (never pickle)."""

    def _target(self) -> Any:
        raise NotImplementedError

    def _get(self) -> dict[str, Any]:
        raise NotImplementedError

    def _set(self, state: dict[str, Any]) -> None:
        raise NotImplementedError

    def state(self) -> torch.Tensor:
        """See :class:`Sink`."""
        return _pack(json.dumps(_plain(self._get())).encode())

    def _parse(self, state: torch.Tensor) -> dict[str, Any]:
        try:
            parsed = _rich(json.loads(_unpack(state)))
        except (ValueError, TypeError) as error:
            raise ValueError(f"it is not the state of a NumPy generator: {error}") from error
        here = type(self._target()).__name__
        there = parsed.get("bit_generator") if isinstance(parsed, dict) else None
        if there != here:
            raise ValueError(f"its bit generator must be {here}, got {there!r}")
        if here == "MT19937":
            inner = parsed.get("state", {})
            words = inner.get("key") if isinstance(inner, dict) else None
            if not isinstance(words, np.ndarray) or words.shape != (_MT_WORDS,):
                raise ValueError(f"it must hold {_MT_WORDS} words")
            _check_mt_words(words, int(inner.get("pos", -1)))
        try:
            type(self._target())().state = parsed  # a scratch one takes it, so ours will
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"it is not the state of a {here}: {error!r}") from error
        return dict(parsed)

    def check(self, state: torch.Tensor) -> None:
        """See :class:`Sink`."""
        self._parse(state)

    def load(self, state: torch.Tensor) -> None:
        """See :class:`Sink`."""
        self._set(self._parse(state))


class NumpyLegacySink(_NumpyState):
    """NumPy's global generator, or a :class:`numpy.random.RandomState`.

    Takes the full MT19937 state; the cached Gaussian is cleared. Where NumPy documents the state's
    address (``bit_generator.ctypes.state_address``) and it was seen to hold what the public state
    says, the words are written there. A global generator on another bit generator
    (``numpy.random.set_bit_generator``) is rebuilt from a ``SeedSequence``.
    """

    def __init__(self, generator: np.random.RandomState | None = None) -> None:
        self._generator = generator
        self._seen: Any = None  # the bit generator whose address was looked at
        self._address: int | None = None
        self.lock: Any = None  # which NumPy itself takes for each draw
        self._normal: Callable[[], float] = (
            np.random.standard_normal if generator is None else generator.standard_normal
        )

    def _target(self) -> Any:
        if self._generator is None:
            return np.random.get_bit_generator()  # type: ignore[attr-defined]
        return self._generator._bit_generator

    def _get(self) -> dict[str, Any]:
        owner: Any = np.random if self._generator is None else self._generator
        state: dict[str, Any] = owner.get_state(legacy=False)
        return state

    def _set(self, state: dict[str, Any]) -> None:
        owner: Any = np.random if self._generator is None else self._generator
        owner.set_state(state)

    def _find_address(self, bit_generator: Any) -> int | None:
        if _native.generators is None or type(bit_generator) is not np.random.MT19937:
            return None
        if type(bit_generator.lock).__name__ != "RLock":  # we draw while we hold it
            return None
        address = int(bit_generator.ctypes.state_address)
        held = np.frombuffer(ctypes.string_at(address, 4 * (_MT_WORDS + 1)), np.uint32)
        public = bit_generator.state["state"]
        same = np.array_equal(held[:-1], public["key"]) and int(held[-1]) == public["pos"]
        return address if same else None

    def address(self) -> int | None:
        """Where the words may be written by whoever holds :attr:`lock`."""
        bit_generator = self._target()
        if bit_generator is not self._seen:
            self._address = self._find_address(bit_generator)
            self._seen, self.lock = bit_generator, bit_generator.lock
        return self._address

    def reseed(self, key: int) -> None:
        """All 624 words from all 128 bits of ``key``; the next draw starts a new block of them."""
        address = self.address()
        bit_generator = self._target()
        if address is not None:
            with self.lock:
                _native.generators.write_numpy(address, key & LOW64, key >> 64)
                self.finish(address)
        elif type(bit_generator) is np.random.MT19937:
            state = {"key": _ops.mt19937_state(key), "pos": _MT_WORDS}
            self._set(
                {"bit_generator": "MT19937", "state": state, "has_gauss": 0, "gauss": 0.0},
            )
        else:
            _rebuild(bit_generator, key)
            self._set({**self._get(), "has_gauss": 0, "gauss": 0.0})

    def finish(self, address: int) -> None:
        """After words were written with position 0: empty the cached Gaussian.

        There is no public way to clear it alone. So one is drawn: either it was the cached one, or
        two were made and the second is drawn too. No draw from position 0 changes a word.
        """
        self._normal()
        if _native.generators.finish_numpy(address):
            self._normal()


class NumpySink(_NumpyState):
    """A :class:`numpy.random.Generator`: its bit generator is rebuilt from the key, in place."""

    def __init__(self, generator: np.random.Generator) -> None:
        self._generator = generator

    def _target(self) -> Any:
        return self._generator.bit_generator

    def _get(self) -> dict[str, Any]:
        return dict(self._target().state)

    def _set(self, state: dict[str, Any]) -> None:
        self._target().state = state

    def reseed(self, key: int) -> None:
        """As if the bit generator had been made from ``SeedSequence(key)``."""
        with self._target().lock:
            _rebuild(self._target(), key)


class TorchSink:
    """A :class:`torch.Generator` of any device; the default one of the CPU unless given.

    On the CPU it takes the full MT19937 state and reports the key's low 64 bits as its seed; on
    other devices that seed, at offset 0. The generator's mutex is held while it is written.
    """

    # What Generator.get_state() of a CPU generator begins with: the seed, left and seeded (int32),
    # next, then 624 words in 64 bits each. The rest holds cached normals, zero when there are none.
    _WORDS_AT = 24

    def __init__(self, generator: torch.Generator | None = None) -> None:
        self._generator = torch.default_generator if generator is None else generator

    def reseed(self, key: int) -> None:
        """Set the state that belongs to ``key``."""
        if _native.generators is not None:
            _native.generators.reseed(self._generator, key & LOW64, key >> 64)
        elif self._generator.device.type == "cpu":
            self._generator.set_state(self._full_state(key))
        else:
            self._generator.manual_seed(key & LOW64)

    def _full_state(self, key: int) -> torch.Tensor:
        state = torch.zeros_like(self._generator.get_state())
        words = _ops.mt19937_state(key).astype(np.uint64).tobytes()
        head = struct.pack("=QiiQ", key & LOW64, 1, 1, 0) + words
        state[: len(head)] = _pack(head)
        return state

    def state(self) -> torch.Tensor:
        """What :meth:`torch.Generator.get_state` gives."""
        return self._generator.get_state()

    def check(self, state: torch.Tensor) -> None:
        """See :class:`Sink`. torch itself takes an all-zero state, and then draws zeros."""
        size = self._generator.get_state().numel()
        if state.numel() != size:
            raise ValueError(f"it must be {size} bytes, got {state.numel()}")
        if self._generator.device.type == "cpu":
            data = _unpack(state)
            _, left, seeded, after = struct.unpack_from("=QiiQ", data)
            words = np.frombuffer(data, np.uint64, _MT_WORDS, self._WORDS_AT)
            if seeded != 1 or not 1 <= left <= _MT_WORDS or (words >> np.uint64(32)).any():
                raise ValueError("it must be the state of a torch CPU generator")
            _check_mt_words(words.astype(np.uint32), after)

    def load(self, state: torch.Tensor) -> None:
        """See :class:`Sink`."""
        self._generator.set_state(state)


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
