"""Streams of their own for the generators in DataLoader workers, in every epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import IterableDataset, get_worker_info

from .._backend.compile import eager
from .._utils import validation
from ..derivation import streams
from ..seeder import api
from . import shared_scope, worker_seeding
from .discovery import found_in
from .shared_scope import Fixed, Place, ScopeCell, Wrapper
from .worker_seeding import Job

_END = object()

_active: WorkerSetup | None = None  # of this process, if it is a worker


class WorkerSetup:
    """A ``worker_init_fn`` for a loader whose iterations are announced in a cell.

    In worker ``k`` it gives Python's, NumPy's and torch's CPU generator, registered generators and
    those that the data set holds their streams of worker field ``k + 1``, at the cell's task and
    epoch (and as step the position where the iteration began).

    Args:
        cell: written by the main process before each iteration.
        user_init: the user's own ``worker_init_fn``. It runs after ours, once in the life of a
            worker.
    """

    def __init__(
        self, cell: ScopeCell | Fixed, user_init: Callable[[int], Any] | None = None
    ) -> None:
        self.cell, self.user_init = cell, user_init
        self._job: Job | None = None
        self._worker_id = 0
        self._done = 0

    def __getstate__(self) -> dict[str, Any]:
        owner = self._job or Job.of(api.current("data.worker_init_fn"), "data.worker_init_fn")
        return {"cell": self.cell, "user_init": self.user_init, "job": owner}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["cell"], state["user_init"])  # type: ignore[misc]
        self._job = state["job"]

    def __call__(self, worker_id: int) -> None:
        """What DataLoader calls in each worker."""
        global _active
        self._worker_id = worker_id
        self._job = self._job or Job.of(api.current("data.worker_init_fn"), "data.worker_init_fn")
        worker_seeding.keep(self._job)
        _active = self
        self.catch_up()
        if self.user_init is not None:
            self.user_init(worker_id)

    def catch_up(self, again: bool = False) -> None:
        """Reseed this process if an iteration began since it last was, or ``again``."""
        if self._job is None or (self.cell.generation == self._done and not again):
            return
        place = self.cell.read()
        if isinstance(self.cell, ScopeCell):  # else it may be the place of an epoch long ago
            shared_scope.stay(place)
        self._done = place.generation
        info = get_worker_info()
        found = () if info is None else found_in(info.dataset, self._job.entries)
        self._job.reseed_worker(place, self._worker_id, found)


class _Following(Wrapper):
    """Passes everything on to a data set, as if it were that."""

    def __init__(self, dataset: Any, cell: ScopeCell) -> None:
        self.__dict__.update(dataset=dataset, cell=cell, begun=False)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:  # for isinstance
        return type(self.dataset)

    def __reduce__(self) -> tuple[Any, ...]:
        return follow, (self.dataset, self.cell)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["dataset"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.dataset, name, value)  # users' worker_init_fn cut their data set so

    def __delattr__(self, name: str) -> None:
        delattr(self.dataset, name)

    def __len__(self) -> int:
        return len(self.dataset)

    def __repr__(self) -> str:
        return repr(self.dataset)


class _FollowingMap(_Following):
    @eager
    def __getitem__(self, index: Any) -> Any:
        if _active is not None:
            _active.catch_up()
            return self.dataset[index]
        with shared_scope.at(self.cell.read()):
            return self.dataset[index]

    @eager
    def __getitems__(self, indices: Any) -> Any:
        if _active is not None:
            _active.catch_up()
            return _fetch(self.dataset, indices)
        with shared_scope.at(self.cell.read()):
            return _fetch(self.dataset, indices)


class _FollowingIterable(_Following):
    def __iter__(self) -> Iterator[Any]:
        if _active is not None:
            # A worker that started late may have begun an abandoned iteration in the next's scope.
            _active.catch_up(again=self.__dict__["begun"])
            self.__dict__["begun"] = True
            return iter(self.dataset)
        return self._told()

    def _told(self) -> Iterator[Any]:
        place = self.cell.read()
        with shared_scope.at(place):
            samples = iter(self.dataset)
        while True:
            with shared_scope.at(place):
                sample = next(samples, _END)
            if sample is _END:
                return
            yield sample


def _fetch(dataset: Any, indices: Any) -> Any:
    """A batch as torch fetches it."""
    batched = getattr(dataset, "__getitems__", None)
    return batched(indices) if batched else [dataset[index] for index in indices]


def follow(dataset: Any, cell: ScopeCell) -> Any:
    """``dataset``, but what it draws is of the iteration that ``cell`` tells of.

    In a persistent worker a new iteration reseeds all generators before its first sample. In the
    main process nothing is reseeded. Attributes are the data set's own.
    """
    if isinstance(dataset, IterableDataset):
        return _FollowingIterable(dataset, cell)
    return _FollowingMap(dataset, cell)


class _WorkerInit:
    """``worker_init_fn`` for a DataLoader that is not one of ours.

        DataLoader(dataset, num_workers=4, worker_init_fn=fastseed.data.worker_init_fn)

    In worker ``k`` Python's, NumPy's and torch's CPU generator, registered generators and those
    that the data set holds (see :mod:`fastseed.data.discovery`) get their streams of worker field
    ``k + 1``, at the task and epoch of the last ``reseed`` before the workers were started:

    - under ``fork`` the worker has all that from its parent;
    - under ``spawn`` and ``forkserver`` a plain function would arrive as its mere name and know
      nothing. This is an object: in the pickle that starts a worker it takes master seed, rank,
      task, epoch and the registered generators along. Those that cannot be pickled (lambdas, say)
      are left out, and a warning names them. One that the data set holds too is still one object.
      That needs this object itself: a function of yours that calls it has to live with ``fork``.

    Workers that outlive an epoch (``persistent_workers``) go on in their streams; nothing tells
    them of the next ``reseed``. :func:`fastseed.data.loader` does, and also takes a
    ``worker_init_fn`` of the user's, which runs after ours.

    Raises:
        RuntimeError: before ``init`` or ``reseed``; DataLoader passes it on.
        ValueError: under the predecessor's scheme, which has no keys.
        ReseedError: some generators failed; all others are reseeded.
    """

    def __call__(self, worker_id: int) -> None:
        """In a worker that was forked, of a process where ``reseed`` was called."""
        most = streams.MAX_WORKER - 1
        _plain_setup()(validation.check_int("data.worker_init_fn", "worker_id", worker_id, 0, most))

    def __reduce__(self) -> Any:
        return (_sent, (_plain_setup(),)) if worker_seeding.spawning() else "worker_init_fn"


def _plain_setup() -> WorkerSetup:
    scope = api.current("data.worker_init_fn").scope
    if scope is None:
        raise RuntimeError("fastseed.data.worker_init_fn: call fastseed.reseed(task, epoch) first")
    return WorkerSetup(Fixed(Place(scope.task, scope.epoch, 0, 1)))


def _sent(setup: WorkerSetup) -> WorkerSetup:
    return setup


worker_init_fn = _WorkerInit()
