"""The three global generators that every process has: Python's, NumPy's and torch's on the CPU."""

from __future__ import annotations

from typing import Any

from . import _native, _ops, streams
from .numpy_sinks import NumpyLegacySink
from .sinks import PythonSink, Sink, TorchSink


class ProcessGenerators:
    """Reseeds the three in one native call where each of them can be written in place."""

    def __init__(self) -> None:
        self._python, self._numpy = PythonSink(), NumpyLegacySink()
        self.sinks: dict[str, Sink] = {
            "python": self._python,
            "numpy": self._numpy,
            "torch.cpu": TorchSink(),
        }
        self._ids = {name: streams.name_id(name) for name in self.sinks}
        self._together: Any = None
        if self._python.address is not None:
            self._together = _native.generators.ProcessGenerators(
                self._python.address, *self._ids.values()
            )

    def reseed(self, scope: _ops.Scope, rank: int) -> dict[str, Exception]:
        """Give each its key; what those raised that failed, by stream name."""
        address = self._numpy.address()
        if self._together is not None and address is not None:
            with self._numpy.lock:
                if self._together.reseed(*scope, rank, address, self._numpy.cached):
                    self._numpy.finish(address)
            self._python.finish()
            return {}
        return self._one_by_one(scope, rank)

    def _one_by_one(self, scope: _ops.Scope, rank: int) -> dict[str, Exception]:
        failures: dict[str, Exception] = {}
        for name, sink in self.sinks.items():
            try:
                sink.reseed(_ops.stream_key(scope, self._ids[name], rank, 0, 0))
            except Exception as error:
                failures[name] = error
        return failures
