"""An iteration of a loader: the indices that torch fetches, and how much the loop was given.

*Requested* runs ahead of *delivered* by what workers prefetch. A state counts delivered batches.

Samplers follow the scope of the iteration and leave the generators of the main process alone.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import numpy as np
import torch

from ..._backend import derive
from ..._utils import StateDict
from ..._utils.log import warn_once
from ...derivation import context, scopes, streams
from ...derivation.place import place_at
from ...derivation.scopes import Scope
from ...derivation.streams import Stream
from ...generators.adapter import adapter_of
from ...generators.setters import tell_epoch
from ...random.keyed import apart_from_blocks
from ...seeder.seeder import Seeder
from ..order.samplers import ShuffleSampler, without_generator
from ..plan import Plan
from ..worker.scope import IterationScope
from ..worker.seeding import GENERATORS, is_on_device, snapshot
from ..worker.streams import torch_generator
from .states import WorkerPlaces

_NAME = "loader"
_KNOWN_MODULES = ("torch.utils.data.", "fastseed.")
_END = object()
T = TypeVar("T")


def iterate(loader: Any, at: tuple[int, int], plan: Plan, state: StateDict) -> tuple[Any, Any]:
    """Return the batches of a plan at (task, epoch), and the iteration that counts them."""
    return loader._iterate(*at, plan, False, state), loader._latest


class Iteration:
    """One iteration of a loader: its scope, its plan, and how much of it was delivered."""

    def __init__(
        self,
        loader: Any,
        seeder: Seeder,
        scope: IterationScope,
        plan: Plan,
        is_over: bool = False,
        read: str = "",
    ) -> None:
        self.scope, self.plan, self.name, self.is_over = scope, plan, loader.name, is_over
        self._kept: dict[str, int] = loader._kept_by_samplers
        self.places: WorkerPlaces | None = None  # of a dataset with its own state, in workers
        self.may_begin_at_end = False  # of a dataset whose loaded state is that of an epoch's end
        self.requested = 0  # batches whose indices were handed out
        self.delivered = 0  # batches up to the last one that the loop was given
        self.seeder, self._rank = seeder, seeder.data_rank
        self.master_seed = seeder.place.master_seed
        self._indices = ReadIndices(plan, read) if plan.is_foreign else None

    @property
    def position(self) -> int:
        """The position after the batches that the loop was given."""
        return self.plan.position_after(self.delivered)

    @property
    def read(self) -> str:
        """The digest of the indices that the loop was given, of another sampler."""
        return "" if self._indices is None else self._indices.text

    def deliver(self, count: int) -> None:
        """Note that the loop was given batch number ``count``, from 1."""
        if self._indices is not None:
            self._indices.deliver(count - self.delivered)
        self.delivered = count

    def _stream(self, name: str, step: int, rank: int) -> streams.Stream:
        scope = derive.scope_key(self.master_seed, self.scope.task, self.scope.epoch, step)
        return streams.stream_in(streams.named_scope(scope, self.name), name, rank)

    def generator(self) -> torch.Generator:
        """Return the generator that torch may draw from for workers."""
        return torch_generator(self._stream(_NAME, self.scope.start, self._rank).key(1))

    def requests(self) -> Iterator[object]:
        """Yield the indices, batch by batch; nothing happens before the first is asked for."""
        samplers, (task, epoch, *_) = self.plan.samplers, self.scope
        _set_scope(samplers, task, epoch)
        # What divides an order into replicas needs one that is the same on all ranks.
        rank = self._rank if self.plan.divider is None else scopes.SHARED
        drop = None if self._indices is None else self._indices.drop
        batches = iter(()) if self.is_over else self.plan.requests(drop)
        draw = functools.partial(next, batches, _END)
        foreign = [s for s in samplers if not type(s).__module__.startswith(_KNOWN_MODULES)]
        attributes: dict[str, int] = {}
        if foreign:
            attributes = _attributes_of(foreign)
            self._warn_of_memory(attributes)
            stream_of = lambda name: self._stream(f"{_NAME}.{name}", 0, rank)  # noqa: E731
            place = SamplerPlace(self.seeder, Scope(task, epoch, 0), stream_of)
            draw = functools.partial(place.run, draw)
        lent = without_generator(samplers)
        try:
            for sampler in lent:  # torch's own samplers use their generator once
                sampler.generator = torch_generator(self._stream(_NAME, 0, rank).key(0))
            batch = draw()
        finally:
            for sampler in lent:
                sampler.generator = None
        try:
            while batch is not _END:
                self.requested += 1
                if self._indices is not None:
                    self._indices.request(batch)
                yield batch
                batch = draw()
        finally:
            changed = _attributes_of(foreign).items() - attributes.items()
            self._kept |= {name: value for name, value in changed if name in attributes}

    def _warn_of_memory(self, attributes: dict[str, int]) -> None:
        """Log a warning if a sampler begins with what its latest run has left behind."""
        kept = sorted(name for name in self._kept if self._kept[name] == attributes.get(name))
        if kept:
            warn_once(
                "fastseed.data.Loader: %s changed while the sampler ran and is kept for its next "
                "run, but a resumed job begins with a new sampler: if the order follows from it, "
                "set it in set_epoch(epoch), or draw from the global generators",
                ", ".join(kept),
            )


class ReadIndices:
    """The digest of the indices that another sampler yields: run again, it must yield the same."""

    def __init__(self, plan: Plan, read: str) -> None:
        self._plan, self._place = plan, f"{plan.rank} of {plan.layout.ranks}: "
        # Those of another rank, whose state serves this one as well, are not known.
        self._expected = read.removeprefix(self._place) if read.startswith(self._place) else ""
        self._digest = hashlib.sha256()
        self._waiting: deque[str] = deque()  # of the batches that are under way
        self.text = read

    def drop(self, indices: Iterable[Any]) -> None:
        """Take the indices that were read before; RuntimeError if they are others."""
        for index in indices:
            self._digest.update(_text_of(index).encode())
        if self._expected not in ("", self._digest.hexdigest()):
            raise RuntimeError(
                "fastseed.data: the sampler must yield the same indices when it is run again, but "
                "those before this step are others than the loop had: let it draw from the global "
                "generators, from fastseed, or from a generator that set_epoch(epoch) seeds"
            )

    def request(self, batch: Any) -> None:
        text = "".join(map(_text_of, batch)) if self._plan.is_batched else _text_of(batch)
        self._digest.update(text.encode())
        self._waiting.append(self._digest.hexdigest())

    def deliver(self, count: int) -> None:
        """Note that the loop was given so many batches more."""
        for _ in range(count):
            self.text = self._place + self._waiting.popleft()


def _text_of(index: Any) -> str:
    """Return a text that is equal for equal indices, or lists of them."""
    if type(index) is int:
        return f"{index},"
    index = index.tolist() if hasattr(index, "tolist") else index
    if isinstance(index, (list, tuple)):
        return f"[{''.join(map(_text_of, index))}],"
    return f"{index if isinstance(index, (int, str)) else type(index).__name__},"


class SamplerPlace:
    """Where another library's sampler runs: step 0 of its epoch, with the generators it had last.

    Else its order would depend on what the loop draws, and on the step that resumes it.
    """

    def __init__(self, seeder: Seeder, at: Scope, stream_of: Callable[[str], Stream]) -> None:
        self._seeder, self._stream_of = seeder, stream_of
        self._place = place_at(seeder.master_seed, seeder.place.fields, at)
        self._go_on: Callable[[], None] | None = None  # sets what the latest run left

    def run(self, call: Callable[[], T]) -> T:
        """Return what ``call()`` returns, and put everything back."""
        seeder, current = self._seeder, context.current(_NAME)
        own = [e for e in seeder.generators.registry.generators if not is_on_device(e)]
        before, restore = seeder.place, snapshot(own)
        with apart_from_blocks():
            try:
                seeder.place = self._place
                context.set_current(seeder)
                if self._go_on is None:
                    GENERATORS.reseed(self._stream_of)
                    scope = self._place.scope_key
                    for entry in own:
                        stream = streams.stream_in(scope, entry.name, entry.rank_field)
                        entry.adapter.reseed(stream)
                else:
                    self._go_on()
                result = call()
                self._go_on = snapshot(own)
                return result
            finally:
                restore()
                seeder.place = before
                context.set_current(current)


def _attributes_of(samplers: list[object]) -> dict[str, int]:
    """Return hashes of the numbers, generators and lists that samplers hold."""
    found = {}
    for sampler in samplers:
        for name, value in getattr(sampler, "__dict__", {}).items():
            with contextlib.suppress(Exception):  # such as a list of lists, which has no hash
                if (adapter := adapter_of(type(value))) is not None:
                    value = adapter(value).state()
                if isinstance(value, torch.Tensor):
                    value = value.numpy(force=True)
                value = value.tobytes() if isinstance(value, np.ndarray) else value
                value = tuple(value) if isinstance(value, list) else value
                if isinstance(value, (int, float, str, bytes, tuple)) and value != ():
                    found[f"{type(sampler).__name__}.{name}"] = hash(value)
    return found


def _set_scope(samplers: list[object], task: int, epoch: int) -> None:
    """Give task and epoch to samplers that take them; a ShuffleSampler reads them itself."""
    done: list[object] = []
    for sampler in samplers:
        method = getattr(sampler, "set_scope", None) or getattr(sampler, "set_epoch", None)
        owner: Any = getattr(method, "__self__", sampler)  # of a method that is passed through
        is_known = method is None or isinstance(owner, ShuffleSampler)
        if not (is_known or any(owner is other for other in done)):
            done.append(owner)
            tell_epoch(owner, task, epoch)
