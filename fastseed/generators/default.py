"""The three global generators that every process has: Python's, NumPy's and torch's on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from .._backend import native
from ..derivation.streams import Coordinates, Stream
from .adapter import GeneratorAdapter
from .numpy_rng import NumpyRandomState
from .python_rng import PythonRandom
from .torch_rng import TorchGenerator

NAMES = ("python", "numpy", "torch.cpu")


class DefaultGenerators:
    """Reseeds the three, with native code in one call."""

    def __init__(self) -> None:
        self._python, self._numpy = PythonRandom(), NumpyRandomState()
        self.adapters: dict[str, GeneratorAdapter] = dict(
            zip(NAMES, (self._python, self._numpy, TorchGenerator()), strict=True)
        )

    def reseed_in_place(self, master_seed: int, at: Coordinates, rank: int) -> bool:
        """Reseed all three; False, with nothing changed, where that needs ``reseed``."""
        numpy = self._numpy
        address = numpy.find_address()
        if address is None:
            return False
        with numpy.lock:
            lo, hi = native.generators.reseed_defaults_of_cpu(master_seed, *at, rank, address)
            numpy.clear_gauss()
        self._python.seed(lo | hi << 64)
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

    def states(self) -> dict[str, torch.Tensor]:
        """Return the exact states by stream name."""
        states = {name: adapter.state() for name, adapter in self.adapters.items()}
        return {name: state for name, state in states.items() if state is not None}

    def load_states(self, states: Mapping[str, torch.Tensor]) -> None:
        """Restore what ``states`` returned."""
        for name, state in states.items():
            adapter = self.adapters[name]
            adapter.load_state(adapter.parse_state(state))
