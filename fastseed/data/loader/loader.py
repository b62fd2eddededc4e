"""The loader: a DataLoader whose randomness follows the job, and which resumes anywhere."""

from __future__ import annotations

from typing import Any

from torch.utils import data as torch_data
from torch.utils.data import DataLoader, IterableDataset, SequentialSampler

from ..._backend import private_torch
from ..._backend.compile import eager
from ..._utils import StateDict, validation
from ..._utils.log import logger, warn_once
from ...derivation import context, scopes
from ...derivation.shared_use import StreamUsers
from ...generators.setters import tell_epoch
from ...seeder.seeder import Seeder
from ..history import History
from ..journal import from_json, to_json
from ..layout import StepLayout
from ..order import samplers
from ..order.samplers import ShuffleSampler, SlotSampler
from ..plan import Plan, compare_ranks, is_ours, length, plan_of
from ..worker.samples import PerBatch, PerSample
from ..worker.scope import IterationScope, epoch_scope, wrapped
from . import states
from .iteration import Iteration
from .seekable import Seekable, can_seek
from .torch_loader import Settings, TorchLoader, settings_of, without_samplers

_CLASS = "data.Loader"
_FORMAT: dict[str, str | int] = {"format": "fastseed.loader", "version": 3}
_RULE = "a dataset with __getitem__, an IterableDataset or a DataLoader of torch.utils.data"
_ORDER = "shuffle"  # the name of an order that has none of its own
_DEFAULTS = (1, None, None, None)  # batch_size, shuffle, sampler, batch_sampler
_stream_users: StreamUsers[Loader] = StreamUsers(
    "fastseed.data.Loader: two loaders are iterated in task %d, epoch %d, and what their workers "
    "or per_batch draw is the same: if both draw, give one loader name=, or reseed with another "
    "task for evaluation"
)
_order_users: StreamUsers[Loader] = StreamUsers(
    "fastseed.data.Loader: two shuffled loaders of equal size are iterated in task %d, epoch %d, "
    "and have the same order: give one of them name=, or reseed with another task for evaluation"
)


class Loader(DataLoader[Any]):
    """A DataLoader whose order, workers and dataset follow ``fastseed.reseed``, and that resumes.

    Each ``iter()`` takes task and epoch from the last ``reseed``, or the epoch that ``set_epoch``
    of a ``ShuffleSampler`` set, and calls ``set_scope`` or ``set_epoch`` of samplers and dataset.
    ``shuffle=True`` uses a ``ShuffleSampler``, which ranks share. Other samplers draw from streams
    of this scope. In each worker all generators get their own streams in each epoch: numbers depend
    on workers without ``per_sample``, and those of ``collate_fn`` without ``per_batch``.

    A state says how many samples of the epoch's order all ranks were given; that of any rank serves
    all. Workers, batch size and, for a ``ShuffleSampler`` or ``Seekable``, ranks may then change,
    not ``drop_last``. Any other sampler, or a subclass with ``__iter__``, runs from its beginning
    and must yield the same again. An iterable dataset with ``seek(position)`` is a ``Seekable``;
    one with ``state_dict`` and ``load_state_dict`` resumes with as many ranks and workers.

    Args:
        dataset: a map-style or iterable-style dataset; or a DataLoader, whose settings are taken.
        batch_size: as for DataLoader, as are all that follow.
        shuffle: True for a ``ShuffleSampler``.
        sampler: yields the indices.
        batch_sampler: yields lists of indices.
        name: None, or the name of the loader's own streams and order. Two loaders without one that
            are iterated in one scope have equal streams, which logs a warning.
        settings: DataLoader's other arguments, by name.

    Raises:
        TypeError, ValueError: an argument is wrong, as a DataLoader beside other settings or with
            its own ``__iter__``; or as DataLoader raises them.

    Examples:
        >>> import fastseed
        >>> fastseed.init(42, rank=0, world_size=1)
        >>> fastseed.reseed(1, 7)
        >>> batches = fastseed.data.Loader(range(10), batch_size=4, shuffle=True)
        >>> next(iter(batches))
        tensor([5, 0, 7, 2])
        >>> state = batches.state_dict()
        >>> resumed = fastseed.data.Loader(range(10), batch_size=3, shuffle=True)
        >>> resumed.load_state_dict(state)  # in another process, on other ranks
        >>> list(resumed)
        [tensor([6, 9, 3]), tensor([8, 1, 4])]
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Any = None,
        batch_sampler: Any = None,
        *,
        name: str | None = None,
        **settings: Any,
    ) -> None:
        if name is not None:
            scopes.check_name(_CLASS, name)
        if isinstance(dataset, DataLoader):
            if settings or (batch_size, shuffle, sampler, batch_sampler) != _DEFAULTS:
                rule = "a dataset; the settings of a DataLoader are taken as they are"
                raise validation.type_error(_CLASS, "dataset", rule, dataset)
            self.__init__(**loader_settings(_CLASS, dataset, name))  # type: ignore[misc]
            return
        pipes = torch_data.IterDataPipe, torch_data.MapDataPipe  # which torch has deprecated
        is_kind = isinstance(dataset, IterableDataset) or hasattr(dataset, "__getitem__")
        if isinstance(dataset, pipes) or not is_kind:
            raise validation.type_error(_CLASS, "dataset", _RULE, dataset)
        if not (batch_size is None or isinstance(batch_size, int)):
            raise validation.type_error(_CLASS, "batch_size", "an integer or None", batch_size)
        if shuffle is not None:
            shuffle = validation.check_bool(_CLASS, "shuffle", shuffle)
        drop_last = validation.check_bool(_CLASS, "drop_last", settings.get("drop_last", False))
        if isinstance(dataset, IterableDataset):
            if can_seek(dataset) and not isinstance(dataset, Seekable):
                dataset = Seekable(dataset)
        elif shuffle and sampler is None and batch_sampler is None:
            sampler = ShuffleSampler(dataset, drop_last=drop_last, name=name or _ORDER)
            shuffle = None
            if settings.get("generator") is not None:
                logger.warning(
                    "fastseed.data.Loader: the order of shuffle=True follows the master seed, not "
                    "the generator; for another order, give fastseed.init another seed"
                )
        super().__init__(dataset, batch_size, shuffle, sampler, batch_sampler, **settings)
        self.name, self._length = name, length(dataset)
        self._iterations = 0
        self._kept_by_samplers: dict[str, int] = {}  # of their latest run
        self._torch: TorchLoader | None = None  # with persistent workers
        self._latest: Iteration | None = None  # whose position is that of the state
        self._loaded: StateDict | None = None  # a state, until the next iteration
        self._history: History | None = None  # the journal in it
        self._has_loaded_dataset = False  # its own state, and no iteration began since

    @property
    def _is_accelerate_prepared(self) -> bool:
        """Refuse ``accelerator.prepare``, which reads this and would make another loader."""
        raise TypeError(
            f"fastseed.{_CLASS}: accelerator.prepare must not be given a loader of fastseed, whose "
            f"division into ranks and whose position it would lose: {samplers.HOW}"
        )

    def __getstate__(self) -> StateDict:
        return {**self.__dict__, "_torch": None}  # a copy starts workers of its own

    def __len__(self) -> int:
        """Return the number of batches of this rank in a whole epoch."""
        if isinstance(self.dataset, Seekable) and self.batch_sampler is not None:
            plan = plan_of(self, context.current(_CLASS))
            return plan.layout._replace(n=len(self.dataset)).batches_of(plan.rank)
        return super().__len__()

    @eager
    def __iter__(self) -> Any:
        seeder = context.current(_CLASS)
        seeder.check_group(_CLASS)
        at = context.scope_of(seeder.place, _CLASS)
        plan, state = plan_of(self, seeder), self._loaded or {}
        if not self._iterations:
            compare_ranks(_CLASS, self, plan, *at)
        start = self._resumed_in(at.task, at.epoch, plan)
        if start is None:
            start = plan.source._take_position() if plan.is_ours else 0  # of the user's seek
            state = {k: state[k] for k in state if k == "dataset"}
        is_over = bool(state.get("over"))
        return self._iterate(at.task, at.epoch, plan._replace(start=start), is_over, state)

    def _iterate(self, task: int, epoch: int, plan: Plan, is_over: bool, state: StateDict) -> Any:
        """Begin an iteration that reads a plan, by default in the order of its scope."""
        seeder = context.current(_CLASS)
        scope = self._scope_in(plan, task, epoch)
        tell_epoch(wrapped(self.dataset), *scope[:2])
        places = None
        if plan.has_own_place and self.num_workers and hasattr(self.dataset, "state_dict"):
            is_inside = "dataset" in state and bool(state.get("over")) == is_over
            loaded = state["dataset"] if is_inside else None
            places = states.WorkerPlaces(self.num_workers, seeder, loaded)
        elif "dataset" in state:
            own: Any = state["dataset"]
            if isinstance(own, dict) and {"workers", "states", "drop"} <= {*own}:
                rule = "of workers 0, as here: a stream resumes with the same"
                raise validation.value_error(_CLASS, "state['dataset']", rule, own["workers"])
            self.dataset.load_state_dict(own)  # type: ignore[attr-defined]
            self._has_loaded_dataset = True
        if plan.is_ours:
            self._check_length(plan)
            samplers.refuse_second_division(plan.source, plan.layout.ranks)
            if plan.order is None:
                own_task = task if plan.source.task is None else plan.source.task
                order = plan.source.spec.at(seeder.place.master_seed, own_task, scope.epoch)
                plan = plan._replace(order=order)
        iteration = Iteration(self, seeder, scope, plan, is_over, state.get("read", ""))
        iteration.places = places
        if not is_over:
            iteration.may_begin_at_end = self._has_loaded_dataset and not plan.start
            self._has_loaded_dataset = False
        samplers.warn_of_unprepared(self)
        self._warn_of_ranks(seeder, plan)
        self._warn_of_equal_streams(scope, seeder, plan)
        self._iterations += 1
        kept, self._torch = self._torch, None
        if kept is None or not kept.can_serve(iteration):
            kept = TorchLoader(self, iteration)
        iterator = kept.start(iteration)
        if self.persistent_workers:
            self._torch = kept
        self._latest, self._loaded = iteration, None
        return iter(()) if plan.source is None and is_over else iterator

    def _check_length(self, plan: Plan) -> None:
        """Raise RuntimeError if an epoch begins with another dataset than the order is of."""
        here = length(self.dataset)
        if here != self._length and not (plan.start or plan.spec.sources):
            raise RuntimeError(
                f"fastseed.{_CLASS}: the dataset must keep its length {self._length}, of which the "
                f"order is, got {here}: make a new loader, or a new loop, "
                "fastseed.data.steps(DataLoader(...)).in_epoch(epoch)"
            )

    def _scope_in(self, plan: Plan, task: int, epoch: int) -> IterationScope:
        """Return the scope of an iteration; a ShuffleSampler may have an epoch of its own."""
        for sampler in plan.samplers:
            if isinstance(sampler, ShuffleSampler) and sampler.epoch is not None:
                epoch = sampler.epoch
                break
        return IterationScope(task, epoch, plan.start, self._iterations + 1)

    def _warn_of_equal_streams(self, at: IterationScope, seeder: Seeder, plan: Plan) -> None:
        """Log a warning if another loader has the same streams or order, or every epoch has."""
        if self._iterations and not (at.task or at.epoch or epoch_scope(seeder, _CLASS)):
            is_random = any(getattr(s, "shuffle", False) is True for s in plan.samplers)
            if is_random or samplers.without_generator(plan.samplers):
                warn_once(
                    "fastseed.data.Loader: iterated again in the scope of fastseed.init, so its "
                    "order and random numbers repeat: call fastseed.reseed(task, epoch) before "
                    "each epoch, or use fastseed.data.steps"
                )
        if isinstance(self.dataset, PerSample):
            self.dataset._enter_scope(at.task, at.epoch)
        elif self.name is None and (self.num_workers or isinstance(self.collate_fn, PerBatch)):
            _stream_users.warn_if_shared(self, at.task, at.epoch, at.start)
        source = plan.source
        if isinstance(source, ShuffleSampler) and source.spec.describe() == _ORDER:
            _order_users.warn_if_shared(self, at.task, at.epoch, source.n)

    def _warn_of_ranks(self, seeder: Seeder, plan: Plan) -> None:
        """Log a warning if every rank reads every sample, or ranks have unequal steps."""
        if seeder.data_world_size == 1:
            return
        for sampler in plan.samplers:
            is_divided = isinstance(sampler, torch_data.DistributedSampler)
            if is_divided and sampler.shuffle and not sampler.seed:
                warn_once(
                    "fastseed.data.Loader: the order of DistributedSampler follows its seed 0, not "
                    "fastseed.init: pass shuffle=True in its place, or "
                    "fastseed.register_generator(sampler), which gives it a seed"
                )
            is_whole = type(sampler) in (SequentialSampler, torch_data.SubsetRandomSampler)
            is_whole |= type(sampler) is torch_data.RandomSampler and not sampler.replacement
            if is_whole and not (plan.is_ours or plan.is_divided):
                warn_once(
                    "fastseed.data.Loader: each of the %d ranks reads all samples that %s yields: "
                    "pass shuffle=True, or sampler=fastseed.data.ShuffleSampler(dataset, "
                    "shuffle=False), which ranks share; if they are meant to read the same, as "
                    "tensor-parallel ranks, give fastseed.init their mesh",
                    seeder.data_world_size,
                    type(sampler).__name__,
                )
        if plan.share is not None and not plan.share[0].is_even:
            warn_once(
                "fastseed.data.Loader: the last ranks have one batch less than the others, for "
                "which a model that communicates waits: pass drop_last=True"
            )

    def state_dict(self) -> StateDict:
        """Return the position of the latest iteration; before it, the state that was loaded.

        Returns:
            A dict of strings and integers, and of the state of a dataset that has its own.

        Raises:
            RuntimeError: ``fastseed.init`` was not called.
            TypeError, ValueError: the loader cannot resume, as with ``in_order=False``, a sampler
                of torch with a generator, or an iterable dataset that cannot.
        """
        function, latest = f"{_CLASS}.state_dict", self._latest
        plan = plan_of(self, context.seeder) if latest is None else latest.plan
        states.check_resumable(function, self, plan)
        if self._loaded is not None:
            return dict(self._loaded)
        task, epoch, seed, position, over = 0, 0, context.current(function).master_seed, 0, 0
        if latest is not None:
            (task, epoch, *_), over = latest.scope, int(latest.is_over)
            seed, position = latest.master_seed, latest.position
        history = History(seed, task).with_entry(plan.entry(epoch, 0, position), plan.spec)
        beside = self._beside_position(plan, latest)
        return {**_FORMAT, "journal": to_json(history), "over": over, **beside}

    def _beside_position(self, plan: Plan, latest: Iteration | None) -> StateDict:
        """Return what only a dataset of its own state, or another sampler, can say."""
        dataset: Any = self.dataset
        if not plan.has_own_place:
            read = "" if latest is None else latest.read
            return dict.fromkeys(plan.beside_position, read)
        over, places = latest is None or latest.is_over, latest.places if latest else None
        if self.num_workers and places is None:
            places = states.WorkerPlaces(self.num_workers, context.current(_CLASS))
        if over and self._latest is not None:
            states.warn_at_border(self)
        own = dataset.state_dict() if places is None else places.state_dict()
        return {"dataset": own, "over": int(latest is not None and over)}

    def load_state_dict(self, state: StateDict) -> None:
        """Start the next iteration where ``state`` was taken.

        That iteration must be of its task, epoch and master seed, or ``iter()`` raises
        RuntimeError. Of the dataset only the size is compared.

        Args:
            state: what ``state_dict`` returned, on any rank.

        Raises:
            TypeError, ValueError: ``state`` is damaged, of another version, of another order, or
                of a dataset of another size; or the loader cannot resume. Nothing is changed.
        """
        function, argument = f"{_CLASS}.load_state_dict", "state['journal']"
        plan = plan_of(self, context.seeder)
        states.check_resumable(function, self, plan)
        fields = {"journal", "over", *plan.beside_position}
        states.check_state(function, "loader", state, _FORMAT, fields)
        history = from_json(function, argument, state["journal"])
        plan.check_facts(function, argument, history)
        self._loaded, self._history, self._latest = dict(state), history, None

    def restart(self) -> None:
        """Discard a loaded state: the next iteration is a whole epoch."""
        self._loaded = self._latest = None

    def _has_batch_left(self, task: int, epoch: int, plan: Plan) -> bool:
        if plan.is_ours:
            return plan.layout.steps_left(plan.start) > 0
        if plan.source is None:
            return not 0 <= plan.spec.n <= plan.start
        scope = self._scope_in(plan, task, epoch)
        rest = Iteration(self, context.current(_CLASS), scope, plan).requests()
        return next(rest, None) is not None

    def _resumed_in(self, task: int, epoch: int, plan: Plan) -> int | None:
        """Return the position of a loaded state; RuntimeError if it is of another scope."""
        if self._loaded is None or self._history is None:
            return None
        history, is_over = self._history, self._loaded["over"]
        position = history.position_at(*history.point)
        if not (position or is_over):
            return None
        here = context.current(_CLASS).master_seed, task, self._scope_in(plan, task, epoch).epoch
        saved = history.master_seed, history.task, history.epoch
        if here != saved:
            left = plan._replace(start=position)
            if is_over or not self._has_batch_left(*saved[1:], left):
                return None
            raise RuntimeError(
                f"fastseed.{_CLASS}: the loaded state is of master seed, task and epoch {saved}, "
                f"but the job is in {here}: call fastseed.init({saved[0]}) and fastseed.reseed"
                f"{saved[1:]}, or restart() to discard the state"
            )
        if not is_over:
            plan.check_ranks(_CLASS, history)
        return position


def loader_settings(function: str, loader: Any, name: str | None = None) -> Settings:
    """Return the arguments that make a ``Loader`` of a DataLoader; TypeError if none can."""
    validation.check_instance(
        function, "loader", loader, DataLoader, "a torch.utils.data.DataLoader"
    )
    kinds = type(loader), DataLoader, Loader
    for method in private_torch.ITERATING:
        own, *known = (getattr(kind, method) for kind in kinds)
        if own not in known:
            rule = (
                f"a DataLoader without its own {method} (iterate what accelerator.prepare returns "
                "as it is: see attach of fastseed.integrations.accelerate)"
            )
            raise validation.type_error(function, "loader", rule, loader)
    return settings_of(loader) | {"name": name or getattr(loader, "name", None)}


def slot_loader(function: str, loader: Any, slots: int, assignment: str) -> Loader:
    plain = Loader(**loader_settings(function, loader))  # with the order of shuffle=True
    if isinstance(plain.dataset, IterableDataset) or plain.batch_size is None:
        rule = "of a map-style dataset, with batch_size and no batch_sampler, for slots"
        raise validation.value_error(function, "loader", rule, loader)
    order: Any = plain.sampler
    dataset: Any = plain.dataset
    if type(order) is SequentialSampler:
        order = ShuffleSampler(dataset, shuffle=False)
    if not is_ours(order):
        rule = "a ShuffleSampler or MixtureSampler for slots, or none, or shuffle=True"
        raise validation.value_error(function, "loader.sampler", rule, order)
    drop_last = plain.drop_last or order.drop_last
    layout = StepLayout(order.n, plain.batch_size, 1, slots, drop_last, assignment=assignment)
    batches = SlotSampler(order, layout)
    return Loader(**without_samplers(plain), name=plain.name, batch_sampler=batches)
