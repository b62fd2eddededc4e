"""Collect the gradients of a step slot by slot, and add them in one order on any layout."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule

from .._utils import validation
from ..nn.dropout.rows import rows
from . import arguments
from .arguments import FUNCTION
from .buffers import SlotBuffers
from .collector import Collector, SlotPlan
from .replicated import ReplicatedCollector
from .sharded import ShardedCollector

logger = logging.getLogger("fastseed")

Batch = TypeVar("Batch")

_NO_WEIGHT = -1.0


class Slot:
    """One slot of a step: a micro-batch with a forward and a backward pass of its own.

    Attributes:
        number: the slot, [0, V); None where the passes only keep collectives in step.
    """

    __slots__ = ("_weight", "number")

    def __init__(self, number: int | None) -> None:
        self.number = number
        self._weight: float | None = None

    def __repr__(self) -> str:
        return f"Slot(number={self.number}, weight={self._weight})"

    @property
    def counts(self) -> bool:
        """Whether the gradient of the slot is a part of the step; its loss is to be logged then."""
        return self.number is not None

    @property
    def weight(self) -> float | None:
        """The weight of the slot in the mean, such as its number of tokens; None if not set.

        Either all slots of a step have one, or none. The loss of a slot is then a sum, over tokens
        for example: gradients are added as they are, and divided by the sum of the weights.
        """
        return self._weight

    @weight.setter
    def weight(self, value: object) -> None:
        if isinstance(value, torch.Tensor) and value.numel() == 1:
            value = value.item()
        self._weight = validation.check_float("elastic.Slot", "weight", value, 0, 2**53)


class SlotGradients:
    """The mean of the gradients of V slots, with the same bits on any number of ranks."""

    def __init__(
        self, model: nn.Module, slots: int, *, group: object = None, bucket_mb: float = 25.0
    ) -> None:
        ranks = arguments.find_group(group)
        problem: Exception | None = None
        record = {}
        try:
            self._plan = plan = arguments.make_plan(slots, ranks)
            module = arguments.check_model(model)
            size = validation.check_float(FUNCTION, "bucket_mb", bucket_mb, 1e-6, 2**20)
            self._collector = _make_collector(module, plan, round(size * 2**20))
            self._buffers = SlotBuffers(module, plan, round(size * 2**20))
            tensors = self._collector.describe() | self._buffers.describe()
            record = {"slots": plan.slots, "bucket_mb": size, "tensors": tensors}
        except (TypeError, ValueError, RuntimeError) as error:
            problem = error
        arguments.agree(ranks, record, problem)
        self._steps = 0
        self._left: str | None = None  # where the last step is, until its end

    @property
    def slots(self) -> int:
        """V, the number of slots of a step."""
        return self._plan.slots

    def step(self, batches: Iterable[Batch]) -> Iterator[tuple[Slot, Batch]]:
        """Yield each slot of this rank with its micro-batch."""
        if self._left is not None:
            raise RuntimeError(
                f"fastseed.{FUNCTION}.step: the last step was left {self._left}, and its gradients "
                "are not complete: end the job, or call discard() on every rank to drop them"
            )
        self._collector.begin()
        self._buffers.begin()
        self._steps += 1
        number, self._left = self._steps, "before its first slot"
        weights: dict[int, float | None] = {}
        try:
            for slot, batch in self._slots(iter(batches)):
                self._left = f"in slot {slot.number}"
                yield slot, batch
                if slot.number is not None:
                    weights[slot.number] = slot.weight
            self._finish(weights)
            self._left = None
        finally:
            if self._left is not None and self._steps == number:  # else discard() was called
                logger.warning(
                    "fastseed.%s: a step was left %s; it has no gradients", FUNCTION, self._left
                )
                self._drop()

    def discard(self) -> None:
        """Drop the gradients of a step that was left, so that the next step can begin."""
        if self._left is not None:
            self._drop()
        self._left = None

    def _drop(self) -> None:
        self._collector.discard()
        self._buffers.restore()
        self._buffers.discard()

    def _slots(self, batches: Iterator[Batch]) -> Iterator[tuple[Slot, Batch]]:
        """Yield the slots of this rank, and exchange the leaves of each micro-step."""
        plan, held = self._plan, []
        for micro_step in range(plan.micro_steps):
            slot = Slot(plan.slot(micro_step))
            self._collector.start(micro_step)
            if slot.counts:
                held = [self._next(batches, slot)]
            if slot.counts or self._collector.needs_every_rank:
                # Where the slot does not count, rows that this rank has not used in this step.
                row = (plan.rank + 1) % plan.ranks if slot.number is None else slot.number
                with rows(row, plan.slots, count=1):
                    yield slot, held[0]
            self._collector.collect()
            self._buffers.collect(micro_step)
        for _ in batches:
            raise self._wrong_batches("more")

    def _next(self, batches: Iterator[Batch], slot: Slot) -> Batch:
        for batch in batches:
            return batch
        raise self._wrong_batches(f"none for slot {slot.number}")

    def _wrong_batches(self, found: str) -> ValueError:
        plan = self._plan
        have = len(range(plan.rank, plan.slots, plan.ranks))
        rule = f"{have} micro-batches, one for each slot of rank {plan.rank} of {plan.ranks}"
        return ValueError(f"fastseed.{FUNCTION}.step: batches must be {rule}, got {found}")

    def _finish(self, weights: dict[int, float | None]) -> None:
        """Add up what each rank knows of the step, and leave the mean."""
        slots, used, changed = self._plan.slots, self._collector.used(), self._buffers.changed()
        known = torch.zeros(slots, dtype=torch.float64)
        for slot, weight in weights.items():
            known[slot] = _NO_WEIGHT if weight is None else weight
        # One rank has each slot, so that bits of its weight can be added as an integer.
        known = torch.cat([known.view(torch.int64), torch.tensor([*used, *changed]).long()])
        if self._plan.ranks > 1:
            on_device = known.to(self._buffers.device)
            dist.all_reduce(on_device, group=self._plan.group)
            known = on_device.cpu()
        divisor = _divisor(known[:slots].view(torch.float64).tolist())
        some = (known[slots:] > 0).tolist()
        self._buffers.finish(some[len(used) :])
        self._collector.finish(divisor, some[: len(used)])


def _divisor(weights: list[float]) -> float:
    """Return the number of slots, or the sum of their weights if they have some."""
    without = [slot for slot, weight in enumerate(weights) if weight == _NO_WEIGHT]
    if len(without) == len(weights):
        return float(len(weights))
    if without:
        rule = "set for all slots of a step or for none"
        raise validation.value_error("elastic.Slot", "weight", rule, f"none for slot {without[0]}")
    total = math.fsum(weights)
    if total == 0:
        raise validation.value_error("elastic.Slot", "weight", "above 0 for some slot", weights)
    return total


def _make_collector(model: nn.Module, plan: SlotPlan, bucket_bytes: int) -> Collector:
    """Return what collects the gradients of the model: replicated, or sharded by fully_shard."""
    if any(isinstance(part, FSDPModule) for part in model.modules()):
        return ShardedCollector(model, plan)
    return ReplicatedCollector(model, plan, bucket_bytes)
