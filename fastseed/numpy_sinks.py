"""How one 128-bit key becomes the state of NumPy's generators, old and new."""

from __future__ import annotations

import ctypes
import functools
import json
import sys
from typing import Any, cast

import numpy as np
import torch

from . import _native, _ops
from .sinks import LOW64, MT_WORDS, check_mt_words, pack, unpack


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
        return pack(json.dumps(_plain(self._get())).encode())

    def _parse(self, state: torch.Tensor) -> dict[str, Any]:
        try:
            parsed = _rich(json.loads(unpack(state)))
        except (ValueError, TypeError) as error:
            raise ValueError(f"it is not the state of a NumPy generator: {error}") from error
        here = type(self._target()).__name__
        there = parsed.get("bit_generator") if isinstance(parsed, dict) else None
        if there != here:
            raise ValueError(f"its bit generator must be {here}, got {there!r}")
        if here == "MT19937":
            inner = parsed.get("state", {})
            words = inner.get("key") if isinstance(inner, dict) else None
            if not isinstance(words, np.ndarray) or words.shape != (MT_WORDS,):
                raise ValueError(f"it must hold {MT_WORDS} words")
            check_mt_words(words, int(inner.get("pos", -1)))
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


@functools.cache
def _cached_gauss_offset() -> int | None:
    """Where a RandomState keeps the flag that a Gaussian is cached, which is only ever read.

    Found by trying: on a scratch instance, setting the flag through the public state changes one
    byte of it and no other. None where that is not so.
    """
    if sys.implementation.name != "cpython":
        return None
    scratch: Any = np.random.RandomState(0)
    seen = []
    for flag in (0, 1, 0, 1):
        scratch.set_state({**scratch.get_state(legacy=False), "has_gauss": flag, "gauss": 0.5})
        held = ctypes.string_at(id(scratch), type(scratch).__basicsize__)
        seen.append(np.frombuffer(held, np.uint8).astype(np.int16))
    (changed,) = np.nonzero(seen[1] - seen[0])
    repeats = np.array_equal(seen[0], seen[2]) and np.array_equal(seen[1], seen[3])
    if not repeats or len(changed) != 1 or changed[0] % 4 != 0:
        return None
    offset = int(changed[0])
    return offset if (seen[0][offset], seen[1][offset]) == (0, 1) else None


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
        self.cached = 0  # the address of the flag that a Gaussian is cached; 0 if not known
        source: Any = np.random if generator is None else generator
        self._normal = cast(Any, source.standard_normal)
        owner, offset = self._normal.__self__, _cached_gauss_offset()
        if offset is not None and type(owner) is np.random.RandomState:
            self.cached = id(owner) + offset

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
        held = np.frombuffer(ctypes.string_at(address, 4 * (MT_WORDS + 1)), np.uint32)
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
                if _native.generators.write_numpy(address, self.cached, key & LOW64, key >> 64):
                    self.finish(address)
        elif type(bit_generator) is np.random.MT19937:
            state = {"key": _ops.mt19937_state(key), "pos": MT_WORDS}
            self._set(
                {"bit_generator": "MT19937", "state": state, "has_gauss": 0, "gauss": 0.0},
            )
        else:
            _rebuild(bit_generator, key)
            self._set({**self._get(), "has_gauss": 0, "gauss": 0.0})

    def finish(self, address: int) -> None:
        """After ``write_numpy`` said so: empty the cached Gaussian.

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
