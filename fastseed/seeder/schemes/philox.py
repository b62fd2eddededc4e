"""``scheme="philox-v1"``: every stream has a key of its own (docs/spec/derivation.md)."""

from __future__ import annotations

import functools

from ..._backend import derive
from ..._backend.reference import scalar
from ...derivation import streams
from ...derivation.forks import Ancestry
from ...derivation.scopes import SHARED, Scope
from ...derivation.streams import Stream
from ...distributed.mesh import RankFields
from ...generators.accelerator import AcceleratorGenerators
from ...generators.default import NAMES, DefaultGenerators
from ..registry import Registry


class PhiloxScheme:
    """Reseeds the default generators, the accelerators and what users registered."""

    name = "philox-v1"

    def __init__(
        self,
        defaults: DefaultGenerators,
        accelerators: list[AcceleratorGenerators],
        registry: Registry,
        rank_fields: RankFields,
    ) -> None:
        self._defaults, self._accelerators, self._registry = defaults, accelerators, registry
        self._rank_fields = rank_fields
        of_defaults = {rank_fields.of(name) for name in NAMES}
        # The one rank field of the three default generators; None if they differ.
        self._common = of_defaults.pop() if len(of_defaults) == 1 else None

    def reseed(self, master_seed: int, ancestry: Ancestry, at: Scope) -> dict[str, Exception]:
        """Reseed everything; return the exceptions of what failed, by stream name."""
        failures: dict[str, Exception] = {}
        common = self._common
        done = common is not None and self._defaults.reseed_natively(
            ancestry.master(master_seed, common), at, common
        )
        registry = self._registry
        if done and not (self._accelerators or registry.generators or registry.epoch_setters):
            return failures

        @functools.cache
        def scope(rank: int) -> scalar.ScopeKey:
            return derive.scope_key(ancestry.master(master_seed, rank), *at)

        def stream_of(name: str) -> Stream:
            rank = self._rank_fields.of(name)
            return streams.stream_in(scope(rank), name, rank)

        if not done:
            failures.update(self._defaults.reseed(stream_of))
        for accelerator in self._accelerators:
            try:
                accelerator.reseed(stream_of(accelerator.name))
            except Exception as error:
                failures[accelerator.name] = error
        for entry in self._registry.generators:
            try:
                field = entry.rank_field
                entry.adapter.reseed(streams.stream_in(scope(field), entry.name, field))
            except Exception as error:
                failures[entry.name] = error
        failures.update(self._set_epochs(master_seed, at))
        return failures

    def _set_epochs(self, master_seed: int, at: Scope) -> dict[str, Exception]:
        """Set the epoch of samplers and datasets; in a forked child, too, it is the job's."""
        failures: dict[str, Exception] = {}
        epoch = at._replace(step=0)
        for entry in self._registry.epoch_setters:
            try:
                key = streams.stream(master_seed, epoch, entry.name, SHARED).key()
                entry.adapter.set(at.task, at.epoch, key)
            except Exception as error:
                failures[entry.name] = error
        return failures
