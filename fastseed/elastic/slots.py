"""Collect the gradients of a step slot by slot, and add them in one order on any layout."""

from __future__ import annotations

import uuid
import weakref
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.optim.optimizer import register_optimizer_step_pre_hook

from .._utils import validation
from .._utils.log import logger
from ..data.micro_batches import MicroBatches
from ..distributed.agreement import agree
from ..distributed.rendezvous import name_ranks
from ..nn.dropout.rows import rows
from . import arguments
from .buffers import SlotBuffers
from .collector import Collector, weak
from .draws import DrawWatch
from .peers import FUNCTION
from .replicated import ReplicatedCollector
from .sharded import ShardedCollector

Batch = TypeVar("Batch")

_NO_WEIGHT = -1.0
_COMPARED = 1000  # steps from one comparison of the ranks to the next


class Slot:
    """One slot of a step: a micro-batch with a forward and a backward pass of its own.

    Attributes:
        number: the slot, [0, V); None where the passes only keep collectives in step.

    Examples:
        >>> import torch
        >>> model = torch.nn.Linear(1, 1, bias=False)
        >>> gradients = fastseed.elastic.SlotGradients(model, slots=2)
        >>> for slot, batch in gradients.step([torch.ones(1, 1), torch.ones(3, 1)]):
        ...     model(batch).sum().backward()
        ...     slot.weight = len(batch)
        >>> model.weight.grad
        tensor([[1.]])
    """

    __slots__ = ("_weight", "number")

    def __init__(self, number: int | None) -> None:
        if number is not None:
            number = validation.check_int("elastic.Slot", "number", number, 0, 2**24 - 1)
        self.number = number
        self._weight: float | None = None

    def __repr__(self) -> str:
        return f"Slot(number={self.number}, weight={self._weight})"

    @property
    def is_padding(self) -> bool:
        """Whether the passes only keep collectives in step: no gradient or loss counts."""
        return self.number is None

    @property
    def weight(self) -> float | None:
        """The weight of the slot in [0, 2**53], such as its number of tokens; None if not set.

        Either all slots of a step have one, or none. The loss of a slot is then a sum, over tokens
        for example: gradients are added as they are, and divided once by the sum of the weights.
        """
        return self._weight

    @weight.setter
    def weight(self, value: object) -> None:
        if isinstance(value, torch.Tensor) and value.numel() == 1:
            value = value.item()
        self._weight = validation.check_float("elastic.Slot", "weight", value, 0, 2**53)


class SlotGradients:
    """The mean of the gradients of V slots, with the same bits on any number of ranks.

    A step has V slots: micro-batches, each with a forward and a backward pass of its own. Rank r of
    w has slots floor(r V / w) to floor((r + 1) V / w) - 1; under ``fully_shard`` r, r + w, r + 2 w,
    and so on. Gradients are added in an order that the numbers of the slots fix, and divided once.
    After a step ``p.grad`` lies in memory that the next step writes; it is None where no slot had a
    gradient.

    Every rank makes the object. The first step, and then every 1,000th, compares arguments, model
    and machine. A backward pass outside of a slot is an error as long as the object exists.

    Args:
        model: a module with parameters that require a gradient, on one or several devices.
        slots: V, [1, 2**24]: fixed for the job, also where the number of ranks changes. Under
            ``fully_shard`` at least the number of ranks.
        assignment: which slots a rank has. None: ``"blocks"``, neighbours, for a replicated model,
            and ``"deal"``, every w-th, under ``fully_shard``, which has no other. It changes no
            bit. ``fastseed.data.steps`` must have the same.
        group: the ranks that divide the data: a process group or a mesh of one dimension. None: all
            ranks, or this process alone where there is no process group.
        bucket_mb: MiB of gradients that are sent at a time, [1e-6, 2**20]; it changes no bit.
        broadcast: give every rank the parameters and buffers of the first one in the first step,
            instead of comparing values; under ``fully_shard`` buffers, and in HSDP the shards of
            the first replica.

    Raises:
        TypeError, ValueError: an argument is invalid; the model is wrapped (DDP, FSDP1), has a
            SyncBatchNorm or no parameter that requires a gradient; ``group`` is None and not all
            ranks divide the data. Other ranks raise RuntimeError in their first step.

    Examples:
        >>> import torch
        >>> model = torch.nn.Linear(1, 1, bias=False)
        >>> gradients = fastseed.elastic.SlotGradients(model, slots=4)
        >>> for slot, batch in gradients.step(torch.arange(4.0).view(4, 1, 1)):
        ...     model(batch).sum().backward()
        >>> model.weight.grad
        tensor([[1.5000]])
    """

    def __init__(
        self,
        model: nn.Module,
        slots: int,
        *,
        assignment: str | None = None,
        group: object = None,
        bucket_mb: float = 25.0,
        broadcast: bool = False,
    ) -> None:
        ranks: dist.ProcessGroup | None = None
        if dist.is_available() and dist.is_initialized():
            ranks = dist.group.WORLD  # which hears of a wrong group
        try:
            ranks = arguments.find_group(group)
            self._model = arguments.check_model(model)
            shards = any(isinstance(part, FSDPModule) for part in self._model.modules())
            plan = arguments.make_plan(slots, ranks, assignment, is_sharded=shards)
            self._plan = plan
            sends = arguments.check_broadcast(broadcast, self._model)
            size = validation.check_float(FUNCTION, "bucket_mb", bucket_mb, 1e-6, 2**20)
            self._collector: Collector = (
                ShardedCollector(self._model, plan)
                if shards
                else ReplicatedCollector(self._model, plan, round(size * 2**20))
            )
            self._buffers = SlotBuffers(self._model, plan, round(size * 2**20))
        except (TypeError, ValueError, RuntimeError) as error:
            agree(FUNCTION, {}, error, group=ranks)  # other ranks hear of it in their first step
        self._draws = DrawWatch(self._buffers.device)
        self._record = {"slots": plan.slots, "assignment": plan.assignment, "bucket_mb": size}
        self._record["broadcast"] = self._sends = sends
        self._name: str | None = None  # of these ranks, since they agreed
        self._steps = self._means = 0  # steps that began, and those that left a mean
        self._left: str | None = None  # where the last step is, until its end
        guard = register_optimizer_step_pre_hook(weak(self._refuse_step))
        weakref.finalize(self, guard.remove)

    @property
    def slots(self) -> int:
        """The number of slots of a step."""
        return self._plan.slots

    @property
    def assignment(self) -> str:
        """Which slots a rank has: ``"blocks"`` or ``"deal"``."""
        return self._plan.assignment

    @property
    def own_slots(self) -> range:
        """The slots of this rank, in the order of its micro-batches; there may be none."""
        return self._plan.own

    def step(self, batches: Iterable[Batch]) -> Iterator[tuple[Slot, Batch]]:
        """Yield each slot of this rank with its micro-batch; afterwards ``p.grad`` is the mean.

        The body of the loop runs one forward and one backward pass, within
        ``fastseed.nn.rows(slot, slots, count=1)``. A step that is left early, by ``break`` or an
        exception, has no gradients: optimizers of these parameters raise until ``discard``, and
        so do ranks that wait for this one, or whose next step is another one than its next step.

        Args:
            batches: the micro-batches of this rank, in the order of its slots, and no others.

        Yields:
            (slot, batch). A slot that is padding (``Slot.is_padding``) comes last, with the last
            batch again, on a rank without a slot in the last micro-step of a sharded model.

        Raises:
            RuntimeError: the last step has not ended; ranks differ, or are in other steps; the
                model was changed, or has gradients at the start; a slot has no backward pass, or a
                second one; slots leave different integers in a buffer; a rank left the step, ended
                or did not answer.
            ValueError: there are not as many batches as slots of this rank, or ``data.steps`` made
                them for others; only some slots have a weight, or all weights are 0.
            TimeoutError: some ranks did not come to the first step in time.
        """
        self._steps += 1
        number = self._steps
        self._begin()
        self._left = "before its first slot"
        weights: dict[int, float | None] = {}
        try:
            try:
                source = iter(batches)
            except TypeError:
                name = f"{FUNCTION}.step"
                raise validation.type_error(name, "batches", "iterable", batches) from None
            for slot, batch in self._slots(source):
                self._left = f"in slot {slot.number}"
                yield slot, batch
                if slot.number is not None:
                    weights[slot.number] = slot.weight
            self._finish(weights)
            self._means += 1
            self._left = None
        finally:
            self._draws.end()
            if self._left is not None and self._steps == number:  # else discard() was called
                logger.warning(
                    "fastseed.%s: a step was left %s; it has no gradients", FUNCTION, self._left
                )
                self._plan.peers.leave(self._left)
                self._drop()

    def discard(self) -> None:
        """Drop the gradients of a step that was left, on every rank in the same slot."""
        if self._left is not None:
            self._plan.peers.leave(self._left)
            self._drop()
        self._left = None

    def _begin(self) -> None:
        """Check the model; from time to time, also that all ranks have the same."""
        problem: Exception | None = None
        try:
            if self._left is not None:
                self._plan.peers.leave(self._left)
                raise RuntimeError(
                    f"fastseed.{FUNCTION}.step: the last step is, or was left, {self._left}: its "
                    "gradients are not complete; run it to its end, end the job, or call discard() "
                    "on every rank to drop them"
                )
            self._collector.begin()
            self._buffers.begin()
        except (RuntimeError, ValueError) as error:
            problem = error
        if self._steps % _COMPARED == 0:
            self._name = None
        if self._name is None:
            self._name = self._agree(problem)
        self._plan.peers.enter(self._name, self._steps)
        if problem is not None:
            self._plan.peers.leave("before its first slot")
            raise problem

    def _agree(self, problem: Exception | None) -> str:
        """Raise on every rank unless all have, or get, the same; return a name of these ranks."""
        if self._plan.ranks == 1:
            return ""
        record = self._record | arguments.describe_machine(self._buffers.device)
        rows, chosen = arguments.describe_model(self._model), uuid.uuid4().hex
        rows += [] if self._sends else arguments.describe_values(self._model)
        ranks, replicas = self._plan.group, self._collector.replicas
        name = agree(FUNCTION, record, problem, rows=rows, chosen=chosen, group=ranks)
        if self._sends:
            arguments.broadcast_model(self._model, self._plan, replicas, self._buffers.device)
            self._sends = False
            self._collector.begin()  # again, with these values
            self._buffers.begin()
        elif replicas is not None:
            shards = arguments.describe_values(self._model, shards=True)
            agree(FUNCTION, {}, rows=shards, group=replicas)
        return str(name)

    def _refuse_step(self, optimizer: torch.optim.Optimizer, *_: object) -> None:
        """RuntimeError if a step is not complete, and an optimizer has parameters of the model."""
        if self._left is None:
            return
        own = {id(parameter) for parameter in self._collector.parameters}
        if any(id(p) in own for group in optimizer.param_groups for p in group["params"]):
            raise RuntimeError(
                f"fastseed.{FUNCTION}: an optimizer must step after the last slot of a step, but "
                f"the step is, or was left, {self._left}: its gradients are not complete; end the "
                "job, or call discard() to drop them"
            )

    def _drop(self) -> None:
        self._collector.discard()
        self._buffers.restore()
        self._buffers.discard()

    def _slots(self, batches: Iterator[Batch]) -> Iterator[tuple[Slot, Batch]]:
        plan, held = self._plan, []
        for micro_step in range(plan.micro_steps):
            slot = Slot(plan.slot(micro_step))
            self._collector.start(micro_step)
            if not slot.is_padding:
                held = [self._next(batches, slot)]
            if not slot.is_padding or self._collector.needs_every_rank:
                # Where the slot is padding, rows that this rank has not used in this step.
                row = (plan.rank + 1) % plan.ranks if slot.number is None else slot.number
                with rows(row, plan.slots, count=1), self._draws.slot(slot.number):
                    yield slot, held[0]
            if not self._collector.collect():
                raise RuntimeError(
                    f"fastseed.{FUNCTION}.step: slot {slot.number} has no backward pass"
                )
            if not slot.is_padding:
                self._buffers.keep()
            self._buffers.restore(kept=not slot.is_padding)
        for _ in batches:
            raise self._wrong_batches("more")

    def _next(self, batches: Iterator[Batch], slot: Slot) -> Batch:
        MicroBatches.latest = None  # the batch may come through an iterator that wraps them
        for batch in batches:
            if MicroBatches.latest not in (None, self.own_slots):
                raise self._wrong_batches(
                    f"those of slots in {MicroBatches.latest}: give data.steps "
                    f"slots={self.slots} and assignment={self.assignment!r}"
                )
            return batch
        raise self._wrong_batches(f"none for slot {slot.number}")

    def _wrong_batches(self, found: str) -> ValueError:
        rank, ranks, own = self._plan.rank, self._plan.ranks, self.own_slots
        rule = f"{len(own)} micro-batches, those of slots in {own} for rank {rank} of {ranks}"
        return ValueError(f"fastseed.{FUNCTION}.step: batches must be {rule}, got {found}")

    def _finish(self, weights: dict[int, float | None]) -> None:
        """Add up what each rank knows of the step, and leave the mean."""
        self._collector.check()
        plan, used, changed = self._plan, self._collector.used(), self._buffers.changed()
        known = torch.zeros(plan.slots, dtype=torch.float64)
        for slot, weight in weights.items():
            known[slot] = _NO_WEIGHT if weight is None else weight
        ranks = torch.zeros(plan.ranks, 3, dtype=torch.int64)
        ranks[plan.rank] = torch.tensor([self._steps, self._means, self._collector.order])
        flags = torch.tensor([*used, *changed], dtype=torch.int64)
        # One rank has each slot, so that bits of its weight can be added as an integer.
        known = torch.cat([known.view(torch.int64), flags, ranks.view(-1)])
        if plan.ranks > 1:
            on_device = known.to(self._buffers.device)
            work = dist.all_reduce(on_device, group=plan.group, async_op=True)
            plan.peers.wait(work, on_device)
            known = on_device.cpu()
        values, flags, ranks = torch.split(known, [plan.slots, len(flags), 3 * plan.ranks])
        self._check_ranks(ranks.view(-1, 3).tolist())
        divisor = _divisor(values.view(torch.float64).tolist())
        some = [count > 0 for count in flags.tolist()]
        self._buffers.finish(some[len(used) :])
        self._collector.finish(divisor, some[: len(used)])

    def _check_ranks(self, rows: list[list[int]]) -> None:
        """RuntimeError on every rank if collectives of other steps, or other modules, were mixed.

        A row is the number of steps that a rank began, of those that left a mean, and its order.
        """
        if any(row[:2] != rows[0][:2] for row in rows):
            least = min(began - means for began, means, _ in rows)
            others = [rank for rank, row in enumerate(rows) if row[0] - row[1] > least]
            raise RuntimeError(
                f"fastseed.{FUNCTION}.step: all ranks must be in one step, but "
                f"{name_ranks(others or [*range(len(rows))])} of the group left an earlier one and "
                "went on: this step is a mix of two; end the job"
            )
        others = [rank for rank, row in enumerate(rows) if row[2] != self._collector.order]
        if others:
            raise RuntimeError(
                f"fastseed.{FUNCTION}.step: all ranks must run the same modules under fully_shard "
                f"in each micro-step, in one order, but {name_ranks(others)} did not as rank "
                f"{self._plan.rank} of the group: torch then mixes up what they exchange; a module "
                "that only some slots run must be under the fully_shard of the module that calls "
                "it, without one of its own"
            )


def _divisor(weights: list[float]) -> Fraction:
    """Return the number of slots, or the exact sum of their weights if they have some."""
    given = [None if weight == _NO_WEIGHT else weight for weight in weights]
    if not any(weight is not None for weight in given):
        return Fraction(len(weights))
    if None in given:
        rule = "set for all slots of a step or for none"
        raise validation.value_error("elastic.Slot", "weight", rule, given)
    total = sum(map(Fraction, weights), Fraction())
    if total == 0:
        raise validation.value_error("elastic.Slot", "weight", "above 0 for some slot", given)
    return total
