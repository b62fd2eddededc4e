"""The adapter of Python's ``random``, and the three global generators that every process has."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from .._backend import native
from .._backend.reference.scalar import ScopeKey
from ..derivation.scopes import Scope
from ..derivation.streams import Stream, sample_stream
from .adapter import MT_WORDS, GeneratorAdapter, adapts, pack_mt19937, unpack_mt19937
from .numpy_rng import NumpyGlobal
from .torch_rng import TorchGenerator

NAMES = ("python", "numpy", "torch.cpu")
"""The streams of the three global generators."""
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


def global_generators() -> tuple[random.Random, np.random.RandomState, torch.Generator]:
    """Return the objects behind the three names."""
    return random._inst, np.random.mtrand._rand, torch.default_generator


class DefaultGenerators:
    """Reseeds Python's, NumPy's and torch's on the CPU, with native code in one call."""

    def __init__(self) -> None:
        self._numpy = NumpyGlobal()
        three: tuple[GeneratorAdapter, ...] = (PythonRandom(), self._numpy, TorchGenerator())
        self.adapters = dict(zip(NAMES, three, strict=True))

    def reseed_natively(self, master_seed: int, at: Scope, rank_field: int) -> bool:
        """Reseed all three; return False where that needs ``reseed``, which names what fails."""
        return self._in_one_call("reseed_defaults_of_cpu", master_seed, *at, rank_field)

    def reseed_sample(self, scope: ScopeKey, index: int, occurrence: int) -> dict[str, Exception]:
        """Give all three the stream of a sample; return the exceptions of those that failed."""
        if self._in_one_call("reseed_sample_of_cpu", *scope, index, occurrence):
            return {}
        return self.reseed(lambda name: sample_stream(scope, name, index, occurrence))

    def _in_one_call(self, function: str, *where: int) -> bool:
        memory = self._numpy.find_memory()
        if memory is None:
            return False
        try:
            lo, hi = getattr(native.generators, function)(*where, memory.lock, memory.address)
            self._numpy.clear_gauss()
            random.seed(lo | hi << 64)
        except Exception:
            return False
        return True

    def reseed(self, stream_of: Callable[[str], Stream]) -> dict[str, Exception]:
        """Reseed one after another; return the exceptions of those that failed, by stream name."""
        failures: dict[str, Exception] = {}
        for name, adapter in self.adapters.items():
            try:
                adapter.reseed(stream_of(name))
            except Exception as error:
                failures[name] = error
        return failures

    def save(self) -> list[Any]:
        """Return the exact states of this moment."""
        return [adapter.save() for adapter in self.adapters.values()]

    def restore(self, saved: list[Any]) -> None:
        """Restore what ``save`` returned."""
        for adapter, state in zip(self.adapters.values(), saved, strict=True):
            adapter.restore(state)
