"""``scheme="philox-v1"``: every stream has a key (docs/spec/derivation.md)."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from ..._backend.reference import scalar
from ...derivation import streams
from ...derivation.scopes import SHARED, Scope
from ...derivation.streams import Stream

if TYPE_CHECKING:
    from ..seeder import Seeder


def reseed(seeder: Seeder, at: Scope) -> dict[str, Exception]:
    """Reseed everything; return the exceptions of what failed, by stream name."""
    registry, accelerators = seeder._registry, seeder._accelerators
    field = seeder._field_of_defaults
    done = field is not None and seeder._defaults.reseed_natively(
        seeder._master_of(field), at, field
    )
    if done and not (accelerators or registry.generators or registry.epoch_setters):
        return {}

    @functools.cache
    def scope(rank_field: int) -> scalar.ScopeKey:
        return seeder._scope_key(rank_field, at)

    def stream_of(name: str) -> Stream:
        rank_field = seeder._rank_fields.of(name)
        return streams.stream_in(scope(rank_field), name, rank_field)

    failures = {} if done else seeder._defaults.reseed(stream_of)
    for accelerator in accelerators:
        try:
            accelerator.reseed(stream_of(accelerator.name))
        except Exception as error:
            failures[accelerator.name] = error
    for entry in registry.generators:
        field = entry.rank_field
        try:
            entry.adapter.reseed(streams.stream_in(scope(field), entry.name, field))
        except Exception as error:
            failures[entry.name] = error
    for entry in registry.epoch_setters:  # in a forked child, too, the epoch is the job's
        try:
            order = streams.stream(seeder.master_seed, at._replace(step=0), entry.name, SHARED)
            entry.adapter.set(at.task, at.epoch, order.key())
        except Exception as error:
            failures[entry.name] = error
    return failures
