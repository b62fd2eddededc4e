"""The adapters of NumPy's generators, old and new."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import torch
from numpy.random import SeedSequence as _SeedSequence

from .._backend import derive, native
from .._utils import JSON, StateDict
from ..derivation.streams import Stream
from .adapter import LOW64, MT19937_BYTES, MT_WORDS, pack, pack_mt19937, unpack, unpack_mt19937

_JSON_BLOCK = 1024
_MAX_POOL = 1024  # words of a SeedSequence, 4 unless the user says otherwise


class NumpyGenerator:
    """A ``numpy.random.Generator``: its bit generator is rebuilt from the key, in place.

    The exact state is that of the bit generator, with the seed sequence that ``spawn`` uses and the
    number of children that it has made. The state of MT19937 is written as words; the rest is JSON,
    padded with spaces: distributed checkpoints need a size that depends on the kind alone.
    """

    is_bulk = False

    def __init__(self, generator: np.random.Generator) -> None:
        self._generator = generator

    def _bit_generator(self) -> np.random.BitGenerator:
        return self._generator.bit_generator

    def _get(self) -> StateDict:
        bit_generator = self._bit_generator()
        state = dict(bit_generator.state)
        if type(bit_generator.seed_seq) is _SeedSequence:
            state["seed_seq"] = bit_generator.seed_seq.state
        return state

    def _set(self, state: StateDict) -> None:
        held = dict(state)
        seeds = held.pop("seed_seq", None)
        _assign(self._bit_generator(), held, None if seeds is None else _SeedSequence(**seeds))

    def reseed(self, stream: Stream) -> None:
        """Set the state of a bit generator that is newly made from ``SeedSequence(key)``."""
        _rebuild(self._bit_generator(), stream.key())

    def state(self) -> torch.Tensor:
        """Return the exact state as bytes."""
        state = self._get()
        if state["bit_generator"] != "MT19937":
            return _to_json(state)
        gauss = state["gauss"] if state.get("has_gauss") else None
        words = pack_mt19937(state["state"]["key"], state["state"]["pos"], gauss)
        if "seed_seq" not in state:
            return words
        return torch.cat([words, _to_json({"seed_seq": state["seed_seq"]})])

    def save(self) -> StateDict:
        """Return the exact state as NumPy has it."""
        return self._get()

    def restore(self, saved: StateDict) -> None:
        """Restore what ``save`` or ``parse_state`` returned."""
        self._set(saved)

    def parse_state(self, state: torch.Tensor) -> StateDict:
        """Return what NumPy's setters take; ValueError if the state is invalid."""
        kind = type(self._bit_generator())
        if kind.__name__ != "MT19937":
            return _parse_json(kind, unpack(state))
        words, position, gauss = unpack_mt19937(state[:MT19937_BYTES])
        parsed = _mt19937(np.frombuffer(words, "<u4").astype(np.uint32), position, gauss)
        if state.numel() > MT19937_BYTES:
            parsed.update(_parse_seeds(unpack(state[MT19937_BYTES:])))
        return parsed


def _mt19937(words: npt.NDArray[np.uint32], position: int, gauss: float | None = None) -> StateDict:
    inner = {"key": words, "pos": position}
    cached = {"has_gauss": int(gauss is not None), "gauss": gauss or 0.0}
    return {"bit_generator": "MT19937", "state": inner, **cached}


def _rebuild(bit_generator: np.random.BitGenerator, key: int) -> None:
    """Set the state of a bit generator newly made from ``SeedSequence(key)``, in place."""
    fresh: Any = type(bit_generator)(_SeedSequence(key))
    _assign(bit_generator, fresh.state, fresh.seed_seq)


def _assign(bit_generator: Any, state: StateDict, seeds: _SeedSequence | None) -> None:
    """Set a state, and what ``spawn`` uses if it is given."""
    if seeds is None:
        bit_generator.state = state
    else:
        bit_generator.__setstate__((state, seeds))


def _to_json(state: StateDict) -> torch.Tensor:
    text = json.dumps(state, default=lambda value: value.tolist()).encode()
    return pack(text.ljust(-(-len(text) // _JSON_BLOCK) * _JSON_BLOCK))


@contextlib.contextmanager
def _must_be_of(kind: str) -> Iterator[None]:
    """Raise ValueError for any exception: NumPy raises several types for what is no state."""
    try:
        yield
    except Exception as error:
        raise ValueError(f"it must be the state of a {kind}, got {error!r}") from error


def _from_json(data: bytes) -> StateDict:
    if len(data) % _JSON_BLOCK:
        raise ValueError(f"{len(data)} bytes")
    return dict(json.loads(data))


def _parse_json(kind: type[np.random.BitGenerator], data: bytes) -> StateDict:
    """Return a state of a bit generator of this kind; ValueError if NumPy did not make it."""
    with _must_be_of(kind.__name__):
        held = _from_json(data)
        cached = {name: held.pop(name) for name in ("has_gauss", "gauss") if name in held}
        seeds = {"seed_seq": held.pop("seed_seq")} if "seed_seq" in held else {}
        scratch: Any = kind()
        scratch.state = _with_arrays(held)
        valid = _plain(scratch.state) == held and np.isfinite(cached.get("gauss", 0.0))
        valid = valid and cached.get("has_gauss", 0) in (0, 1)
        valid = valid and held.get("buffer_pos", 0) in range(5)  # NumPy reads there unchecked
        if not valid:
            raise ValueError("other values")
        _check_seeds(**seeds)
    return {**scratch.state, "has_gauss": 0, "gauss": 0.0, **cached, **seeds}


def _parse_seeds(data: bytes) -> StateDict:
    """Return the seed sequence that follows the words of an MT19937."""
    with _must_be_of("SeedSequence"):
        held = _from_json(data)
        _check_seeds(**held)
    return held


def _check_seeds(seed_seq: StateDict | None = None) -> None:
    """Raise an exception unless these are the arguments of a SeedSequence, as it returns them."""
    if seed_seq is None:
        return
    if seed_seq["pool_size"] > _MAX_POOL:
        raise ValueError(f"pool_size must be at most {_MAX_POOL}, got {seed_seq['pool_size']}")
    if _plain(_SeedSequence(**seed_seq).state) != seed_seq:
        raise ValueError("other values in seed_seq")


def _plain(state: object) -> StateDict:
    """Return a state as it comes back from JSON."""
    return dict(json.loads(json.dumps(state, default=lambda value: value.tolist())))


def _with_arrays(value: JSON) -> JSON:
    """Return a state from JSON as NumPy takes it: lists become arrays of 64-bit words."""
    if isinstance(value, dict):
        return {name: _with_arrays(held) for name, held in value.items()}
    return np.array(value, dtype=np.uint64) if isinstance(value, list) else value


class NumpyRandomState(NumpyGenerator):
    """A ``numpy.random.RandomState``; its cached Gaussian is cleared.

    An MT19937 takes the full state of 624 words. Other bit generators are rebuilt.
    """

    def __init__(self, generator: np.random.RandomState) -> None:
        self._owner = generator

    def _bit_generator(self) -> np.random.BitGenerator:
        return self._owner._bit_generator

    def _get(self) -> StateDict:
        state: StateDict = self._owner.get_state(legacy=False)
        return state

    def _set(self, state: StateDict) -> None:
        self._owner.set_state(state)

    def reseed(self, stream: Stream) -> None:
        """Set the state that belongs to the key of ``stream``."""
        bit_generator, key = self._bit_generator(), stream.key()
        if type(bit_generator) is np.random.MT19937:
            self._set(_mt19937(derive.mt19937_state(key), MT_WORDS))
        else:
            _rebuild(bit_generator, key)
            self._set({**self._get(), "has_gauss": 0, "gauss": 0.0})


class Mt19937Memory(NamedTuple):
    """The memory of an MT19937: 624 words, followed by the position."""

    bit_generator: np.random.BitGenerator
    lock: threading.Lock
    address: int


class NumpyGlobal(NumpyRandomState):
    """NumPy's global generator, that of the functions of ``numpy.random``.

    Native code writes the words of an MT19937 at its documented ``ctypes.state_address``, under its
    lock, which is taken nowhere else: it is not re-entrant before NumPy 2.4. The cached Gaussian is
    cleared by ``numpy.random.set_bit_generator``, which sets the one that is there. Without native
    code, and for other bit generators (``numpy.random.set_bit_generator``), ``set_state`` serves.
    """

    def __init__(self) -> None:
        super().__init__(cast(np.random.RandomState, np.random))  # it has get_state and set_state
        self._memory: Mt19937Memory | None = None

    def _bit_generator(self) -> np.random.BitGenerator:
        return np.random.get_bit_generator()  # type: ignore[attr-defined]

    def find_memory(self) -> Mt19937Memory | None:
        """Return where to write the words; None to use ``set_state``."""
        if native.generators is None:
            return None
        bit_generator = np.random.get_bit_generator()  # type: ignore[attr-defined]
        memory = self._memory
        if memory is None or memory.bit_generator is not bit_generator:
            if type(bit_generator) is not np.random.MT19937 or not _can_write_words():
                return None
            address = int(bit_generator.ctypes.state_address)
            # In one field, so that other threads and interrupts find all of it or nothing.
            memory = self._memory = Mt19937Memory(bit_generator, bit_generator.lock, address)
        return memory

    def clear_gauss(self) -> None:
        """Clear the cached Gaussian."""
        module: Any = np.random
        module.set_bit_generator(module.get_bit_generator())

    def reseed(self, stream: Stream) -> None:
        """Set the state that belongs to the key of ``stream``."""
        memory = self.find_memory()
        if memory is None:
            super().reseed(stream)
            return
        key = stream.key()
        native.generators.expand_mt19937(key & LOW64, key >> 64, memory.lock, memory.address)
        self.clear_gauss()

    def restore(self, saved: StateDict) -> None:
        """Restore what ``save`` or ``parse_state`` returned; ``set_state`` is slower."""
        memory = self.find_memory()
        if memory is None or saved["has_gauss"]:
            self._set(saved)
            return
        inner = saved["state"]
        native.generators.write_mt19937(inner["key"], inner["pos"], memory.lock, memory.address)
        self.clear_gauss()


@functools.cache
def _can_write_words() -> bool:
    """Return whether an MT19937 has the expected layout in memory."""
    probe: Any = np.random.MT19937(0)
    probe.random_raw(3)
    memory = (ctypes.c_uint32 * (MT_WORDS + 1)).from_address(int(probe.ctypes.state_address))
    state = probe.state["state"]
    return list(memory) == [*state["key"].tolist(), state["pos"]]
