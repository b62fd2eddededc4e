"""The three global generators that every process has: Python's, NumPy's and torch's on the CPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import torch

from .._backend import derive_ops, native
from ..derivation import streams
from .adapters import PythonSink, Sink, TorchSink
from .numpy_rng import NumpyLegacySink

_get_bit_generator: Any = np.random.get_bit_generator  # type: ignore[attr-defined]


class ProcessGenerators:
    """Reseeds the three, in one native call where each of them can be written in place."""

    def __init__(self) -> None:
        self._python, self._numpy = PythonSink(), NumpyLegacySink()
        self.sinks: dict[str, Sink] = {
            "python": self._python,
            "numpy": self._numpy,
            "torch.cpu": TorchSink(),
        }

    def reseed_in_place(
        self, master_seed: int, task: int, epoch: int, step: int, rank: int
    ) -> derive_ops.Scope | None:
        """All three, and nothing checked before: this is the call that has to be fast.

        None, with nothing changed, where it takes a closer look: a coordinate is not an int of its
        range, or a generator is not where it can be written.
        """
        numpy = self._numpy
        if _get_bit_generator() is not numpy.seen:
            numpy.look()
        if self._python.address is None or numpy.address is None:
            return None
        with numpy.lock:
            done = native.generators.reseed_process(
                master_seed,
                task,
                epoch,
                step,
                rank,
                self._python.address,
                numpy.address,
                numpy.cached,
            )
            if done is None:
                return None
            if done[2]:
                numpy.finish()
        self._python.finish()
        return done[0], done[1]

    def reseed(self, scope: derive_ops.Scope, rank: int, worker: int) -> dict[str, Exception]:
        """One after another; what those raised that failed, by stream name."""
        return self.reseed_each(dict.fromkeys(self.sinks, (scope, rank)), worker)

    def reseed_each(
        self, places: Mapping[str, tuple[derive_ops.Scope, int]], worker: int = 0
    ) -> dict[str, Exception]:
        """The same, where each has a scope and rank field of its own."""
        failures: dict[str, Exception] = {}
        for name, sink in self.sinks.items():
            scope, rank = places[name]
            try:
                sink.reseed(streams.stream_in(scope, name, rank, worker).key())
            except Exception as error:
                failures[name] = error
        return failures

    def _in_place(self) -> tuple[int, int, int, int] | None:
        """Where the two that are not torch's can be read and written; None if not all of it can."""
        numpy = self._numpy
        if _get_bit_generator() is not numpy.seen:
            numpy.look()
        if self._python.address is None or numpy.address is None or not numpy.cached:
            return None
        return self._python.address, numpy.address, numpy.cached, numpy.gauss

    def states(self) -> Sequence[torch.Tensor]:
        """The exact states of :attr:`sinks`, in their order."""
        at = self._in_place()
        if at is not None:
            with self._numpy.lock:
                packed = native.generators.pack_process(*at, self._python.gauss)
            if packed is not None:
                return cast(Sequence[torch.Tensor], packed)
        return [cast(torch.Tensor, sink.state()) for sink in self.sinks.values()]

    def takes(self, states: Sequence[Any]) -> bool:
        """Whether :meth:`load` puts ``states`` back in one call; else ask each sink's ``check``."""
        return self._in_place() is not None and bool(native.generators.check_process(*states))

    def load(self, states: Sequence[Any]) -> None:
        """Put back what :meth:`states` gave; checked before."""
        at = self._in_place()
        if at is not None:
            with self._numpy.lock:
                done = native.generators.unpack_process(*at, *states)
            if done is not None:
                (self._python.gauss,) = done
                return
        for sink, state in zip(self.sinks.values(), states, strict=True):
            sink.load(state)
