"""A loader that can stop anywhere in an epoch and resume there, on other processes."""

from __future__ import annotations

from typing import Any

from torch.utils.data import IterableDataset

from .._backend.compile import eager
from .._utils import validation
from ..derivation import context, streams
from ..seeder.seeder import Seeder
from .iteration import RANDOM_SAMPLERS, samplers_in
from .iteration_scope import keyed_seeder
from .plain_loader import Loader
from .resumable_iteration import (
    UNKNOWN,
    CountingIterator,
    ResumableIteration,
    can_start_anywhere,
    has_state,
    order_of,
    stateful_sampler,
)
from .seekable import MAX_POSITION, Seekable, can_seek
from .torch_loader import index_sampler_of, is_iterable

FORMAT = "fastseed.loader"
VERSION = 1

_CLASS = "data.ResumableLoader"
_RANGES = {
    "master_seed": (0, streams.MAX_MASTER),
    "task": (0, streams.MAX_TASK),
    "epoch": (0, streams.MAX_EPOCH),
    "position": (0, MAX_POSITION),
    "n": (UNKNOWN, MAX_POSITION),
    "drop_last": (0, 1),
    "over": (0, 1),
}


class ResumableLoader(Loader):
    """A :func:`loader` that can stop anywhere in an epoch and resume there.

    The state is the name of the order and a few integers. ``position`` counts the samples of the
    epoch's order, over all ranks, in the batches that were *delivered*: those that the loop was
    given, the current one included, whatever workers have fetched ahead. With batches of ``b``
    samples on ``w`` ranks that share the order, each batch adds ``b * w``; at the end position is
    ``n``, also if ranks repeat samples to have equally many. A batch that raised an error was not
    delivered; the next one that is delivered counts it as passed. ``over`` is 1 after the end of
    the loop: resumed in that epoch nothing is left, and any other epoch is a whole one. All ranks
    stop after the same number of batches, and the state of any rank serves all.

    Before it resumes, you may change the workers, prefetching, pinning, the batch size and, for a
    :class:`ShuffleSampler` or :class:`Seekable`, the number of ranks. The new batches begin at
    ``position``; the settings of the resuming loader decide what happens to a last, shorter batch.
    ``len()`` is always that of a whole epoch.

    A ShuffleSampler starts at ``position`` at no cost. Samplers with ``state_dict`` and
    ``load_state_dict`` are saved with the loader's state. Any other sampler is run from its
    beginning, without reading data, and must yield the same again: it does if it uses no random
    numbers, or those of the global generators, but not with a generator that continues from epoch
    to epoch. A sampler with ``num_replicas`` resumes with another number of ranks only where
    position is a multiple of it. Worker streams begin at step ``position`` of the scope, so no
    random number is used twice; a dataset of :func:`per_sample` gives exactly the same samples.

    An iterable dataset must be a :class:`Seekable` or have ``seek(position)``, and is then read as
    ``Seekable(dataset)``. One with ``state_dict`` and ``load_state_dict`` is resumed without
    workers only.

    Args:
        dataset: as for :func:`loader`.
        arguments: as for DataLoader.
        keywords: as for DataLoader; ``in_order`` must be True.

    Raises:
        TypeError: an iterable dataset that cannot be resumed.
        ValueError: ``in_order=False``; a sampler of torch with its own generator; an iterable
            dataset without ``seek`` and with workers.

    Example:
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

    def __init__(self, dataset: Any, *arguments: Any, **keywords: Any) -> None:
        is_seekable = isinstance(dataset, Seekable)
        if isinstance(dataset, IterableDataset) and not is_seekable and can_seek(dataset):
            dataset, is_seekable = Seekable(dataset), True
        super().__init__(dataset, *arguments, **keywords)
        if not self.in_order:
            rule = "True, so that the number of batches says which were delivered"
            raise validation.value_error(_CLASS, "in_order", rule, False)
        samplers = samplers_in(index_sampler_of(self))
        if any(isinstance(s, RANDOM_SAMPLERS) and s.generator for s in samplers):
            rule = "without a generator, whose state would be lost: it is given one of the scope"
            raise validation.value_error(_CLASS, "sampler", rule, samplers[-1])
        self._keeps_dataset_state = is_iterable(self) and not is_seekable
        if self._keeps_dataset_state and not has_state(dataset):
            rule = (
                "map-style, a Seekable, or have seek(position), or state_dict and load_state_dict"
            )
            raise validation.type_error(_CLASS, "dataset", rule, dataset)
        if self._keeps_dataset_state and self.num_workers:
            rule = "0 for an iterable dataset without seek(position)"
            raise validation.value_error(_CLASS, "num_workers", rule, self.num_workers)
        self._latest: ResumableIteration | None = None
        self._loaded: dict[str, Any] | None = None

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the latest iteration; before it, the state that was loaded.

        Returns:
            A dict of strings and integers, and of the state of a sampler or dataset that has one.

        Raises:
            RuntimeError: ``fastseed.init`` was not called.
        """
        if self._loaded is not None:
            return dict(self._loaded)
        seeder, latest = context.current(f"{_CLASS}.state_dict"), self._latest
        at = (0, 0, 0) if latest is None else (latest.task, latest.epoch, latest.position)
        is_over = latest is not None and latest.is_over
        state: dict[str, Any] = {
            "format": FORMAT,
            "version": VERSION,
            **self._order(),
            "master_seed": seeder.master_seed,
            **dict(zip(("task", "epoch", "position"), at, strict=True)),
            "over": int(is_over),
        }
        if latest is not None and latest.position and not is_over:
            if latest.inner is not None:
                state["sampler"] = latest.inner
            if self._keeps_dataset_state:
                state["dataset"] = self.dataset.state_dict()  # type: ignore[attr-defined]
        return state

    def _order(self) -> dict[str, Any]:
        order = order_of(self)
        return {"order": order.name, "n": order.n, "drop_last": int(order.drop_last)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Start the next iteration where ``state`` was taken.

        That iteration must be of the state's task and epoch, under its master seed: otherwise
        ``iter()`` raises RuntimeError, unless nothing of that epoch is left. :meth:`restart`
        discards the state.

        Args:
            state: what :meth:`state_dict` returned, on any rank.

        Raises:
            TypeError, ValueError: ``state`` is damaged, of another version, or of another dataset
                or order; nothing is changed.
        """
        self._loaded, self._latest = self._checked(state), None

    def restart(self) -> None:
        """Discard a loaded state: the next iteration is a whole epoch."""
        self._loaded = self._latest = None

    @eager
    def __iter__(self) -> Any:
        seeder = keyed_seeder(_CLASS)
        task, epoch = self._task_and_epoch(seeder)
        iteration = self._resumed(seeder, task, epoch)
        iterator, current = self._start(iteration, seeder)
        self._latest, self._loaded = iteration, None
        if is_iterable(self) and iteration.is_empty():
            iterator = iter(())
        return CountingIterator(iterator, iteration, current)

    def _resumed(self, seeder: Seeder, task: int, epoch: int) -> ResumableIteration:
        """Return the iteration that begins now: from the start, or as the loaded state says."""
        state, order = self._loaded, order_of(self, seeder)
        if state is None or not (state["position"] or state["over"]):
            return ResumableIteration(self, seeder, task, epoch, 0)
        position: int = state["position"]
        here = task, epoch, seeder.master_seed
        there = state["task"], state["epoch"], state["master_seed"]
        if here == there and state["over"]:
            return ResumableIteration(self, seeder, task, epoch, position, is_over=True)
        if here != there:
            least = (self.batch_size or 1) if self.drop_last else 1  # samples that make a batch
            is_known = order.ends_at_n and order.n != UNKNOWN
            if state["over"] or (is_known and order.left_of_rank(position) < least):
                return ResumableIteration(self, seeder, task, epoch, 0)
            raise RuntimeError(
                "fastseed.data.ResumableLoader: the loaded state is in the middle of task {}, "
                "epoch {} under master seed {}, but the job is in task {}, epoch {} under {}; call "
                "init and reseed with the state's, or restart() to discard it".format(*there, *here)
            )
        anywhere = order.is_datasets or can_start_anywhere(index_sampler_of(self))
        if position % order.ranks and not anywhere and not order.ends_at(position):
            raise RuntimeError(
                f"fastseed.data.ResumableLoader: position must be a multiple of the {order.ranks} "
                f"ranks that share {order.name}, got {position}; resume with as many ranks as "
                "before, or use a ShuffleSampler"
            )
        if "dataset" in state:
            self.dataset.load_state_dict(state["dataset"])  # type: ignore[attr-defined]
        inner = state.get("sampler")
        return ResumableIteration(self, seeder, task, epoch, position, inner=inner)

    def _checked(self, state: Any) -> dict[str, Any]:
        """Return a copy of ``state``; raise unless this loader can resume from it."""
        function = f"{_CLASS}.load_state_dict"
        validation.check_instance(function, "state", state, dict, "a dict from state_dict()")
        for field, value in (("format", FORMAT), ("version", VERSION)):
            if type(state.get(field)) is not type(value) or state[field] != value:
                found = state.get(field)
                raise validation.value_error(function, f"state[{field!r}]", repr(value), found)
        fields = {"format", "version", "order", *_RANGES}
        if state.get("position") != 0 and state.get("over") == 0:
            is_map = not is_iterable(self)
            if is_map and stateful_sampler(index_sampler_of(self)) is not None:
                fields.add("sampler")
            if self._keeps_dataset_state:
                fields.add("dataset")
        if set(state) != fields:
            rule = f"a dict of {', '.join(sorted(fields))}"
            raise validation.value_error(function, "state", rule, sorted(map(str, state)))
        checked = {
            field: validation.check_int(function, f"state[{field!r}]", state[field], low, high)
            for field, (low, high) in _RANGES.items()
        }
        for field, value in self._order().items():
            if state[field] != value:
                rule = f"{value!r}, as for this loader"
                raise validation.value_error(function, f"state[{field!r}]", rule, state[field])
        return {**state, **checked}
