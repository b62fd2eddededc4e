"""An iteration of a loader: the indices that torch fetches, and how much the loop was given.

*Requested* runs ahead of *delivered* by what workers prefetch. A state counts delivered batches.

Samplers follow the scope of the iteration and leave the generators of the main process alone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader

from ..._backend import derive
from ...derivation import scopes, streams
from ...seeder.seeder import Seeder
from ..order.samplers import ShuffleSampler, without_generator
from ..plan import Plan, index_sampler_of, samplers_of
from ..worker.scope import IterationScope
from ..worker.seeding import GENERATORS
from ..worker.streams import torch_generator

_NAME = "loader"
_KNOWN_MODULES = ("torch.utils.data.", "fastseed.")
_END = object()


class Iteration:
    """One iteration of a loader: its scope, its plan, and how much of it was delivered."""

    def __init__(
        self,
        loader: DataLoader[Any],
        seeder: Seeder,
        scope: IterationScope,
        plan: Plan,
        is_over: bool = False,
    ) -> None:
        self.index_sampler, self._samplers = index_sampler_of(loader), samplers_of(loader)
        self.scope, self.plan, self.name = scope, plan, getattr(loader, "name", None)
        self.is_over = is_over
        self.may_begin_at_end = False  # of a dataset whose loaded state is that of an epoch's end
        self.requested = 0  # batches whose indices were handed out
        self.delivered = 0  # batches up to the last one that the loop was given
        self.master_seed, self._rank = seeder.master_seed, seeder.data_rank
        self._resume: list[Any] | None = None  # the streams of another library's sampler

    @property
    def position(self) -> int:
        """The position after the batches that the loop was given."""
        return self.plan.position_after(self.delivered)

    def _stream(self, name: str, step: int, rank: int) -> streams.Stream:
        scope = derive.scope_key(self.master_seed, self.scope.task, self.scope.epoch, step)
        return streams.stream_in(streams.named_scope(scope, self.name), name, rank)

    def generator(self) -> torch.Generator:
        """Return the generator that torch may draw from for workers."""
        return torch_generator(self._stream(_NAME, self.scope.start, self._rank).key(1))

    def requests(self) -> Iterator[object]:
        """Yield the indices, batch by batch; nothing happens before the first is asked for."""
        samplers = self._samplers
        _set_scope(samplers, self.scope.task, self.scope.epoch)
        # What divides an order into replicas needs one that is the same on all ranks.
        is_shared = any(hasattr(sampler, "num_replicas") for sampler in samplers)
        rank = scopes.SHARED if is_shared else self._rank
        is_known = all(type(s).__module__.startswith(_KNOWN_MODULES) for s in samplers)
        iterator: Iterator[object] | None = None

        def take() -> object:
            nonlocal iterator
            if iterator is None:
                iterator = iter(() if self.is_over else self.plan.requests())
            return next(iterator, _END)

        draw = take if is_known else functools.partial(self._with_own_globals, rank, take)
        lent = without_generator(samplers)
        try:
            for sampler in lent:  # torch's own samplers use their generator once
                sampler.generator = torch_generator(self._stream(_NAME, 0, rank).key(0))
            batch = draw()
        finally:
            for sampler in lent:
                sampler.generator = None
        while batch is not _END:
            self.requested += 1
            yield batch
            batch = draw()

    def _with_own_globals(self, rank: int, call: Callable[[], object]) -> object:
        """Let a sampler of another library draw from the global generators, in its own streams.

        Otherwise its order would depend on what the loop draws between two batches.
        """
        saved = GENERATORS.save()
        try:
            if self._resume is None:
                GENERATORS.reseed(lambda name: self._stream(f"{_NAME}.{name}", 0, rank))
            else:
                GENERATORS.restore(self._resume)
            result = call()
            self._resume = GENERATORS.save()
            return result
        finally:
            GENERATORS.restore(saved)


def _set_scope(samplers: list[object], task: int, epoch: int) -> None:
    """Give task and epoch to samplers that take them; a ShuffleSampler reads them itself."""
    done: list[object] = []
    for sampler in samplers:
        method = getattr(sampler, "set_scope", None) or getattr(sampler, "set_epoch", None)
        owner: Any = getattr(method, "__self__", sampler)  # of a method that is passed through
        if method is None or isinstance(owner, ShuffleSampler) or any(owner is o for o in done):
            continue
        done.append(owner)
        if hasattr(owner, "set_scope"):
            owner.set_scope(task, epoch)
        else:
            owner.set_epoch(epoch)
