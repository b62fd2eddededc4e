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
from .adapter import GeneratorAdapter, reseed_each
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

    def reseed_natively(self, function: str, *where: int) -> ScopeKey | None:
        """Reseed all three, and return key and tweak of their scope.

        None where that needs ``reseed``, which names what fails.
        """
        memory = self._numpy.memory or self._numpy.find_memory()
        if memory is None:
            return None
        try:
            scope: ScopeKey = getattr(native.generators, function)(*where, *memory)
        except Exception:  # also where numpy.random has another bit generator now
            return None
        return scope

    def reseed(self, stream_of: Callable[[str], Stream]) -> dict[str, Exception]:
        """Reseed one after another; return the exceptions of those that failed, by stream name."""
        return reseed_each(self.adapters.items(), stream_of)

    def save(self) -> list[Any]:
        """Return the exact states of this moment."""
        return [adapter.save() for adapter in self.adapters.values()]

    def restore(self, saved: list[Any]) -> None:
        """Restore what ``save`` returned."""
        for adapter, state in zip(self.adapters.values(), saved, strict=True):
            adapter.restore(state)
