"""What one iteration of a loader reads: an order, its cut into batches, and where it begins.

An order is computed only where it is ours by its method: torch's ``BatchSampler``, or slots, over
a sampler whose ``__iter__`` is that of ``ShuffleSampler``. Any other sampler is run from its
beginning to its own end, and what was read before is dropped; a ``len()`` ends no order.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from torch.utils.data import BatchSampler, ConcatDataset, DataLoader, IterableDataset, Subset

from .._utils import validation
from ..derivation import context
from ..distributed.agreement import check_first
from ..distributed.discovery import process_group_size
from ..seeder.seeder import Seeder
from .history import Entry, History
from .journal import from_json
from .layout import UNKNOWN, StepLayout
from .loader.seekable import Seekable
from .order.permutation import Order
from .order.samplers import ShuffleSampler, SlotSampler, samplers_in
from .order.spec import OrderSpec, OtherSpec
from .worker.scope import DatasetWrapper


class Plan(NamedTuple):
    """What one iteration reads from a position on.

    Positions count the samples of all ranks; where batches have any size they count batches.
    """

    samplers: list[Any]  # what yields the requests to the dataset, and the samplers in it
    spec: OrderSpec
    layout: StepLayout  # its n is UNKNOWN where only the sampler knows the end
    source: Any  # yields the indices, or batches of any size; None: the dataset is iterable
    rank: int
    is_ours: bool = False  # the order is computed from any position on
    is_batched: bool = True  # torch's batches of indices from ``source``
    is_divided: bool = True  # by a rule that holds for another number of ranks too
    start: int = 0
    order: Order | None = None  # of a ShuffleSampler, in one epoch
    steps: int = 0  # with which an epoch ends at the latest; 0: with its last position
    divider: Any = None  # the sampler that divides the order into replicas

    @property
    def is_foreign(self) -> bool:
        """True if a sampler is run from its beginning, and must yield the same again."""
        return self.source is not None and not self.is_ours

    @property
    def has_own_place(self) -> bool:
        """True for an iterable dataset that cannot seek: it says itself where it is."""
        return self.source is None and not self.is_divided

    @property
    def beside_position(self) -> tuple[str, ...]:
        """What a state has beside the position, which only the dataset or the sampler knows."""
        if self.has_own_place:
            return ("dataset", "over")
        return ("read",) if self.is_foreign else ()

    @property
    def share(self) -> tuple[StepLayout, int] | None:
        """The layout and the rank of a ``Seekable``, which cuts itself."""
        is_one = self.source is None and self.is_divided
        return (self.layout._replace(n=self.spec.n), self.rank) if is_one else None

    def entry(self, epoch: int, step: int, position: int = 0) -> Entry:
        """Return the entry of a journal that cuts steps as this plan does."""
        layout = self.layout
        flags = int(layout.drop_last), int(layout.ranks_drop_last)
        cut = layout.ranks, layout.batch_size, layout.slots, *flags, layout.assignment
        return Entry(epoch, step, position, 0, *cut, self.steps)

    def parse_history(
        self, function: str, text: Any, master_seed: int, task: int, new_order: bool
    ) -> History:
        """Return the history in a state's journal, if it is one of a loop with this plan."""
        where = "state['journal']"
        history = from_json(function, where, text)
        if history.task != task:
            raise validation.value_error(function, where, f"of task {task}", history.task)
        if history.master_seed != master_seed:
            raise ValueError(
                f"fastseed.{function}: the state was saved under master seed "
                f"{history.master_seed}, but the job has {master_seed}: call "
                f"fastseed.init({history.master_seed})"
            )
        if new_order and self.layout.slots and history.step:
            rule = "False with slots within an epoch: begin the order with an epoch"
            raise validation.value_error(function, "new_order", rule, new_order)
        if new_order:
            return history.with_entry(self.entry(*history.point), self.spec)
        self.check_facts(function, where, history)
        self.check_ranks(function, history)
        return history

    def check_facts(self, function: str, argument: str, history: History) -> None:
        """Raise ValueError if the order of a history, or its cut, is not that of this plan."""
        saved = history.entries[-1].facts(history.latest_order)
        for name, value in self.entry(0, 0).facts(self.spec).items():
            if saved.get(name) != value:
                rule = f"of {name} {value!r}, as here"
                if "DistributedSampler" in (value, saved.get(name)):
                    rule += " (a ShuffleSampler in its place has one order on any ranks)"
                raise validation.value_error(function, argument, rule, saved.get(name))

    def position_after(self, batches: int) -> int:
        if self.layout.slots:
            batches //= max(1, len(self.layout.slots_of(self.rank)))
        return self.layout.position_after(self.start, batches)

    def check_ranks(self, function: str, history: History) -> None:
        """Raise RuntimeError if these ranks cannot continue where those of a history were."""
        here, ranks, rule = self.layout.ranks, history.entries[-1].ranks, ""
        position = history.position_at(*history.point) if self.is_foreign else 0
        if self.is_divided and position % here:
            rule = f"position must be a multiple of the {here} ranks, got {position}"
        elif not self.is_divided and position and here != ranks:
            rule = f"there must be {ranks} ranks, as when the state was saved, got {here}"
        if rule:
            raise RuntimeError(
                f"fastseed.{function}: {rule}; resume with as many ranks as before, or use a "
                "ShuffleSampler"
            )

    def has_whole_epoch(self) -> bool:
        """Return False if ``drop_last`` leaves nothing of an epoch, as far as is known."""
        is_known = self.is_ours or type(self.source).__module__.startswith("torch.utils.data.")
        if not is_known or self.spec.n <= 0:
            return True
        ranks = self.layout.ranks if self.is_divided else 1  # else each reads all samples
        return self.layout._replace(n=self.spec.n, ranks=ranks).steps_left(0) > 0

    def requests(self, drop: Any) -> Iterator[object]:
        """Yield the indices that torch fetches, batch by batch, from the start on.

        ``drop`` gets those before the start that another sampler yields, and takes all of them.
        """
        size, drops = self.layout.batch_size, self.layout.drop_last
        if self.layout.slots:
            yield from self.layout.micro_batches(self.order, self.rank, self.start)
            return
        if self.order is not None:
            count = self.layout.samples_left(self.start)
            left: Any = self.order.share(self.start, self.rank, self.layout.ranks, count)
        else:
            left = iter(self.source)
            drop(itertools.islice(left, -(-self.start // self.layout.ranks)))
        yield from BatchSampler(left, size, drops) if self.is_batched else left


def plan_of(loader: DataLoader[Any], seeder: Seeder | None) -> Plan:
    """Return what a whole epoch of a loader reads; without a seeder on one rank."""
    dataset: Any = loader.dataset
    rank, job = (0, 1) if seeder is None else (seeder.data_rank, seeder.data_world_size)
    batches: Any = loader.sampler if loader.batch_sampler is None else loader.batch_sampler
    samplers = samplers_in(batches)
    source = batches.sampler if type(batches) in (BatchSampler, SlotSampler) else batches
    is_batched = type(batches) is BatchSampler
    sizes: Any = batches if is_batched else loader
    size, drops = sizes.batch_size or 1, bool(sizes.drop_last)
    if isinstance(dataset, IterableDataset):
        is_divided = isinstance(dataset, Seekable)
        layout = StepLayout(UNKNOWN, size, job if is_divided else 1, drop_last=drops)
        own = OtherSpec(type(dataset).__name__, length(dataset))
        return Plan(samplers, own, layout, None, rank, is_divided=is_divided)
    if is_ours(source):
        rank, job = (rank, job) if source.rank is None else (source.rank, source.world_size)
        layout = StepLayout(source.n, size, job, 0, drops, source.drop_last)
        spec: OrderSpec = source.spec
        if isinstance(batches, SlotSampler):
            layout = batches.layout._replace(ranks=job)
        elif not (source.task is None and source.epoch is None):
            spec = OtherSpec(spec.describe(), source.n)
        return Plan(samplers, spec, layout, source, rank, True, is_batched)
    behind = samplers[1:] if is_batched else samplers
    one_drops = any(getattr(s, "drop_last", False) is True for s in behind)
    divider: Any = next((s for s in samplers if hasattr(s, "num_replicas")), None)
    ranks = job if divider is None else int(divider.num_replicas)
    is_regular = is_batched or loader.batch_sampler is None
    layout = StepLayout(UNKNOWN, size, ranks, 0, drops, one_drops)
    is_divided = is_regular and divider is not None
    ours = next((s for s in samplers if isinstance(s, ShuffleSampler)), None)
    last = samplers[-1] if divider is None else divider
    name, n = type(last).__name__, length(last if is_regular else dataset)
    if ours is not None:
        name, n = ours.spec.describe(), ours.n
    elif divider is not None:
        n = length(getattr(divider, "dataset", dataset))
    spec = OtherSpec(name if is_regular else f"batches of {name}", n)
    plan = Plan(samplers, spec, layout, source, rank, False, is_batched, is_divided)
    return plan._replace(divider=divider)


def compare_ranks(function: str, loader: DataLoader[Any], plan: Plan, *at: int) -> None:
    """Raise RuntimeError if a rank that iterates in this place already shares another order."""
    if (size := process_group_size()) == 1:
        return
    seeder = context.current(function)
    is_shared = plan.is_ours or plan.share is not None or plan.divider is not None
    is_of_all = plan.layout.ranks == seeder.data_world_size and size == seeder.world_size
    if not (is_shared and is_of_all):
        return
    digest = hashlib.sha256()
    for indices in _subsets(loader.dataset):
        digest.update(np.asarray(indices, np.int64).tobytes())
    facts = {"order": plan.spec.describe(), **plan.layout._asdict(), "n": plan.spec.n}
    facts["seed of the sampler"] = getattr(plan.divider, "seed", None)
    facts["indices of Subset"] = digest.hexdigest()[:16]
    advice = (
        "give all ranks the same loader; if each is to have its own, pass check=False to steps, or "
        "name= to Loader"
    )
    check_first(function, f"{at} {getattr(loader, 'name', None)}", facts, advice)


def _subsets(dataset: Any) -> Iterator[Any]:
    if isinstance(dataset, DatasetWrapper):
        yield from _subsets(dataset._wrapped)
    elif isinstance(dataset, Subset):
        yield dataset.indices
        yield from _subsets(dataset.dataset)
    elif isinstance(dataset, ConcatDataset):
        for part in dataset.datasets:
            yield from _subsets(part)


def is_ours(sampler: Any) -> bool:
    """Return True if a sampler's order is that of ``ShuffleSampler``, by its method."""
    is_one = isinstance(sampler, ShuffleSampler)
    return is_one and type(sampler).__iter__ is ShuffleSampler.__iter__


def length(data: Any) -> int:
    try:
        return len(data)
    except TypeError:
        return UNKNOWN
