"""A sampler whose order is a function: any part of it at once, the same on any number of ranks."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sized
from typing import Any, NamedTuple

import torch
from torch.utils.data import BatchSampler, Sampler

from .._backend import derive_ops
from .._utils import validation
from ..derivation import streams
from ..seeder import api
from . import permutation
from .sample_rng import Repeat

_FIRST_CHUNK, _LARGEST_CHUNK = 1 << 8, 1 << 14  # indices made at a time: soon, then in bulk
_VERSION = 1
_STATE = ("version", "n", "name", "shuffle", "master_seed", "task", "epoch", "position")


class _Plan(NamedTuple):
    """One iteration: this rank's positions are start, start + stride, ..., ``taken`` of them."""

    key: int | None
    n: int
    start: int
    stride: int
    taken: int


class _Progress:
    """How far an iteration has come."""

    def __init__(self, first: int, plan: _Plan) -> None:
        self._first, self._plan = first, plan
        self._done = 0  # indices of the chunks before this one
        self._size = 0
        self._chunk: Iterator[int] = iter(())

    def chunk(self, indices: list[int]) -> Iterator[int]:
        """The next indices, counted as they are taken."""
        self._done += self._size
        self._size, self._chunk = len(indices), iter(indices)
        return self._chunk

    def position(self) -> int:
        """The global position at which all ranks would go on."""
        taken = self._done + self._size - operator.length_hint(self._chunk)
        if taken == self._plan.taken:
            return self._plan.n
        return min(self._first + taken * self._plan.stride, self._plan.n)


class ShuffleSampler(Sampler[int]):
    """The indices of a data set in an order that has a key, for any size in O(1) memory.

    It goes where :class:`torch.utils.data.DistributedSampler` or ``RandomSampler`` goes::

        sampler = fastseed.data.ShuffleSampler(dataset)
        batches = DataLoader(dataset, batch_size=32, sampler=sampler)
        for epoch in range(epochs):
            fastseed.reseed(1, epoch)  # or sampler.set_epoch(epoch)
            for batch in batches: ...

    The order of an epoch is a function of master seed, task, epoch, ``name`` and n alone. Ranks
    take turns in it: rank r of w has positions r, r + w, r + 2 w, ... So it is one order for every
    number of ranks, and a job may go on with another number anywhere in it (:meth:`seek`).

    Without ``drop_last`` each rank yields ceil(n / w) indices: positions past the last are those
    at the beginning of the order again, at most w - 1 of them. Such an index is a
    :class:`Repeat`. With it, each yields floor(n / w), and the last n mod w positions nobody.

    Args:
        data: the data set, or how many samples it has: [1, 2**48].
        rank: this process's share of the data, [0, world_size). None: that of the job.
        world_size: how many shares there are, [1, 2**24). None: that of the job. Give both or none.
        drop_last: see above.
        shuffle: False: in the order of the data set, shared out in the same way.
        name: of the order; samplers of one name and size have the same.

    Attributes:
        n: the number of samples.
        task: what was set, or None: that of the last ``reseed``.
        epoch: likewise.

    Raises:
        TypeError, ValueError: for an argument that is out of its range.
    """

    def __init__(
        self,
        data: Sized | int,
        *,
        rank: int | None = None,
        world_size: int | None = None,
        drop_last: bool = False,
        shuffle: bool = True,
        name: str = permutation.NAME,
    ) -> None:
        self.n = _size_of(data)
        self.rank, self.world_size = _check_share(rank, world_size)
        self.drop_last = _check_bool("drop_last", drop_last)
        self.shuffle = _check_bool("shuffle", shuffle)
        self.name = streams.check_name("data.ShuffleSampler", name)
        self.task: int | None = None
        self.epoch: int | None = None
        self._seek: int | None = None
        self._loaded: dict[str, Any] | None = None
        self._latest: tuple[int, int, int, _Progress] | None = None  # master, task, epoch

    def __repr__(self) -> str:
        share = "" if self.rank is None else f", rank={self.rank}, world_size={self.world_size}"
        flags = f", drop_last={self.drop_last}, shuffle={self.shuffle}"
        return f"ShuffleSampler({self.n}{share}{flags}, name={self.name!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_latest": None}

    # ------------------------------------------------------------------ where the job is

    def set_epoch(self, epoch: int) -> None:
        """From the next iteration on this epoch, [0, 2**32), whatever ``reseed`` says."""
        self.epoch = validation.check_int(
            "data.ShuffleSampler.set_epoch", "epoch", epoch, 0, streams.MAX_EPOCH
        )

    def set_scope(self, task: int, epoch: int) -> None:
        """The same of the task, [0, 2**24), too."""
        at = streams.check_coordinates("data.ShuffleSampler.set_scope", task, epoch, 0)
        self.task, self.epoch = at.task, at.epoch

    def seek(self, position: int) -> None:
        """Begin the next iteration, and only that, at this global position: [0, n].

        Position p is where p samples were taken by all ranks together. Ranks take turns from there.
        """
        self._seek = validation.check_int(
            "data.ShuffleSampler.seek", "position", position, 0, self.n
        )
        self._loaded = None

    def _scope(self, function: str, task: int | None, epoch: int | None) -> tuple[int, int]:
        """(task, epoch): as given, else as set, else those of the last ``reseed``."""
        task = self.task if task is None else task
        epoch = self.epoch if epoch is None else epoch
        if task is None or epoch is None:
            at = api.current(function).scope
            if at is None and epoch is None:
                raise RuntimeError(
                    f"fastseed.{function}: call fastseed.reseed(task, epoch) first, or "
                    "set_epoch(epoch) of the sampler"
                )
            task = task if task is not None else 0 if at is None else at.task
            epoch = at.epoch if epoch is None and at is not None else epoch
        found = streams.check_coordinates(function, task, epoch, 0)
        return found.task, found.epoch

    def _key(self, function: str, task: int, epoch: int) -> int | None:
        if not self.shuffle:
            return None
        return permutation.order_key(function, self.n, task, epoch, self.name, None)

    def _share(self, function: str) -> tuple[int, int]:
        if self.rank is not None and self.world_size is not None:
            return self.rank, self.world_size
        seeder = api.current(function)
        return seeder.data_rank, seeder.data_world_size

    # ------------------------------------------------------------------ an iteration

    def __len__(self) -> int:
        """How many indices this rank yields in a whole epoch."""
        _, world_size = self._share("data.ShuffleSampler")
        return self._count(self.n, world_size)

    def _count(self, left: int, world_size: int) -> int:
        return left // world_size if self.drop_last else -(-left // world_size)

    def __iter__(self) -> Iterator[int]:
        """This rank's indices, as Python ints.

        Task, epoch, rank and world size are those of this moment.

        Raises:
            RuntimeError: before ``init``; neither ``reseed`` nor ``set_epoch`` was called; a state
                was loaded that is in the middle of another epoch.
        """
        master = api.current("data.ShuffleSampler").master_seed
        rank, world_size = self._share("data.ShuffleSampler")
        loaded, first = self._loaded, self._seek or 0
        if loaded is not None and self.epoch is None and api.current("").scope is None:
            task, epoch = loaded["task"], loaded["epoch"]
        else:
            task, epoch = self._scope("data.ShuffleSampler", None, None)
        if loaded is not None:
            first = _resumed(loaded, master, task, epoch)
        taken = self._count(self.n - first, world_size)
        key = self._key("data.ShuffleSampler", task, epoch)
        plan = _Plan(key, self.n, first + rank, world_size, taken)
        progress = _Progress(first, plan)
        self._seek, self._loaded = None, None
        self._latest = master, task, epoch, progress
        return _yield(plan, progress)

    def batches(self, batch_size: int, drop_last: bool = False) -> BatchSampler:
        """Lists of ``batch_size`` indices, the last one shorter unless ``drop_last``.

        For ``DataLoader(dataset, batch_sampler=sampler.batches(32))``; epoch and position are
        those of this sampler.
        """
        batch_size = validation.check_int(
            "data.ShuffleSampler.batches", "batch_size", batch_size, 1, streams.MAX_STEP
        )
        return BatchSampler(self, batch_size, _check_bool("drop_last", drop_last))

    # ------------------------------------------------------------------ the order as a function

    def index(self, i: int, *, task: int | None = None, epoch: int | None = None) -> int:
        """Which sample is at global position ``i``, [0, n), of an epoch: in O(1).

        Args:
            i: the position.
            task: that of the next iteration unless given, as ``epoch``.
            epoch: see above.
        """
        function = "data.ShuffleSampler.index"
        i = validation.check_int(function, "i", i, 0, self.n - 1)
        key = self._key(function, *self._scope(function, task, epoch))
        return i if key is None else derive_ops.shuffle_index(key, self.n, i)

    def position(self, j: int, *, task: int | None = None, epoch: int | None = None) -> int:
        """At which global position sample ``j`` comes: the inverse of :meth:`index`."""
        function = "data.ShuffleSampler.position"
        j = validation.check_int(function, "j", j, 0, self.n - 1)
        key = self._key(function, *self._scope(function, task, epoch))
        return j if key is None else derive_ops.shuffle_position(key, self.n, j)

    def indices(
        self,
        start: int = 0,
        stop: int | None = None,
        *,
        task: int | None = None,
        epoch: int | None = None,
        out: torch.Tensor | None = None,
        device: torch.device | str | None = None,
    ) -> torch.Tensor:
        """The samples at global positions ``start`` to ``stop - 1`` (n unless given).

        See :func:`shuffled_indices` for ``out`` and ``device``, and what it returns and raises.
        """
        function = "data.ShuffleSampler.indices"
        start, stop = permutation.check_range(
            function, start, self.n if stop is None else stop, self.n
        )
        key = self._key(function, *self._scope(function, task, epoch))
        return permutation.part_of_order(function, key, self.n, start, stop, out, device)

    # ------------------------------------------------------------------ state

    def state_dict(self) -> dict[str, Any]:
        """Where the latest iteration is, in a few ints and the name, the same on all ranks.

        It counts indices that were *taken*. Worker processes take some ahead: a
        ``ResumableLoader`` counts those that were delivered.

        Raises:
            RuntimeError: before ``init``, or before there is an epoch to speak of.
        """
        if self._loaded is not None:
            return dict(self._loaded)
        function = "data.ShuffleSampler.state_dict"
        if self._latest is None or self._seek is not None:
            master = api.current(function).master_seed
            task, epoch = self._scope(function, None, None)
            position = self._seek or 0
        else:
            master, task, epoch, progress = self._latest
            position = progress.position()
        values = (
            _VERSION, self.n, self.name, int(self.shuffle),
            master, task, epoch, position,
        )  # fmt: skip
        return dict(zip(_STATE, values, strict=True))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Begin the next iteration where ``state`` was taken, on any number of ranks.

        It has to be an iteration of the same epoch: ``iter()`` raises RuntimeError otherwise, as
        long as anything of that epoch is left. :meth:`seek` forgets the state.

        Raises:
            TypeError, ValueError: it is foreign or damaged, or of another order; nothing has
                changed.
        """
        function = "data.ShuffleSampler.load_state_dict"
        if not isinstance(state, dict) or set(state) != set(_STATE):
            raise _refuse(f"state must be a dict of {', '.join(_STATE)}", state)
        here = (_VERSION, self.n, self.name, int(self.shuffle))
        for field, value in zip(_STATE, here, strict=False):
            if type(state[field]) is not type(value) or state[field] != value:
                raise _refuse(f"state[{field!r}] must be {value!r}, this sampler's", state[field])
        most = (streams.MAX_MASTER, streams.MAX_TASK, streams.MAX_EPOCH, self.n)
        for field, limit in zip(_STATE[len(here) :], most, strict=True):
            validation.check_int(function, f"state[{field!r}]", state[field], 0, limit)
        self._loaded = {**state, **{f: int(state[f]) for f in _STATE if f != "name"}}
        self._seek = None


def _yield(plan: _Plan, progress: _Progress) -> Iterator[int]:
    """The indices of one iteration."""
    inside = max(0, min(plan.taken, -(-(plan.n - plan.start) // plan.stride)))
    at, size = 0, _FIRST_CHUNK
    while at < inside:
        size = min(size, inside - at)
        yield from progress.chunk(_chunk(plan, at, size))
        at, size = at + size, min(4 * size, _LARGEST_CHUNK)
    for k in range(inside, plan.taken):  # positions past the last
        occurrence, i = divmod(plan.start + k * plan.stride, plan.n)
        j = i if plan.key is None else derive_ops.shuffle_index(plan.key, plan.n, i)
        yield from progress.chunk([Repeat(j, occurrence)])


def _chunk(plan: _Plan, at: int, size: int) -> list[int]:
    start = plan.start + at * plan.stride
    if plan.key is None:
        return list(range(start, start + size * plan.stride, plan.stride))
    out = torch.empty(size, dtype=torch.int64, device="cpu")
    derive_ops.fill_shuffle(out, plan.key, plan.n, start, plan.stride)
    found: list[int] = out.tolist()
    return found


def _resumed(loaded: dict[str, Any], master: int, task: int, epoch: int) -> int:
    """The position at which an iteration of (task, epoch) begins after a state was loaded."""
    there = loaded["master_seed"], loaded["task"], loaded["epoch"]
    if (master, task, epoch) == there:
        return int(loaded["position"])
    if loaded["position"] in (0, loaded["n"]):  # between epochs
        return 0
    raise RuntimeError(
        "fastseed.data.ShuffleSampler: the loaded state is in the middle of task {1}, epoch {2} "
        "under master seed {0}, but the job is in task {4}, epoch {5} under {3}; go there with "
        "init and reseed, or call seek(0) to forget it".format(*there, master, task, epoch)
    )


# ---------------------------------------------------------------- arguments


def _size_of(data: Any) -> int:
    if isinstance(data, Sized):
        return validation.check_int(
            "data.ShuffleSampler", "len(data)", len(data), 1, permutation.MAX_N
        )
    return validation.check_int("data.ShuffleSampler", "data", data, 1, permutation.MAX_N)


def _check_share(rank: Any, world_size: Any) -> tuple[int | None, int | None]:
    if rank is None and world_size is None:
        return None, None
    if rank is None or world_size is None:
        missing = "rank" if rank is None else "world_size"
        raise ValueError(
            f"fastseed.data.ShuffleSampler: {missing} must be given where the other of rank and "
            "world_size is, got None"
        )
    most = streams.MAX_RANK + 1
    size = validation.check_int("data.ShuffleSampler", "world_size", world_size, 1, most)
    return validation.check_int("data.ShuffleSampler", "rank", rank, 0, size - 1), size


def _check_bool(argument: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(
            f"fastseed.data.ShuffleSampler: {argument} must be a bool, "
            f"got {validation.describe(value)} of type {type(value).__name__}"
        )
    return value


def _refuse(rule: str, value: Any) -> ValueError:
    return ValueError(
        f"fastseed.data.ShuffleSampler.load_state_dict: {rule}, got {validation.describe(value)}"
    )
