"""How one 128-bit key becomes the state of NumPy's generators, old and new."""

from __future__ import annotations

import ctypes
import functools
import json
import struct
import sys
from typing import Any, cast

import numpy as np
import torch

from .._backend import derive_ops, native
from .adapters import LOW64, MT_WORDS, PackedMT, pack, unpack


def _rebuild(bit_generator: Any, key: int) -> None:
    """The bit generator as if newly made from ``SeedSequence(key)``, in place."""
    fresh = type(bit_generator)(np.random.SeedSequence(key))
    state = fresh.__getstate__()
    if isinstance(state, tuple):  # with its seed sequence, so that spawn() follows
        bit_generator.__setstate__(state)
    else:
        bit_generator.state = fresh.state


class _NumpyState:
    """The exact state of a NumPy generator of any kind, packed (never pickled).

    The name of the bit generator in 16 bytes; then a packed MT19937, or what another one's
    ``state`` holds, as JSON filled up with spaces: its size does not depend on what it holds, as
    distributed checkpoints need it.
    """

    _NAME = 16
    _MT = PackedMT()
    _JSON = 1024

    def _target(self) -> Any:
        raise NotImplementedError

    def _get(self) -> dict[str, Any]:
        raise NotImplementedError

    def _set(self, state: dict[str, Any]) -> None:
        raise NotImplementedError

    def _name(self, bit_generator: str) -> bytes:
        return bit_generator.encode()[: self._NAME].ljust(self._NAME, b"\0")

    def state(self) -> torch.Tensor:
        """See :class:`Sink`."""
        held = self._get()
        name = self._name(held["bit_generator"])
        if held["bit_generator"] == "MT19937":
            inner = held["state"]
            gauss = held.get("gauss", 0.0) if held.get("has_gauss", 0) else None
            return pack(name + self._MT.pack(inner["key"], inner["pos"], (), gauss))
        text = json.dumps(held, default=_plain).encode()
        return pack(name + text.ljust(-(-len(text) // self._JSON) * self._JSON))

    def _parse(self, state: torch.Tensor) -> dict[str, Any]:
        data = unpack(state)
        here = type(self._target()).__name__
        there = data[: self._NAME]
        if there != self._name(here):
            raise ValueError(f"its bit generator must be {here}, got {there!r}")
        body = data[self._NAME :]
        return self._parse_mt(body) if here == "MT19937" else self._parse_json(body)

    def _parse_mt(self, data: bytes) -> dict[str, Any]:
        key, position, (gauss,) = self._MT.unpack(data)
        return {
            "bit_generator": "MT19937",
            "state": {"key": key, "pos": position},
            "has_gauss": int(gauss is not None),
            "gauss": 0.0 if gauss is None else gauss,
        }

    def _parse_json(self, data: bytes) -> dict[str, Any]:
        target = type(self._target())
        if len(data) == 0 or len(data) % self._JSON != 0:
            raise ValueError(f"it must hold a multiple of {self._JSON} bytes, got {len(data)}")
        scratch = target()
        try:
            parsed = json.loads(data)
            held = dict(parsed)
            cached = {k: held.pop(k) for k in ("has_gauss", "gauss") if k in held}
            scratch.state = _with_arrays(held)
            same = json.loads(json.dumps(scratch.state, default=_plain)) == held
        except Exception as error:  # whatever NumPy makes of what is no state of its own
            raise ValueError(f"it is not the state of a {target.__name__}: {error!r}") from error
        sane = cached.get("has_gauss", 0) in (0, 1) and type(cached.get("gauss", 0.0)) is float
        sane = sane and held.get("buffer_pos", 0) in range(5)  # NumPy reads there unchecked
        if not same or not sane:
            raise ValueError(f"it is not the state of a {target.__name__}")
        return {**scratch.state, "has_gauss": 0, "gauss": 0.0, **cached}

    def check(self, state: torch.Tensor) -> None:
        """See :class:`Sink`."""
        self._parse(state)

    def load(self, state: torch.Tensor) -> None:
        """See :class:`Sink`."""
        self._set(self._parse(state))


_GAUSS_AFTER = 8  # from the flag to the Gaussian: an int and what aligns a double


def _plain(value: Any) -> Any:
    """What JSON has no word for in a bit generator's state: NumPy's arrays and integers."""
    return value.tolist()


def _with_arrays(value: Any) -> Any:
    """A state from JSON as NumPy takes it: lists are arrays of 64-bit words."""
    if isinstance(value, dict):
        return {k: _with_arrays(v) for k, v in value.items()}
    return np.array(value, dtype=np.uint64) if isinstance(value, list) else value


@functools.cache
def _cached_gauss_offset() -> int | None:
    """Where a RandomState keeps the flag that a Gaussian is cached, eight bytes before that one.

    Found by trying: on a scratch instance, setting the flag through the public state changes one
    byte of it and no other, the Gaussian is seen where it should be, and both can be set there.
    None where that is not so.
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
    if (seen[0][offset], seen[1][offset]) != (0, 1) or offset + 16 > len(held):
        return None
    if struct.unpack_from("=d", held, offset + _GAUSS_AFTER) != (0.5,):
        return None
    ctypes.c_int.from_address(id(scratch) + offset).value = 1
    ctypes.c_double.from_address(id(scratch) + offset + _GAUSS_AFTER).value = -1.25
    took = scratch.get_state(legacy=False)
    return offset if (took["has_gauss"], took["gauss"]) == (1, -1.25) else None


class NumpyLegacySink(_NumpyState):
    """NumPy's global generator, or a :class:`numpy.random.RandomState`.

    Takes the full MT19937 state; the cached Gaussian is cleared. Where NumPy documents the state's
    address (``bit_generator.ctypes.state_address``) and it was seen to hold what the public state
    says, the words are written there. A global generator on another bit generator
    (``numpy.random.set_bit_generator``) is rebuilt from a ``SeedSequence``.
    """

    def __init__(self, generator: np.random.RandomState | None = None) -> None:
        self._generator = generator
        self.seen: Any = None  # the bit generator that was looked at
        self.address: int | None = None  # of its words; None if they cannot be written in place
        self.lock: Any = None  # which NumPy itself takes for each draw
        self.cached = 0  # the address of the flag that a Gaussian is cached; 0 if not known
        self.gauss = 0  # and of the Gaussian
        # The hidden instance behind the module's functions, which others may have wrapped.
        source: Any = np.random.mtrand._rand if generator is None else generator
        self._normal = cast(Any, source.standard_normal)
        owner, offset = self._normal.__self__, _cached_gauss_offset()
        if offset is not None and type(owner) is np.random.RandomState:
            self.cached = id(owner) + offset
            self.gauss = self.cached + _GAUSS_AFTER

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
        if native.generators is None or type(bit_generator) is not np.random.MT19937:
            return None
        if type(bit_generator.lock).__name__ != "RLock":  # we draw while we hold it
            return None
        address = int(bit_generator.ctypes.state_address)
        with bit_generator.lock:  # or what another thread draws meanwhile would part the two
            held = np.frombuffer(ctypes.string_at(address, 4 * (MT_WORDS + 1)), np.uint32)
            public = bit_generator.state["state"]
        same = np.array_equal(held[:-1], public["key"]) and int(held[-1]) == public["pos"]
        return address if same else None

    def look(self) -> None:
        """See whether this bit generator can be written in place; the last one seen is kept."""
        bit_generator = self._target()
        self.address = self._find_address(bit_generator)
        self.seen, self.lock = bit_generator, bit_generator.lock

    def reseed(self, key: int) -> None:
        """All 624 words from all 128 bits of ``key``; the next draw starts a new block of them."""
        bit_generator = self._target()
        if bit_generator is not self.seen:
            self.look()
        if self.address is not None:
            with self.lock:
                if native.generators.write_numpy(self.address, self.cached, key & LOW64, key >> 64):
                    self.finish()
        elif type(bit_generator) is np.random.MT19937:
            state = {"key": derive_ops.mt19937_state(key), "pos": MT_WORDS}
            self._set(
                {"bit_generator": "MT19937", "state": state, "has_gauss": 0, "gauss": 0.0},
            )
        else:
            with bit_generator.lock:
                _rebuild(bit_generator, key)
            self._set({**self._get(), "has_gauss": 0, "gauss": 0.0})

    def finish(self) -> None:
        """After ``write_numpy`` said so: empty the cached Gaussian.

        There is no public way to clear it alone. So one is drawn: either it was the cached one, or
        two were made and the second is drawn too. No draw from position 0 changes a word.
        """
        self._normal()
        if native.generators.finish_numpy(self.address):
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
