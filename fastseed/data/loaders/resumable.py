"""A loader that can stop anywhere in an epoch and resume there, on other processes."""

from __future__ import annotations

import functools
import logging
from typing import Any

from torch.utils.data import (
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
)

from ..._backend.compile import eager
from ..._utils import StateDict, validation
from ...derivation import context, scopes
from ...seeder.seeder import Seeder
from ..order.samplers import RANDOM_SAMPLERS, samplers_in
from ..worker.scope import IterationScope, keyed_seeder
from .epochs import users_epoch
from .iteration import Iteration
from .loader import Loader
from .saved_state import check_state
from .seekable import MAX_POSITION, Seekable, can_seek
from .shared_order import index_sampler_of, is_iterable, order_of

logger = logging.getLogger("fastseed")

FORMAT = "fastseed.loader"
VERSION = 1

_CLASS = "data.ResumableLoader"
_LIMITS = {
    "master_seed": (0, scopes.MAX_MASTER),
    "task": (0, scopes.MAX_TASK),
    "epoch": (0, scopes.MAX_EPOCH),
    "position": (0, MAX_POSITION),
    "over": (0, 1),
}


class ResumableLoader(Loader):
    """A ``Loader`` that can stop anywhere in an epoch and resume there.

    The state is the name of the order and a few integers. ``position`` counts the samples of the
    epoch's order, over all ranks, in the batches that the loop was given, whatever workers have
    fetched ahead: each batch of ``b`` samples on ``w`` ranks that share the order adds ``b * w``,
    and the end is ``n``. A batch that raised an error counts once the next one was given.
    ``over`` is 1 once the loop has ended: the epoch then has no batch left, and another epoch
    starts at its beginning. All ranks must stop after as many batches; the state of any rank serves
    all.

    Before it resumes, you may change the workers, the batch size and, for a ``ShuffleSampler``
    or ``Seekable``, the number of ranks. The new batches begin at ``position``; the settings
    of the resuming loader decide what happens to a last, shorter batch.

    A ShuffleSampler starts at ``position`` at no cost. Any other sampler is run from its
    beginning, without reading data, and must yield the same again: it does if it uses no random
    numbers, or those of the global generators, but not with a generator that continues from epoch
    to epoch. A sampler with ``num_replicas`` resumes with another number of ranks only where
    position is a multiple of it. Worker streams begin at step ``position`` of the scope, so no
    random number is used twice; a dataset of ``per_sample`` gives exactly the same samples.

    With ``shuffle=True`` ranks share one order. With ``shuffle=False``, or torch's other samplers,
    each rank reads all samples, as in a plain DataLoader, which logs a warning: pass
    ``sampler=ShuffleSampler(dataset, shuffle=False)`` to divide the dataset's own order.

    An iterable dataset must be a ``Seekable`` or have ``seek(position)``, and is then read as
    ``Seekable(dataset)``. One with ``state_dict`` and ``load_state_dict`` is resumed without
    workers only.

    Args:
        dataset: as for ``Loader``, as are all that follow.
        batch_size: the number of samples in a batch.
        shuffle: True for a ``ShuffleSampler``.
        settings: ``name``, and DataLoader's other arguments, by name; ``in_order`` must be True.

    Raises:
        TypeError: an iterable dataset that cannot be resumed, or a DataLoader as ``dataset``.
        ValueError: ``in_order=False``; a sampler of torch with its own generator; an iterable
            dataset without ``seek`` and with workers.

    Examples:
        >>> import fastseed
        >>> fastseed.init(42, rank=0, world_size=1)
        >>> fastseed.reseed(1, 7)
        >>> batches = fastseed.data.ResumableLoader(range(10), batch_size=4, shuffle=True)
        >>> next(iter(batches))
        tensor([5, 0, 7, 2])
        >>> state = batches.state_dict()
        >>> resumed = fastseed.data.ResumableLoader(range(10), batch_size=3, shuffle=True)
        >>> resumed.load_state_dict(state)  # in another process, on other ranks
        >>> list(resumed)
        [tensor([6, 9, 3]), tensor([8, 1, 4])]
    """

    _path = _CLASS

    def __init__(
        self, dataset: Any, batch_size: int | None = 1, shuffle: bool | None = None, **settings: Any
    ) -> None:
        is_seekable = isinstance(dataset, Seekable)
        if isinstance(dataset, IterableDataset) and not is_seekable and can_seek(dataset):
            dataset, is_seekable = Seekable(dataset), True
        super().__init__(dataset, batch_size, shuffle, **settings)
        if not self.in_order:
            rule = "True, so that the number of batches says which were delivered"
            raise validation.value_error(_CLASS, "in_order", rule, False)
        samplers = samplers_in(index_sampler_of(self))
        if any(isinstance(s, RANDOM_SAMPLERS) and s.generator for s in samplers):
            rule = "without a generator, whose state is lost: use shuffle=True, or a ShuffleSampler"
            raise validation.value_error(_CLASS, "sampler", rule, samplers[-1])
        self._keeps_dataset_state = is_iterable(self) and not is_seekable
        if self._keeps_dataset_state:
            if not (hasattr(dataset, "state_dict") and hasattr(dataset, "load_state_dict")):
                rule = "map-style, a Seekable, or have seek(position), or a state_dict"
                raise validation.type_error(_CLASS, "dataset", rule, dataset)
            if self.num_workers:
                rule = "0 for an iterable dataset without seek(position)"
                raise validation.value_error(_CLASS, "num_workers", rule, self.num_workers)
        self._latest: Iteration | None = None
        self._loaded: StateDict | None = None

    def state_dict(self) -> StateDict:
        """Return the position of the latest iteration; before it, the state that was loaded.

        Returns:
            A dict of strings and integers, and of the state of a dataset that has its own.

        Raises:
            RuntimeError: ``fastseed.init`` was not called.
        """
        if self._loaded is not None:
            return dict(self._loaded)
        seeder, latest = context.current(f"{_CLASS}.state_dict"), self._latest
        task, epoch = (0, 0) if latest is None else (latest.scope.task, latest.scope.epoch)
        position = 0 if latest is None else latest.position
        is_over = latest is not None and latest.is_over
        numbers = seeder.master_seed, task, epoch, position, int(is_over)
        state = {**self._order(), **dict(zip(_LIMITS, numbers, strict=True))}
        if self._keeps_dataset_state:
            state["dataset"] = self.dataset.state_dict()  # type: ignore[attr-defined]
        return state

    @property
    def latest_iteration(self) -> Iteration | None:
        """The iteration whose position ``state_dict`` returns; None before and after loading."""
        return self._latest

    def _order(self) -> dict[str, str | int]:
        order = order_of(self)
        numbers = {"n": order.n, "drop_last": int(order.drop_last)}
        return {"format": FORMAT, "version": VERSION, "order": order.name, **numbers}

    def load_state_dict(self, state: StateDict) -> None:
        """Start the next iteration where ``state`` was taken.

        That iteration must be of the state's task and epoch, under its master seed: otherwise
        ``iter()`` raises RuntimeError, unless that epoch has no batch left. ``restart``
        discards the state. Of the dataset only the size is compared.

        Args:
            state: what ``state_dict`` returned, on any rank.

        Raises:
            TypeError, ValueError: ``state`` is damaged, of another version, of another order, or
                of a dataset of another size; nothing is changed.
        """
        self._loaded = self.parse_state(f"{_CLASS}.load_state_dict", state)
        self._latest = None

    def parse_state(self, function: str, state: StateDict) -> StateDict:
        """Return a state with Python's integers; the errors are those of ``load_state_dict``."""
        own = self._order()
        others = {*_LIMITS, "dataset"} if self._keeps_dataset_state else set(_LIMITS)
        check_state(function, "loader", state, own, others)
        numbers = {
            field: validation.check_int(function, f"state[{field!r}]", state[field], *bounds)
            for field, bounds in _LIMITS.items()
        }
        return {**state, **own, **numbers}

    def seek(self, task: int, epoch: int, position: int) -> None:
        """Start the next iteration, which must be of this task and epoch, at a position."""
        seeder = keyed_seeder(_CLASS)
        numbers = seeder.master_seed, task, epoch, position, 0
        self._loaded = {**self._order(), **dict(zip(_LIMITS, numbers, strict=True))}
        self._latest = None

    def restart(self) -> None:
        """Discard a loaded state: the next iteration is a whole epoch."""
        self._loaded = self._latest = None

    @eager
    def __iter__(self) -> Any:
        seeder = keyed_seeder(_CLASS)
        scope, order = self._next_scope(seeder), order_of(self, seeder)
        state, is_over = self._loaded, False
        if state is not None and self._is_resumed_in(seeder, scope):
            scope, is_over = scope._replace(start=state["position"]), bool(state["over"])
            if "dataset" in state and not is_over:
                self.dataset.load_state_dict(state["dataset"])  # type: ignore[attr-defined]
        iteration = Iteration(self, seeder, scope, order, is_over)
        if order.ranks == 1 and seeder.data_world_size > 1:
            _warn_if_repeated(seeder.data_world_size, samplers_in(index_sampler_of(self)))
        iterator = self._start(iteration, seeder)
        self._latest, self._loaded = iteration, None
        return iter(()) if is_iterable(self) and iteration.is_empty() else iterator

    def check_scope(self, task: int, epoch: int) -> None:
        """Raise the RuntimeError that an iteration in this scope would raise for a loaded state.

        A sampler whose epoch ``reseed`` or the script sets may have another one by then.
        """
        if users_epoch(samplers_in(index_sampler_of(self))) is None:
            self._is_resumed_in(keyed_seeder(_CLASS), self._scope_in(task, epoch))

    def has_rest(self) -> bool:
        """Return True if the epoch of a loaded state may have a batch left."""
        state = self._loaded
        if state is None or state["over"]:
            return False
        return order_of(self, keyed_seeder(_CLASS)).has_batch_after(state["position"])

    def _is_resumed_in(self, seeder: Seeder, scope: IterationScope) -> bool:
        """Return True if a loaded state applies; RuntimeError if it is of another scope."""
        state, order = self._loaded, order_of(self, seeder)
        if state is None or not (state["position"] or state["over"]):
            return False
        position, master_seed = state["position"], state["master_seed"]
        here = scope.task, scope.epoch, seeder.master_seed
        if here != (state["task"], state["epoch"], master_seed):
            if not self.has_rest():
                return False
            saved = "fastseed.data.ResumableLoader: the loaded state is "
            if master_seed != seeder.master_seed:
                raise RuntimeError(
                    f"{saved}of master seed {master_seed}, but the job has {seeder.master_seed}: "
                    f"call fastseed.init({master_seed}), or restart() to discard the state"
                )
            raise RuntimeError(
                f"{saved}within task {state['task']}, epoch {state['epoch']}, but the job is in "
                f"task {scope.task}, epoch {scope.epoch}: call fastseed.reseed({state['task']}, "
                f"{state['epoch']}), or restart() to discard the state"
            )
        is_between = position % order.ranks and not order.starts_anywhere
        if is_between and not (state["over"] or order.ends_at(position)):
            raise RuntimeError(
                f"fastseed.data.ResumableLoader: position must be a multiple of the {order.ranks} "
                f"ranks that share {order.name}, got {position}; resume with as many ranks as "
                "before, or use a ShuffleSampler"
            )
        return True


@functools.cache
def _warn_undivided(world_size: int, name: str) -> None:
    logger.warning(
        "fastseed.%s: each of the %d ranks reads all samples that %s yields: pass shuffle=True, or "
        "sampler=fastseed.data.ShuffleSampler(dataset, shuffle=False), which ranks share; if they "
        "are meant to read the same, as tensor-parallel ranks, give fastseed.init their mesh",
        _CLASS,
        world_size,
        name,
    )


def _warn_if_repeated(world_size: int, samplers: list[object]) -> None:
    """Log a warning for torch's samplers that yield every sample on every rank."""
    for sampler in samplers:
        is_whole = type(sampler) in (SequentialSampler, SubsetRandomSampler)
        if is_whole or (type(sampler) is RandomSampler and not sampler.replacement):
            _warn_undivided(world_size, type(sampler).__name__)
