"""The three global generators that every process has: Python's, NumPy's and torch's on the CPU."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from .._backend import native
from .._backend.reference.scalar import ScopeKey
from ..derivation.streams import Stream, sample_stream
from .adapter import GeneratorAdapter
from .numpy_rng import NumpyGlobal
from .python_rng import PythonRandom
from .torch_rng import TorchGenerator

NAMES = ("python", "numpy", "torch.cpu")


def global_generators() -> tuple[object, ...]:
    """Return the objects behind the three names, and those of CUDA once it is initialized."""
    three = random._inst, np.random.mtrand._rand, torch.default_generator
    return (*three, *torch.cuda.default_generators)


class DefaultGenerators:
    """Reseeds the three, with native code in one call."""

    def __init__(self) -> None:
        self._numpy = NumpyGlobal()
        three: tuple[GeneratorAdapter, ...] = (PythonRandom(), self._numpy, TorchGenerator())
        self.adapters = dict(zip(NAMES, three, strict=True))

    def reseed_sample(self, scope: ScopeKey, index: int, occurrence: int) -> dict[str, Exception]:
        """Give all three the stream of a sample; return the exceptions of those that failed."""
        if self.reseed_natively("reseed_sample_of_cpu", *scope, index, occurrence):
            return {}
        return self.reseed(lambda name: sample_stream(scope, name, index, occurrence))

    def reseed_natively(self, function: str, *where: int) -> bool:
        """Reseed all three; return False where that needs ``reseed``, which names what fails."""
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
