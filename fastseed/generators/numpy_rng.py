"""The adapters of NumPy's generators, old and new."""

from __future__ import annotations

import ctypes
import functools
import json
import threading
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import torch
from numpy.random import SeedSequence as _SeedSequence

from .._backend import derive, native
from .._utils import StateDict, strict_json
from ..derivation.streams import Stream
from . import adapter
from .adapter import LOW64, MT19937_BYTES, MT_WORDS, adapts, pack, unpack

_JSON_BLOCK = 1024


@adapts(np.random.Generator)
class NumpyGenerator:
    """A ``numpy.random.Generator``: its bit generator is rebuilt from the key, in place.

    The exact state is that of the bit generator, with the seed sequence that ``spawn`` uses. The
    state of MT19937 is written as words; the rest is JSON, padded with spaces: distributed
    checkpoints need a size that depends on the kind alone.
    """

    def __init__(self, generator: np.random.Generator) -> None:
        self._generator = generator

    def _bit_generator(self) -> Any:
        return self._generator.bit_generator

    def _twin(self) -> NumpyGenerator:
        """Return the adapter of a new generator of the same kind."""
        return NumpyGenerator(np.random.Generator(type(self._bit_generator())()))

    def reseed(self, stream: Stream) -> None:
        """Set the state of a bit generator that is newly made from ``SeedSequence(key)``."""
        bit_generator = self._bit_generator()
        fresh = type(bit_generator)(_SeedSequence(stream.key()))
        bit_generator.__setstate__((fresh.state, fresh.seed_seq))

    def save(self) -> StateDict:
        bit_generator = self._bit_generator()
        state = dict(bit_generator.state)
        if type(bit_generator.seed_seq) is _SeedSequence:
            state["seed_seq"] = bit_generator.seed_seq.state
        return state

    def restore(self, saved: StateDict) -> None:
        state, bit_generator = dict(saved), self._bit_generator()
        seeds = state.pop("seed_seq", None)
        if seeds is None:
            bit_generator.state = state
        else:
            bit_generator.__setstate__((state, _SeedSequence(**seeds)))

    def state(self) -> torch.Tensor:
        state = self.save()
        if state["bit_generator"] != "MT19937":
            return _to_json(state)
        gauss = state["gauss"] if state.get("has_gauss") else None
        words = adapter.pack_mt19937(state["state"]["key"], state["state"]["pos"], gauss)
        if "seed_seq" not in state:
            return words
        return torch.cat([words, _to_json({"seed_seq": state["seed_seq"]})])

    def parse_state(self, state: torch.Tensor) -> StateDict:
        kind, parsed, data = type(self._bit_generator()).__name__, {}, unpack(state)
        if kind == "MT19937":
            words, position, gauss = adapter.unpack_mt19937(state[:MT19937_BYTES])
            parsed = _mt19937(np.frombuffer(words, "<u4").astype(np.uint32), position, gauss)
            data = data[MT19937_BYTES:]
            if not data:
                return parsed
        try:
            held = _from_json(data)
            parsed |= held
            twin = self._twin()
            twin.restore(parsed)
            found = _from_json(unpack(_to_json(twin.save())))
        except Exception as error:  # NumPy raises several types
            raise ValueError(f"it must be the state of a {kind}, got {error!r}") from error
        is_same = all(name in found and found[name] == value for name, value in held.items())
        if not is_same or held.get("buffer_pos", 0) not in range(5):  # NumPy reads there unchecked
            raise ValueError(f"it must be the state of a {kind}, got other values")
        return parsed


def _mt19937(words: npt.NDArray[np.uint32], position: int, gauss: float | None = None) -> StateDict:
    inner = {"key": words, "pos": position}
    cached = {"has_gauss": int(gauss is not None), "gauss": gauss or 0.0}
    return {"bit_generator": "MT19937", "state": inner, **cached}


def _to_json(state: StateDict) -> torch.Tensor:
    text = json.dumps(state, default=lambda value: value.tolist()).encode()
    return pack(text.ljust(-(-len(text) // _JSON_BLOCK) * _JSON_BLOCK))


def _from_json(data: bytes) -> StateDict:
    if len(data) % _JSON_BLOCK:
        raise ValueError(f"{len(data)} bytes")
    return dict(strict_json.parse(data))


@adapts(np.random.RandomState)
class NumpyRandomState(NumpyGenerator):
    """A ``numpy.random.RandomState``; its cached Gaussian is cleared.

    An MT19937 takes the full state of 624 words. Other bit generators are rebuilt.
    """

    def __init__(self, generator: np.random.RandomState) -> None:
        self._owner = generator

    def _bit_generator(self) -> Any:
        return self._owner._bit_generator

    def _twin(self) -> NumpyGenerator:
        return NumpyRandomState(np.random.RandomState(type(self._bit_generator())()))

    def reseed(self, stream: Stream) -> None:
        if type(self._bit_generator()) is np.random.MT19937:
            self._owner.set_state(_mt19937(derive.mt19937_state(stream.key()), MT_WORDS))
        else:
            super().reseed(stream)
            self._owner.set_state({**self.save(), "has_gauss": 0, "gauss": 0.0})

    def save(self) -> StateDict:
        state: StateDict = self._owner.get_state(legacy=False)
        return state

    def restore(self, saved: StateDict) -> None:
        self._owner.set_state(saved)


class Mt19937Memory(NamedTuple):
    """The memory of an MT19937: 624 words, followed by the position."""

    bit_generator: Any
    lock: threading.Lock
    address: int


class NumpyGlobal(NumpyRandomState):
    """NumPy's global generator, that of the functions of ``numpy.random``.

    Native code writes the words of an MT19937 at its documented ``ctypes.state_address``, under its
    lock, which is not re-entrant before NumPy 2.4. Without native code, and for other bit
    generators, ``set_state`` serves.
    """

    def __init__(self) -> None:
        super().__init__(cast(np.random.RandomState, np.random))  # it has get_state and set_state
        self.memory: Mt19937Memory | None = None
        """Where the words were found last."""

    def _bit_generator(self) -> Any:
        return np.random.get_bit_generator()  # type: ignore[attr-defined]

    def find_memory(self) -> Mt19937Memory | None:
        """Return where to write the words; None to use ``set_state``."""
        if native.generators is None:
            return None
        module: Any = np.random
        bit_generator, memory = module.get_bit_generator(), self.memory
        if memory is None or memory.bit_generator is not bit_generator:
            memory = None
            if type(bit_generator) is np.random.MT19937 and _can_write_words():
                address = int(bit_generator.ctypes.state_address)
                memory = Mt19937Memory(bit_generator, bit_generator.lock, address)
            # In one field, so that other threads find all of it or nothing.
            self.memory = memory
        return memory

    def clear_gauss(self) -> None:
        """Clear the cached Gaussian, by setting the bit generator that is set."""
        module: Any = np.random
        module.set_bit_generator(module.get_bit_generator())

    def reseed(self, stream: Stream) -> None:
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
            super().restore(saved)
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
