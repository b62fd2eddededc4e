"""A loader that can be stopped anywhere in an epoch and goes on there, on other processes."""

from __future__ import annotations

from typing import Any

from torch.utils.data import IterableDataset

from .._backend.compile import eager
from .._utils import validation
from ..derivation import streams
from ..seeder import api
from ..seeder.seeder import Seeder
from .iterable import Seekable
from .iteration import Plan, chain
from .plain_loader import Loader
from .progress import (
    UNKNOWN,
    Counted,
    Delivery,
    Order,
    Progress,
    can_seek_in,
    keeps_state,
    order_of,
    shares_of,
    stateful,
)
from .sampler import ShuffleSampler
from .sampler_rng import DRAWING

FORMAT = "fastseed.loader"
VERSION = 1

_RANGES = {
    "master_seed": (0, streams.MAX_MASTER),
    "task": (0, streams.MAX_TASK),
    "epoch": (0, streams.MAX_EPOCH),
    "position": (0, 2**63 - 1),
    "n": (UNKNOWN, 2**63 - 1),
    "drop_last": (0, 1),
    "over": (0, 1),
}
_FIELDS = {"format", "version", "order", *_RANGES}


class ResumableLoader(Loader):
    """A :func:`loader` with ``state_dict`` and ``load_state_dict``: it goes on where it stopped.

        batches = fastseed.data.ResumableLoader(dataset, batch_size=32, shuffle=True)
        …
        saved = {"job": fastseed.state_dict(rng=True), "batches": batches.state_dict()}
        …                                               # in another process, on other ranks
        fastseed.reseed(1, saved["batches"]["epoch"])
        fastseed.load_state_dict(saved["job"])          # after any reseed of that epoch
        batches.load_state_dict(saved["batches"])
        for batch in batches:                           # the rest of the epoch

    Arguments are those of DataLoader, but ``in_order`` must be True.

    **What the state is.** A few integers and the order's name. ``position`` counts the samples of
    the epoch's order, over all ranks, that batches *delivered* have taken: those that this loop was
    given, the one in hand included, whatever workers have fetched ahead. With ``b`` samples in a
    rank's batch and ``w`` ranks that share the order, each batch adds ``b * w``; at the end, where
    ranks repeat samples to have as many, position stays at ``n``. A batch that raised was not
    delivered; the next one that is counts it as passed. ``over`` is 1 once the loop has come to its
    end: resumed in that epoch, there is nothing left of it, and any other is whole. All ranks stop
    after the same number of batches, and any rank's state serves all.

    **What may change** before it goes on: workers, prefetching, persistence, pinning, the batch
    size and, for a :class:`ShuffleSampler` or :class:`Seekable`, the number of ranks. The new
    batches begin at ``position``; how the last, short one is treated (kept; dropped; filled up with
    repeated samples so that ranks have as many) is decided by the settings of the loader that
    reads it, from what is left then. ``len()`` is always that of a whole epoch.

    **How it gets there.** A ShuffleSampler is asked for its positions from there on, at no cost.
    Samplers with ``state_dict`` and ``load_state_dict`` are saved with the loader's state. Any
    other sampler is run from its beginning, without touching the data, and has to yield the same
    again. It does if it draws from nothing, as torch's do here, or from the global generators,
    which are its own meanwhile; not if it holds a generator that goes on from epoch to epoch. A
    sampler that is cut by ``num_replicas`` (DistributedSampler) goes on with another number of
    ranks only where position is a multiple of it. Streams in workers begin at step ``position`` of
    the scope, so that nothing that was drawn is drawn again; a data set of :func:`per_sample` gives
    the very same samples.

    **Iterable data sets** have to be entered anywhere: :class:`Seekable`, or one with
    ``seek(position)``, which is then read as ``Seekable(dataset)`` describes. Those with
    ``state_dict`` and ``load_state_dict`` are resumed without workers only.

    Raises:
        TypeError: an iterable data set that cannot be resumed.
        ValueError: ``in_order=False``; a sampler of torch with a generator of its own.
    """

    def __init__(self, dataset: Any, *arguments: Any, **keywords: Any) -> None:
        if _only_seeks(dataset):
            dataset = Seekable(dataset)
        super().__init__(dataset, *arguments, **keywords)
        if not self.in_order:
            raise ValueError(
                "fastseed.data.ResumableLoader: in_order must be True, got False: which batches "
                "were delivered has to follow from how many"
            )
        if any(isinstance(s, DRAWING) and s.generator for s in chain(self._index_sampler)):
            raise ValueError(
                "fastseed.data.ResumableLoader: sampler must have no generator of its own, whose "
                "state would be lost: without one it draws its order from the scope of each "
                "iteration"
            )
        if self._dataset_kind == 1 and not isinstance(dataset, Seekable):
            _check_iterable(dataset, self.num_workers)
        self._progress: Progress | None = None
        self._loaded: dict[str, Any] | None = None

    def state_dict(self) -> dict[str, Any]:
        """Where the latest iteration is: ints and strings (and a sampler's or data set's state).

        Before an iteration of the state that was loaded last: that state.

        Raises:
            RuntimeError: before ``init``.
        """
        if self._loaded is not None:
            return dict(self._loaded)
        seeder = api.current("data.ResumableLoader.state_dict")
        progress = self._progress or Progress(Plan(0, 0, 0))
        order = order_of(self)
        state: dict[str, Any] = {
            "format": FORMAT,
            "version": VERSION,
            "order": order.name,
            "master_seed": seeder.master_seed,
            "task": progress.task,
            "epoch": progress.epoch,
            "position": progress.position,
            "n": order.n,
            "drop_last": int(order.drop_last),
            "over": int(progress.over),
        }
        middle = progress.position and not progress.over
        if middle and progress.inner is not None:
            state["sampler"] = progress.inner
        if middle and self._data_set_keeps_state():
            state["dataset"] = self.dataset.state_dict()  # type: ignore[attr-defined]
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Begin the next iteration where ``state`` was taken.

        It has to be one of that state's task and epoch, under its master seed: ``iter()`` raises
        RuntimeError otherwise, as long as anything of that epoch is left. :meth:`restart` forgets
        it.

        Raises:
            TypeError, ValueError: it is foreign or damaged, or of another data set or order;
                nothing has changed.
        """
        self._loaded = self._checked(state)
        self._progress = None

    def restart(self) -> None:
        """Forget a loaded state: the next iteration is a whole one."""
        self._loaded = self._progress = None

    # ------------------------------------------------------------------ an iteration

    @eager
    def __iter__(self) -> Any:
        seeder = api.current("data.ResumableLoader")
        run = self._run(seeder, *self._coordinates(seeder))
        iterator = self._start(run, seeder)
        self._progress, self._loaded = run.progress, None
        return Delivery(iterator, run)

    def _run(self, seeder: Seeder, task: int, epoch: int) -> Counted:
        order, shares = order_of(self), shares_of(self, seeder)
        start, over, inner = self._resumed(seeder, task, epoch, order, shares)
        return Counted(
            self._index_sampler,
            self._listeners,
            Plan(task, epoch, start),
            seeder,
            order,
            shares,
            inner,
            batched=self._auto_collation,
            over=over,
        )

    def _resumed(
        self, seeder: Seeder, task: int, epoch: int, order: Order, shares: int
    ) -> tuple[int, bool, Any]:
        """Position from which to go on, whether nothing comes after it, and sampler's state."""
        state = self._loaded
        if state is None or not (state["position"] or state["over"]):
            return 0, False, None
        position: int = state["position"]
        here = task, epoch, seeder.master_seed
        there = state["task"], state["epoch"], state["master_seed"]
        if here == there and state["over"]:
            return position, True, None
        if here != there:
            if state["over"] or self._is_over(position, order, shares):
                return 0, False, None
            raise RuntimeError(
                "fastseed.data.ResumableLoader: the loaded state is in the middle of task {}, "
                "epoch {} under master seed {}, but the job is in task {}, epoch {} under {}; "
                "go there with init and reseed, or call restart() to forget it".format(
                    *there, *here
                )
            )
        anywhere = order.of_data_set or can_seek_in(self._index_sampler)
        if position % shares and not anywhere and not order.ends_at(position):
            raise RuntimeError(
                f"fastseed.data.ResumableLoader: position must be a multiple of the {shares} ranks "
                f"that {order.name} serves, got {position}; go on with as many ranks as before, "
                "or use a ShuffleSampler"
            )
        if "dataset" in state:
            self.dataset.load_state_dict(state["dataset"])  # type: ignore[attr-defined]
        return position, False, state.get("sampler")

    def _is_over(self, position: int, order: Order, shares: int) -> bool:
        """Whether this loader has no batch for what is left of an epoch."""
        if order.n == UNKNOWN or not order.whole:
            return False
        left = max(order.n - position, 0)
        of_this_rank = left // shares if self._ranks_drop() else -(-left // shares)
        return of_this_rank < (self.batch_size or 1 if self.drop_last else 1)

    def _ranks_drop(self) -> bool:
        """Whether ranks leave out what does not suffice for all of them."""
        if self._dataset_kind == 1:
            return self.drop_last
        samplers = chain(self._index_sampler)
        ranked = [
            s for s in samplers if isinstance(s, ShuffleSampler) or hasattr(s, "num_replicas")
        ]
        return any(s.drop_last is True for s in ranked)

    # ------------------------------------------------------------------ checks

    def _data_set_keeps_state(self) -> bool:
        return self._dataset_kind == 1 and not isinstance(self.dataset, Seekable)

    def _checked(self, state: Any) -> dict[str, Any]:
        """A copy of ``state``; raises unless this loader can go on from it."""
        if not isinstance(state, dict):
            raise TypeError(
                "fastseed.data.ResumableLoader.load_state_dict: state must be a dict from "
                f"state_dict(), got {validation.describe(state)} of type {type(state).__name__}"
            )
        if state.get("format") != FORMAT:
            raise _refuse(f"state['format'] must be {FORMAT!r}", state.get("format"))
        if type(state.get("version")) is not int or state["version"] != VERSION:
            raise _refuse(f"state['version'] must be {VERSION}", state.get("version"))
        middle = state.get("position") != 0 and state.get("over") == 0
        inner = {"sampler"} if middle and self._sampler_keeps_state() else set()
        inner |= {"dataset"} if middle and self._data_set_keeps_state() else set()
        expected = _FIELDS | inner
        if set(state) != expected:
            fields = ", ".join(sorted(expected))
            raise _refuse(f"state must hold {fields}", sorted(map(str, state)))
        kept = dict(state)
        for field, (low, high) in _RANGES.items():
            kept[field] = validation.check_int(
                "data.ResumableLoader.load_state_dict", f"state[{field!r}]", state[field], low, high
            )
        order = order_of(self)
        here = {"order": order.name, "n": order.n, "drop_last": int(order.drop_last)}
        for field, value in here.items():
            if type(kept[field]) is not type(value) or kept[field] != value:
                raise _refuse(f"state[{field!r}] must be {value!r}, this loader's", state[field])
        return kept

    def _sampler_keeps_state(self) -> bool:
        return self._dataset_kind == 0 and stateful(self._index_sampler) is not None


def _refuse(rule: str, value: Any) -> ValueError:
    return ValueError(
        f"fastseed.data.ResumableLoader.load_state_dict: {rule}, got {validation.describe(value)}"
    )


def _only_seeks(dataset: Any) -> bool:
    return (
        isinstance(dataset, IterableDataset)
        and not isinstance(dataset, Seekable)
        and callable(getattr(dataset, "seek", None))
    )


def _check_iterable(dataset: Any, workers: int) -> None:
    if not keeps_state(dataset):
        raise TypeError(
            "fastseed.data.ResumableLoader: dataset must be of the map style, a Seekable, "
            "or have seek(position) or state_dict and load_state_dict, "
            f"got {validation.describe(dataset)} of type {type(dataset).__name__}"
        )
    if workers:
        raise ValueError(
            "fastseed.data.ResumableLoader: num_workers must be 0 for an iterable data set without "
            f"seek(position), got {workers}; its state is that of one process"
        )
