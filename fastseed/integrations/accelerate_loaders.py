"""Where prepared loaders of Accelerate are, and the orders that it divides among ranks."""

from __future__ import annotations

import contextlib
import copy
import itertools
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, Sampler, SequentialSampler

from .._utils import StateDict, validation
from .._utils.log import warn_once
from ..data import Loader, ShuffleSampler
from ..data.loader.iteration import iterate
from ..data.loader.states import check_state
from ..data.loader.torch_loader import without_samplers
from ..data.order.samplers import RANDOM_SAMPLERS, samplers_in
from ..data.plan import compare_ranks, length, plan_of
from ..data.worker.scope import required_scope
from ..seeder import api
from ..seeder.seeder import current_seeder
from ._common import order_key, run_in_task

_NAME = "integrations.accelerate"
_ORDER = "accelerate.order"  # the stream of samplers with a generator
_FETCH = 1 << 16  # a dataset read in the main process draws in this task, plus that of its loader
_FIELDS = {"order": str, "n": int, "epoch": int, "step": int, "done": int, "read": str}
_END = object()


class Position:
    """Where the pass over one prepared loader is: its epoch, its step, and what is done of it."""

    def __init__(
        self,
        job: Any,  # an AttachedJob
        loader: Any,
        order: Order,
        task: int,
        is_regular: bool,
        is_dispatched: bool,
    ) -> None:
        self._job, self._loader, self._order, self._task = job, loader, order, task
        share = loader.batch_sampler
        self._is_dispatched = is_dispatched
        is_split = getattr(loader if is_dispatched else share, "split_batches", False)
        ranks = loader.state.num_processes if is_dispatched else getattr(share, "num_processes", 1)
        batches = 1 if is_split else ranks  # of the order in a step
        self._taken = batches if is_dispatched else 1  # of the base loader in a step
        self._turns = batches if is_dispatched else ranks  # of its plan's positions in a step
        # What the order yields, in a step: samples, or batches of any size.
        self._size = batches * (share.batch_size if is_regular else 1)
        self._drops = bool(getattr(share, "drop_last", False))
        if is_regular:
            loader._drop_last = self._drops  # which torch forgets of a batch sampler
        self._n = length(order)
        self._readers = Loader(
            **without_samplers(loader.base_dataloader),
            batch_sampler=Division(order, share, 1 if is_dispatched else ranks),
        )
        self.is_random = not isinstance(order.source, SequentialSampler)
        self.is_active = False  # a loop has it
        self._is_compared = False
        self._reads: deque[str] = deque()  # digests of the indices of batches that were fetched
        self._place(0, 0, 0, "")

    def _place(self, epoch: int, step: int, done: int, read: str, is_loaded: bool = False) -> None:
        self.epoch, self.step, self._done, self._read = epoch, step, done, read
        self._is_loaded, self._loader.iteration = is_loaded, epoch
        self._reads.clear()

    @property
    def _is_over(self) -> bool:
        left = self._n - self._done
        return self._n >= 0 and left < (self._size if self._drops else 1)

    def hand_out(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield the batches of a pass, each in its scope; ``batches`` begins with the first."""
        self._begin()
        loader, first = self._loader, self._done
        loader.skip_batches = int(self._replays)
        self.is_active = True
        try:
            for batch in () if self._is_over else batches:
                if first % self._size and loader.remainder >= 0 and not self._is_dispatched:
                    loader.remainder = (self._n - first) % self._size  # Accelerate's is of all
                for _ in range(min(self._taken, len(self._reads))):
                    self._read = self._reads.popleft()
                self.step, self._done = self.step + 1, self._done + self._size
                if self._n >= 0:
                    self._done = min(self._done, self._n)
                api.reseed(self._task, self.epoch, self.step - 1)
                yield batch
        finally:
            self.is_active = False
        self._place(self.epoch + 1, 0, 0, "")

    def _begin(self) -> None:
        """Choose the epoch and step at which a pass begins: those loaded, or an epoch's first."""
        job, epoch, is_training = self._job, self._loader.iteration, self is self._job._training
        if self._is_loaded and self.step and epoch != self.epoch and not self._is_over:
            raise RuntimeError(
                f"fastseed.{_NAME}: the loaded state is in epoch {self.epoch}, which is not over, "
                f"but set_epoch({epoch}) was called: begin the loop at epoch job.epoch"
            )
        if self._is_loaded and is_training and self.epoch and not job._was_asked:
            warn_once(
                "fastseed.integrations.accelerate: the resumed loop continues in epoch %d, and "
                "nothing has read it: begin with range(job.epoch, epochs), job = attach(...)",
                self.epoch,
            )
        if self.step and not self._is_loaded and epoch == self.epoch:
            epoch += 1
            if is_training:
                warn_once(
                    "fastseed.integrations.accelerate: a loop was left by break, and the next one "
                    "begins another epoch; a state that was saved in between continues the first"
                )
        if is_training and any(p.is_active and p.step > 1 for p in job._positions):
            warn_once(
                "fastseed.integrations.accelerate: the training loader is iterated inside a loop "
                "over another one: prepare the loader of the outer loop first, or shuffle it alone"
            )
        if self._is_loaded and epoch == self.epoch:
            self._is_loaded = False
        else:
            self._place(epoch, 0, 0, "")

    @property
    def _replays(self) -> bool:
        """True if Accelerate fills up the last batch from the first one, which it must see."""
        return self._is_dispatched and self._done >= self._size and not self._drops

    def fetch(self) -> Iterator[Any]:
        """Yield the batches of the base loader, which Accelerate fetches one step ahead."""
        if self._replays:
            yield from itertools.islice(self._fetch(0, 0, ""), self._taken)
            self._reads.clear()
        yield from self._fetch(self.step, self._done, self._read)

    def _fetch(self, step: int, done: int, read: str) -> Iterator[Any]:
        loader, at = self._readers, (self._task, self.epoch)
        is_aligned, first = done % self._size == 0, done // self._size * self._size
        if not is_aligned:  # steps begin here, and the last is filled up from the whole first one
            first = max(first, self._size) if self._n >= self._size else 0
        self._order.part = first, done
        plan = plan_of(loader, current_seeder(_NAME))
        if not self._is_compared and not self._is_dispatched:
            compare_ranks(_NAME, loader, plan, *at, done)
            self._is_compared = True
        plan = plan._replace(start=first // self._size * self._turns)
        state = {"read": read if is_aligned else ""}
        batches, iteration = iterate(loader, at, plan, state)
        for number in itertools.count(step * self._taken):
            # What a dataset draws here must not depend on what the loop has drawn.
            apart = run_in_task(_FETCH + self._task, self.epoch, number)
            with contextlib.nullcontext() if loader.num_workers else apart:
                batch = next(batches, _END)
            if batch is _END:
                return
            self._reads.append(iteration.read)
            yield batch

    def state_dict(self, is_training: bool) -> StateDict:
        """Return the position; a loop over another loader than the training one is over if left."""
        spec = plan_of(self._readers, current_seeder(_NAME)).spec
        state = {"order": spec.describe(), "n": self._n, "epoch": self.epoch, "step": self.step}
        state |= {"done": self._done, "read": self._read}
        if not is_training and self.step and not (self.is_active or self._is_loaded):
            state |= {"epoch": self.epoch + 1, "step": 0, "done": 0, "read": ""}
        return state

    def check(self, function: str, state: StateDict) -> None:
        """Raise TypeError or ValueError unless ``state`` can be loaded here."""
        check_state(function, "job", state, {}, _FIELDS)
        for name, kind in _FIELDS.items():
            validation.check_instance(function, f"state[{name!r}]", state[name], kind, "plain data")
        own = self.state_dict(False)
        for name in ("order", "n") if state["step"] else ():
            if state[name] != own[name]:
                rule = f"{own[name]!r}, as of the loader that is prepared"
                raise validation.value_error(function, f"state[{name!r}]", rule, state[name])

    def load_state_dict(self, state: StateDict) -> None:
        """Begin the next pass after the batches that were given."""
        self._place(state["epoch"], state["step"], state["done"], state["read"], is_loaded=True)


class Base(DataLoader[Any]):
    """The DataLoader in a prepared one, whose batches a ``Loader`` reads."""

    fetch: Callable[[], Iterator[Any]]

    def __iter__(self) -> Any:
        return self.fetch()


class Order(Sampler[Any]):
    """The order that Accelerate divides: samples, or batches, without those that are done."""

    def __init__(self, source: Any) -> None:
        self.source = source
        # Accelerate asks for them where the order is one of batches.
        self.batch_size = getattr(source, "batch_size", None)
        self.drop_last = getattr(source, "drop_last", False)
        self.part: tuple[int, int] | None = None  # of the pass that begins next

    def __len__(self) -> int:
        return len(self.source)

    def __iter__(self) -> Iterator[Any]:
        """Yield the items before ``part[0]``, then those from ``part[1]`` on."""
        part, self.part = self.part, None
        if part is None:
            raise RuntimeError(
                f"fastseed.{_NAME}: iterate the loader that accelerator.prepare has returned, "
                "without skip_first_batches: load_state restores the position"
            )
        (begin, done), items = part, iter(self.source)
        first = list(itertools.islice(items, begin)) if done < begin else []
        yield from first or itertools.islice(items, begin)
        yield from first[done:]
        yield from itertools.islice(items, max(0, done - begin), None)


class Division(BatchSampler):
    """The batches of this rank, which Accelerate's ``share`` takes from an order.

    Positions count batches over ``num_replicas`` ranks, since a framework may fill up the last.
    """

    def __init__(self, order: Order, share: Any, num_replicas: int) -> None:
        self.sampler, self.num_replicas, self._share = order.source, num_replicas, share
        self.batch_size, self.drop_last = share.batch_size, bool(share.drop_last)

    def __len__(self) -> int:
        return len(self._share)

    def __iter__(self) -> Iterator[list[int]]:
        scope = required_scope(_NAME)
        key = order_key(_NAME, _ORDER, scope.task, scope.epoch) % 2**64
        for sampler in samplers_in(self.sampler):
            generator = getattr(sampler, "generator", None)
            if isinstance(generator, torch.Generator) and not isinstance(sampler, RANDOM_SAMPLERS):
                generator.manual_seed(key)  # it continues from epoch to epoch, or differs by rank
        return iter(self._share)


def keyed(given: Any) -> Any:
    """Return a sampler of whole orders like a given one, whose order follows the master seed."""
    sampler: Any = copy.copy(given)
    if isinstance(sampler, ShuffleSampler):
        sampler.rank, sampler.world_size = 0, 1
        return sampler
    if not isinstance(given, RANDOM_SAMPLERS):
        return given
    if sampler.generator is not None:
        warn_once(
            "fastseed.integrations.accelerate: the order of %s follows the master seed, not its "
            "generator",
            type(sampler).__name__,
        )
    is_whole = isinstance(given, RandomSampler) and not sampler.replacement
    if is_whole and sampler.num_samples == length(sampler.data_source):  # that of shuffle=True
        return ShuffleSampler(sampler.num_samples, rank=0, world_size=1)
    sampler.generator = None  # the loader lends it one
    return sampler
