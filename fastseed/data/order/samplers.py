"""The samplers of fastseed, and those that a loader has."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Sized
from typing import Any

import torch
from torch.utils.data import BatchSampler, Sampler

from ..._backend import tensors
from ..._backend.compile import refuse_capture
from ..._utils import validation
from ...derivation import scopes
from ...seeder.seeder import current_seeder
from ..layout import StepLayout, own_slots
from ..worker.scope import current_scope, epoch_scope
from .permutation import Order
from .spec import MAX_N, OrderSpec, SequenceSpec, ShuffleSpec

RANDOM_SAMPLERS = (
    torch.utils.data.RandomSampler,
    torch.utils.data.SubsetRandomSampler,
    torch.utils.data.WeightedRandomSampler,
)


class ShuffleSampler(Sampler[int]):
    """A sampler with a keyed order, for a dataset of any size in constant memory.

    Rank r of w has positions r, r + w, r + 2 w, and so on, of one order of all ranks, so a job can
    resume with another number of ranks at any position. The last round is filled up from the front
    of the order, with indices of type ``Repeat``, unless ``drop_last`` leaves it out.

    Args:
        data: the dataset, or its number of samples, [1, 2**48].
        rank: the rank of this process, [0, world_size); None: that of the job.
        world_size: the number of ranks, [1, 2**24); None: that of the job. Give both or neither.
        drop_last: leave out the last positions instead of repeating samples.
        shuffle: False keeps the order of the dataset, shared out in the same way.
        name: the name of the order; samplers of equal name and size have equal orders.

    Attributes:
        n: the number of positions in an epoch, which is that of samples.
        task: the task that was set; None: that of the loader, or of the last ``reseed``.
        epoch: the epoch that was set; None: that of the loader, or of the last ``reseed``.

    Raises:
        TypeError, ValueError: an argument, also of a method, has the wrong type or is out of range.

    Examples:
        >>> import fastseed
        >>> fastseed.init(42, rank=0, world_size=1)
        >>> fastseed.reseed(1, 7)
        >>> list(fastseed.data.ShuffleSampler(10, rank=1, world_size=2))
        [0, 2, 9, 8, 4]
        >>> sampler = fastseed.data.ShuffleSampler(10)
        >>> sampler.seek(6)
        >>> list(sampler), sampler.index(6), sampler.indices(6, 8)
        ([3, 8, 1, 4], 3, tensor([3, 8]))
    """

    _path = "data.ShuffleSampler"  # as errors name the class

    def __init__(
        self,
        data: Sized | int,
        *,
        rank: int | None = None,
        world_size: int | None = None,
        drop_last: bool = False,
        shuffle: bool = True,
        name: str = "shuffle",
    ) -> None:
        n = check_size(self._path, "data", data)
        shuffle = validation.check_bool(self._path, "shuffle", shuffle)
        make = ShuffleSpec if shuffle else SequenceSpec
        self.spec: OrderSpec = make(scopes.check_name(self._path, name), n)
        if rank is not None or world_size is not None:
            limit = scopes.MAX_RANK + 1
            world_size = validation.check_int(self._path, "world_size", world_size, 1, limit)
            rank = validation.check_int(self._path, "rank", rank, 0, world_size - 1)
        self.rank, self.world_size = rank, world_size
        self.drop_last = validation.check_bool(self._path, "drop_last", drop_last)
        self.task: int | None = None
        self.epoch: int | None = None
        self._first = 0  # the position at which the next iteration begins

    @property
    def n(self) -> int:
        return self.spec.n

    @property
    def shuffle(self) -> bool:
        """False if the order is that of the dataset."""
        return bool(self.spec.shuffled)

    def __repr__(self) -> str:
        share = "" if self.rank is None else f", rank={self.rank}, world_size={self.world_size}"
        order = f"{self.spec.describe()!r}, drop_last={self.drop_last}"
        return f"{type(self).__name__}({self.n}{share}, {order})"

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iterations, [0, 2**32), whatever that of ``reseed``."""
        function = f"{self._path}.set_epoch"
        self.epoch = validation.check_int(function, "epoch", epoch, 0, scopes.MAX_EPOCH)

    def set_scope(self, task: int, epoch: int) -> None:
        """Set the task and epoch of the next iterations, whatever those of ``reseed``."""
        at = scopes.check_scope(f"{self._path}.set_scope", task, epoch, 0)
        self.task, self.epoch = at.task, at.epoch

    def seek(self, position: int) -> None:
        """Start the next iteration, and only that one, at a global position, [0, n]."""
        self._first = validation.check_int(f"{self._path}.seek", "position", position, 0, self.n)

    def _scope(self, function: str, task: int | None, epoch: int | None) -> tuple[int, int]:
        """Return (task, epoch): as given, else as set, else those of the iteration or the job."""
        task = self.task if task is None else task
        epoch = self.epoch if epoch is None else epoch
        if task is None or epoch is None:
            at = current_scope() or epoch_scope(current_seeder(function), function)
            if at is not None:
                task = at.task if task is None else task
                epoch = at.epoch if epoch is None else epoch
        if epoch is None:
            raise RuntimeError(
                f"fastseed.{function}: call fastseed.reseed(task, epoch) first, or "
                "set_epoch(epoch) of the sampler"
            )
        found = scopes.check_scope(function, 0 if task is None else task, epoch, 0)
        return found.task, found.epoch

    def _order(self, function: str, task: int | None, epoch: int | None) -> Order:
        """Return the order that the next iteration has in this scope."""
        task, epoch = self._scope(function, task, epoch)
        seed = current_seeder(function).master_seed if self.spec.is_keyed else 0
        return self.spec.at(seed, task, epoch)

    def _rank_and_size(self) -> tuple[int, int]:
        """Return the rank that iterates and the number of ranks: those given, else the job's."""
        if self.rank is not None and self.world_size is not None:
            return self.rank, self.world_size
        seeder = current_seeder(self._path)
        return seeder.data_rank, seeder.data_world_size

    def _size(self, world_size: int, first: int = 0) -> int:
        """Return how many indices a rank yields from a position on."""
        return StepLayout(self.n, 1, world_size, 0, False, self.drop_last).samples_left(first)

    def __len__(self) -> int:
        """Return how many indices this rank yields in a whole epoch."""
        return self._size(self._rank_and_size()[1])

    def __iter__(self) -> Iterator[int]:
        """Yield this rank's indices as ints, in the scope and on the ranks of this moment."""
        rank, world_size = self._rank_and_size()
        refuse_second_division(self, world_size)
        order, first = self._order(self._path, None, None), self._take_position()
        return order.share(first, rank, world_size, self._size(world_size, first))

    def _take_position(self) -> int:
        """Return where an iteration begins that begins now: at ``seek``'s position, once."""
        first, self._first = self._first, 0
        return first

    def index(self, i: int, *, task: int | None = None, epoch: int | None = None) -> int:
        """Return the sample at a global position, in constant time.

        Args:
            i: the position, [0, n).
            task: None: that of the next iteration, as for ``epoch``.
            epoch: [0, 2**32).

        Raises:
            RuntimeError: ``fastseed.init`` was not called, or the epoch is not known.
        """
        function = f"{self._path}.index"
        i = validation.check_int(function, "i", i, 0, self.n - 1)
        return self._order(function, task, epoch).index(i)

    def indices(
        self,
        start: int = 0,
        stop: int | None = None,
        *,
        task: int | None = None,
        epoch: int | None = None,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return the samples at global positions ``start`` to ``stop - 1``.

        Args:
            start: [0, stop].
            stop: [0, n]; None: n.
            task: as for ``index``.
            epoch: as for ``index``.
            out: a tensor to write to, on any device: (stop - start,), torch.int64.

        Returns:
            A tensor on the CPU, (stop - start,), torch.int64; or ``out``.

        Raises:
            RuntimeError: as for ``index``; also while a CUDA graph is captured.
        """
        function = f"{self._path}.indices"
        stop = validation.check_int(function, "stop", self.n if stop is None else stop, 0, self.n)
        start = validation.check_int(function, "start", start, 0, stop)
        order = self._order(function, task, epoch)
        if out is None:
            return order.part(start, stop - start)
        tensors.check_out(function, out, (stop - start,), torch.int64)
        refuse_capture(function, out.device, "call it before the capture and copy the result")
        return order.write(out, start)


class SlotSampler(BatchSampler):
    """The micro-batches of this rank: its slots of each step, in order.

    ``docs/spec/data-order.md`` ("From positions to steps") says which positions a slot has.
    """

    def __init__(self, sampler: ShuffleSampler, layout: StepLayout) -> None:
        super().__init__(sampler, layout.batch_size, layout.drop_last)
        self.order, self.layout, self.slots = sampler, layout, layout.slots
        self.steps = layout.steps_left(0)

    def own_slots(self) -> range:
        return own_slots(self.slots, *self.order._rank_and_size(), self.layout.assignment)

    def __len__(self) -> int:
        return self.steps * len(self.own_slots())

    def __iter__(self) -> Iterator[list[int]]:
        """Yield them where no plan does: in a DataLoader that a framework made of ours."""
        sampler, (rank, ranks) = self.order, self.order._rank_and_size()
        order, first = sampler._order(sampler._path, None, None), sampler._take_position()
        return self.layout._replace(ranks=ranks).micro_batches(order, rank, first)


def check_size(function: str, argument: str, data: Sized | int) -> int:
    """Return how many samples ``data`` has, which is a dataset or this number."""
    if isinstance(data, Sized):
        try:
            data, argument = len(data), f"len({argument})"
        except (TypeError, RuntimeError) as error:  # of a tensor without dimensions, for example
            rule = "a dataset with a length, or a number of samples"
            raise validation.type_error(function, argument, rule, data) from error
    return validation.check_int(function, argument, data, 1, MAX_N)


def samplers_in(*samplers: object) -> list[object]:
    """Return samplers, or loaders, and what they wrap, once each, the outermost first."""
    found: dict[int, object] = {}
    left = list(samplers)
    for sampler in left:  # which grows
        if sampler is not None and id(sampler) not in found:
            found[id(sampler)] = sampler
            left += getattr(sampler, "batch_sampler", None), getattr(sampler, "sampler", None)
    return list(found.values())


def without_generator(samplers: list[object]) -> list[Any]:
    """Return torch's own samplers that have no generator: the loader lends them one."""
    return [s for s in samplers if isinstance(s, RANDOM_SAMPLERS) and s.generator is None]


# ------------------------------------------------------------------ loaders under Accelerate

# A job that uses Accelerate has imported it.
HOW = (
    "call attach(accelerator) of fastseed.integrations.accelerate before accelerator.prepare, and "
    "iterate what that returns"
)


def refuse_second_division(sampler: Any, world_size: int) -> None:
    """Raise RuntimeError if the loader that Accelerate iterates now divides ``sampler`` again."""
    state = _state_of_loops() if world_size > 1 else None
    if state is None or _ranks() == 1:
        return
    if any(sampler is one for one in samplers_in(state.active_dataloader)):
        raise RuntimeError(
            "fastseed.data.ShuffleSampler: rank must be 0 and world_size 1 in a loader that "
            f"Accelerate has prepared and divides itself, got {sampler!r} on {world_size} ranks: "
            f"{HOW}"
        )


def warn_of_unprepared(loader: Any) -> None:
    """Warn if a loop under Accelerate iterates a loader that Accelerate does not know."""
    state = _state_of_loops()
    if state is None:
        return
    active = state.active_dataloader
    is_active = active is not None and active.dataset is loader.dataset  # of a prepared one
    # The Trainer counts by itself; slots are dealt out without Accelerate on purpose.
    has_slots = isinstance(loader.batch_sampler, SlotSampler)
    is_known = has_slots or "transformers.trainer" in sys.modules
    if not is_active and (state.num_steps > 1 or (_ranks() > 1 and not is_known)):
        warnings.warn(
            "fastseed.data.Loader: Accelerate does not know this loader: accumulate() misses its "
            "last batches, gather_for_metrics() keeps repeated samples, and a prepared scheduler "
            f"makes a step for each rank; {HOW}",
            stacklevel=4,
        )


def _state_of_loops() -> Any:
    module = sys.modules.get("accelerate.state")
    return None if module is None or not module.is_initialized() else module.GradientState()


def _ranks() -> int:
    return int(sys.modules["accelerate.state"].PartialState().num_processes)
