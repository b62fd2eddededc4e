"""The generators of a process, which ``reseed`` sets."""

from __future__ import annotations

from ..derivation import scopes, streams
from ..derivation.place import Place
from ..derivation.rank_fields import RankFields
from ..generators.accelerator import AcceleratorGenerators, compiled_types
from ..generators.adapter import GeneratorAdapter
from ..generators.default import NAMES, DefaultGenerators
from .registry import Registry


class Generators:
    """The three defaults, those of the accelerators, and what was registered."""

    def __init__(self, fields: RankFields) -> None:
        own = {fields.of(name) for name in NAMES}
        self._field_of_defaults = own.pop() if len(own) == 1 else None  # None: they differ
        self.defaults = DefaultGenerators()
        self.accelerators = [AcceleratorGenerators(kind) for kind in compiled_types()]
        self.registry = Registry(tuple(a.name for a in self.accelerators), fields)

    def refuse_capture(self, function: str) -> None:
        """RuntimeError while the current stream captures a CUDA graph."""
        for accelerator in self.accelerators:
            accelerator.refuse_capture(function)

    def reseed(self, place: Place) -> dict[str, Exception]:
        """Set every generator; return the exceptions of those that failed, by stream name."""
        registry, field, at = self.registry, self._field_of_defaults, place.scope
        assert at is not None
        done = field is not None and self.defaults.reseed_natively(
            "reseed_defaults_of_cpu", place.master_seed, *at, field
        )
        if done and not (self.accelerators or registry.entries):
            return {}
        own: dict[str, GeneratorAdapter] = {} if done else dict(self.defaults.adapters)
        own.update((accelerator.name, accelerator) for accelerator in self.accelerators)
        own.update((entry.name, entry.adapter) for entry in registry.generators)
        failures: dict[str, Exception] = {}
        for name, adapter in own.items():
            try:
                adapter.reseed(place.stream(name))
            except Exception as error:
                failures[name] = error.with_traceback(None)  # which would hold the generator
        for entry in registry.epoch_setters:
            try:
                epoch = at._replace(step=0)
                order = streams.stream(place.master_seed, epoch, entry.name, scopes.SHARED)
                entry.adapter.set(at.task, at.epoch, order.key())
            except Exception as error:
                failures[entry.name] = error.with_traceback(None)
        return failures

    def adapters(self) -> dict[str, GeneratorAdapter]:
        """Return the adapter of every generator in this process, by stream name."""
        found = dict(self.defaults.adapters)
        found.update((a.name, a) for a in self.accelerators if a.generators())
        found.update((entry.name, entry.adapter) for entry in self.registry.generators)
        return found
