"""The generators of a process, which ``reseed`` sets."""

from __future__ import annotations

from ..derivation import scopes, streams
from ..derivation.place import Place, place_at
from ..derivation.rank_fields import RankFields
from ..derivation.scopes import Scope
from ..generators.accelerator import AcceleratorGenerators, compiled_types
from ..generators.adapter import GeneratorAdapter, reseed_each
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

    def reseed(self, before: Place, at: Scope) -> tuple[Place, dict[str, Exception]]:
        """Set every generator; return the place, and the exceptions of those that failed.

        They stand by stream name.
        """
        registry, field, scope_key = self.registry, self._field_of_defaults, None
        if field is not None:
            scope_key = self.defaults.reseed_natively(
                "reseed_defaults_of_cpu", before.master_seed, *at, field
            )
        place = place_at(before.master_seed, before.fields, at, scope_key)
        if scope_key and not (self.accelerators or registry.entries):
            return place, {}
        own: dict[str, GeneratorAdapter] = {} if scope_key else dict(self.defaults.adapters)
        own.update((accelerator.name, accelerator) for accelerator in self.accelerators)
        own.update((entry.name, entry.adapter) for entry in registry.generators)
        failures = reseed_each(own.items(), place.stream)
        for entry in registry.epoch_setters:
            try:
                epoch = at._replace(step=0)
                order = streams.stream(place.master_seed, epoch, entry.name, scopes.SHARED)
                entry.adapter.set(at.task, at.epoch, order.key())
            except Exception as error:
                failures[entry.name] = error
        # Their tracebacks would hold the generators.
        return place, {name: error.with_traceback(None) for name, error in failures.items()}

    def adapters(self) -> dict[str, GeneratorAdapter]:
        """Return the adapter of every generator in this process, by stream name."""
        found = dict(self.defaults.adapters)
        found.update((a.name, a) for a in self.accelerators if a.generators())
        found.update((entry.name, entry.adapter) for entry in self.registry.generators)
        return found
