"""Where a block of ``random.keyed`` or ``fork_rng`` begins, and whose it is."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import TYPE_CHECKING, NamedTuple

from .._backend import derive
from .._backend.reference.scalar import ScopeKey
from .._utils import validation
from . import context, streams
from .entries import Entries
from .scopes import SHARED

if TYPE_CHECKING:
    from ..seeder.seeder import Seeder


class BlockPlace(NamedTuple):
    """Where a block begins."""

    scope: ScopeKey
    rank_field: int
    worker: int  # the worker word of its streams
    entries: Entries  # of this scope


worker_place: BlockPlace | None = None
"""That of a DataLoader worker whose generators fastseed has seeded; None in other processes."""


class SamplePlace(NamedTuple):
    """Where a sample of ``data.per_sample`` is read, or a batch of ``data.per_batch`` made."""

    scope: ScopeKey
    sample: int  # its index
    occurrence: int
    entries: Entries

    def of_block(self, path: str) -> BlockPlace:
        """Return the place of a block whose stream is ``path``: the same in every process."""
        stream = streams.sample_stream(self.scope, path, self.sample, self.occurrence)
        return BlockPlace(stream.scope(), 0, 0, self.entries)


sample_place: ContextVar[SamplePlace | None] = ContextVar("sample_place", default=None)

readers = 0
"""How many reads of samples and batches run in this process; compiled code guards it."""


def enter_sample(scope: ScopeKey, sample: int, occurrence: int) -> None:
    """Let the blocks of this thread belong to a sample."""
    sample_place.set(SamplePlace(scope, sample, occurrence, Entries()))


def place_of_block(
    function: str, path: str, distinct_over: object, of: Seeder | None = None
) -> BlockPlace:
    """Return where a block begins now: in a sample, a DataLoader worker, or the job."""
    sample = sample_place.get()
    place = worker_place if sample is None else sample.of_block(path)
    if place is None:
        context.refuse_worker(function, "pass worker_init_fn=fastseed.data.worker_init_fn to it")
        seeder = of or context.current(function)
        scope = derive.scope_key(seeder.master_seed, *context.scope_of(seeder, function))
        rank_field = seeder._rank_fields.under(function, path, distinct_over)
        return BlockPlace(scope, rank_field, 0, seeder.entries)
    if distinct_over not in (None, ()):
        rule = "None or () in a DataLoader worker and in a sample"
        raise validation.value_error(function, "distinct_over", rule, distinct_over)
    return place if distinct_over is None else place._replace(rank_field=SHARED)


ONE_TASK = (
    "a block belongs to the task that enters it, so do not await in it; asyncio.wait_for makes "
    "another task on Python 3.10 and 3.11"
)


def current_task() -> object:
    """Return the asyncio task that this thread runs, or None."""
    loop = asyncio._get_running_loop()
    return None if loop is None else asyncio.current_task(loop)
