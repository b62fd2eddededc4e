"""The adapters of NumPy's generators, old and new."""

from __future__ import annotations

import ctypes
import functools
import json
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import torch

from .._backend import derive_ops, native
from ..derivation.streams import Stream
from .adapter import LOW64, MT_WORDS, pack, pack_mt19937, unpack, unpack_mt19937

_JSON_BLOCK = 1024


class NumpyGenerator:
    """A ``numpy.random.Generator``: its bit generator is rebuilt from the key, in place.

    The exact state is that of the bit generator. Of MT19937 it is the words; of the others it is
    JSON, padded with spaces: distributed checkpoints need a size that depends on the kind alone.
    """

    is_bulk = False

    def __init__(self, generator: np.random.Generator) -> None:
        self._generator: Any = generator

    def _bit_generator(self) -> Any:
        return self._generator.bit_generator

    def _get(self) -> dict[str, Any]:
        return dict(self._bit_generator().state)

    def _set(self, state: dict[str, Any]) -> None:
        self._bit_generator().state = state

    def reseed(self, stream: Stream) -> None:
        """Set the state of a bit generator that is newly made from ``SeedSequence(key)``."""
        bit_generator = self._bit_generator()
        with bit_generator.lock:
            _rebuild(bit_generator, stream.key())

    def state(self) -> torch.Tensor:
        """Return the state of the bit generator as bytes."""
        state = self._get()
        if state["bit_generator"] == "MT19937":
            gauss = state["gauss"] if state.get("has_gauss") else None
            return pack_mt19937(state["state"]["key"], state["state"]["pos"], gauss)
        text = json.dumps(state, default=lambda value: value.tolist()).encode()
        return pack(text.ljust(-(-len(text) // _JSON_BLOCK) * _JSON_BLOCK))

    def load_state(self, parsed: dict[str, Any]) -> None:
        """Restore a state that ``parse_state`` returned."""
        self._set(parsed)

    def parse_state(self, state: torch.Tensor) -> dict[str, Any]:
        """Return what NumPy's setters take; ValueError if the state is invalid."""
        kind = type(self._bit_generator())
        if kind.__name__ != "MT19937":
            return _parse_json(kind, unpack(state))
        words, position, gauss = unpack_mt19937(state)
        return _mt19937(np.frombuffer(words, "<u4").astype(np.uint32), position, gauss)


def _mt19937(words: Any, position: int, gauss: float | None = None) -> dict[str, Any]:
    inner = {"key": words, "pos": position}
    cached = {"has_gauss": int(gauss is not None), "gauss": gauss or 0.0}
    return {"bit_generator": "MT19937", "state": inner, **cached}


def _rebuild(bit_generator: Any, key: int) -> None:
    """Set the state of a bit generator newly made from ``SeedSequence(key)``, in place."""
    fresh = type(bit_generator)(np.random.SeedSequence(key))
    state = fresh.__getstate__()
    if isinstance(state, tuple):  # with its seed sequence, which spawn() uses
        bit_generator.__setstate__(state)
    else:
        bit_generator.state = fresh.state


def _parse_json(kind: Any, data: bytes) -> dict[str, Any]:
    """Return a state of a bit generator of this kind; ValueError if NumPy did not make it."""
    scratch = kind()
    try:
        held = dict(json.loads(data))
        cached = {name: held.pop(name) for name in ("has_gauss", "gauss") if name in held}
        scratch.state = _with_arrays(held)
        same = json.loads(json.dumps(scratch.state, default=lambda value: value.tolist())) == held
        valid = len(data) % _JSON_BLOCK == 0 and np.isfinite(cached.get("gauss", 0.0))
        valid = valid and cached.get("has_gauss", 0) in (0, 1)
        valid = valid and held.get("buffer_pos", 0) in range(5)  # NumPy reads there unchecked
    except Exception as error:  # NumPy raises several types for what is no state
        raise ValueError(f"it must be the state of a {kind.__name__}, got {error!r}") from error
    if not (same and valid):
        raise ValueError(f"it must be the state of a {kind.__name__}")
    return {**scratch.state, "has_gauss": 0, "gauss": 0.0, **cached}


def _with_arrays(value: Any) -> Any:
    """Return a state from JSON as NumPy takes it: lists become arrays of 64-bit words."""
    if isinstance(value, dict):
        return {name: _with_arrays(held) for name, held in value.items()}
    return np.array(value, dtype=np.uint64) if isinstance(value, list) else value


class NumpyRandomState(NumpyGenerator):
    """NumPy's global generator, or a ``numpy.random.RandomState``.

    An MT19937 takes the full state of 624 words; the cached Gaussian is cleared. With native code
    the words are written at the documented ``bit_generator.ctypes.state_address``, else by
    ``set_state``. Other bit generators (``numpy.random.set_bit_generator``) are rebuilt.
    """

    def __init__(self, generator: np.random.RandomState | None = None) -> None:
        self._generator = generator
        # The instance behind the module's functions, which other tools may have replaced.
        source: Any = np.random.mtrand._rand if generator is None else generator
        self._normal = cast(Any, source.standard_normal)
        self._seen: Any = None  # the bit generator that `address` belongs to
        self._memory: Any = None  # the words at `address`
        self._position: Any = None  # the position, behind them
        self.lock: Any = None
        self.address: int | None = None

    def _bit_generator(self) -> Any:
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

    def find_address(self) -> int | None:
        """Return the address of the 624 words, followed by the position; None to use set_state."""
        bit_generator = self._bit_generator()
        if bit_generator is not self._seen:
            self._seen, self.lock, self.address = bit_generator, bit_generator.lock, None
            if native.generators is not None and type(bit_generator) is np.random.MT19937:
                self._look(bit_generator)
        return self.address

    def _look(self, bit_generator: Any) -> None:
        address = int(bit_generator.ctypes.state_address)
        with bit_generator.lock:
            public = bit_generator.state["state"]
            words = np.ctypeslib.as_array((ctypes.c_uint32 * MT_WORDS).from_address(address))
            position = ctypes.c_uint32.from_address(address + words.nbytes)
            expected = public["key"], public["pos"]  # to see that the layout is as expected
            if np.array_equal(words, expected[0]) and position.value == expected[1]:
                self.address, self._memory, self._position = address, words, position

    def reseed(self, stream: Stream) -> None:
        """Set the state that belongs to the key of ``stream``."""
        key = stream.key()
        if self.find_address() is not None:
            with self.lock:
                native.generators.expand_mt19937(key & LOW64, key >> 64, self.address)
                self.clear_gauss()
        elif type(self._seen) is np.random.MT19937:
            self._set(_mt19937(derive_ops.mt19937_state(key), MT_WORDS))
        else:
            with self.lock:
                _rebuild(self._seen, key)
            self._set({**self._get(), "has_gauss": 0, "gauss": 0.0})

    def clear_gauss(self) -> float | None:
        """Clear the cached Gaussian after the words were written at the address, and return it.

        There is no public call for that alone. So one is drawn: either it was the cached one, or
        two were made and the second is drawn too. From position 0 this changes no word. The next
        random number uses a new block of words.
        """
        position = self._position
        position.value = 0
        gauss: float | None = self._normal()
        if position.value:
            self._normal()
            gauss = None
        position.value = MT_WORDS
        return gauss

    def hold(self) -> Callable[[], None]:
        """Return a function that restores the exact state of this moment."""
        if self.find_address() is None:
            return functools.partial(self._set, self._get())
        with self.lock:
            words, position = self._memory.copy(), self._position.value
            gauss = self.clear_gauss()  # get_state() takes ten times as long
            self._memory[:] = words
            self._position.value = position
        held = _mt19937(words, position, gauss)
        if gauss is not None:
            self._set(held)
        return functools.partial(self.load_state, held)

    def load_state(self, parsed: dict[str, Any]) -> None:
        """Restore a state that ``parse_state`` returned; ``set_state`` is slower."""
        if parsed["has_gauss"] or self.find_address() is None:
            self._set(parsed)
            return
        with self.lock:
            self._memory[:8] = 0x60000000  # from which normals are made without reading further
            self.clear_gauss()
            self._memory[:] = parsed["state"]["key"]
            self._position.value = parsed["state"]["pos"]
