"""Collect the gradients of a step slot by slot, and add them in one order on any layout."""

from __future__ import annotations

import contextlib
import uuid
import weakref
from collections.abc import Iterable, Iterator
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from .._utils import validation
from .._utils.log import logger
from ..data.limits import MicroBatches
from ..distributed.agreement import agree
from ..nn.dropout.rows import rows
from ..nn.module_names import sharded_modules
from . import arguments
from .buffers import SlotBuffers
from .collector import Collector, weak
from .peers import FUNCTION
from .replicated import ReplicatedCollector
from .slot import Slot, divisor_of, watch_draws

Batch = TypeVar("Batch")

_COMPARED = 1000  # steps from one comparison of the ranks to the next


class SlotGradients:
    """Average the gradients of a step with the same bits on any number of ranks, in place of DDP.

    A step has ``slots`` micro-batches, each with one forward and one backward pass. A rank has
    neighbouring slots; under ``fully_shard`` slots are dealt to the ranks in turn. Gradients are
    added in an order that the numbers of the slots fix, and divided once.
    After a step ``p.grad`` lies in memory that the next step writes; it is None where no slot had a
    gradient.

    A step is a loop over ``step(batches)``; or, where a framework calls the passes one by one,
    ``with gradients.slot() as slot:`` around each of ``passes``, and ``finish()``.

    Every rank makes the object. The first step, and then every 1,000th, compares arguments, model
    and machine. A backward pass outside of a slot raises as long as the object exists.

    Args:
        model: a module with parameters that require a gradient, on one or several devices.
        slots: their number, [1, 2**24], fixed for the job on any number of ranks. Under
            ``fully_shard`` at least the number of ranks.
        assignment: which slots a rank has. None: ``"blocks"``, neighbours, for a replicated model,
            and ``"deal"``, in turn, under ``fully_shard``, which has no other. It changes no
            bit. ``fastseed.data.steps`` must have the same.
        group: the ranks that divide the data: a process group or a mesh of one dimension. None: all
            ranks, or this process alone where there is no process group.
        bucket_mb: MiB of gradients that are sent at a time, [1e-6, 2**20]; it changes no bit.

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
    ) -> None:
        ranks: dist.ProcessGroup | None = None
        if dist.is_available() and dist.is_initialized():
            ranks = dist.group.WORLD  # which hears of a wrong group
        try:
            ranks = arguments.find_group(group)
            self._model = arguments.check_model(model)
            shards = bool(sharded_modules(self._model))
            plan = arguments.make_plan(slots, ranks, assignment, is_sharded=shards)
            self._plan = plan
            size = validation.check_float(FUNCTION, "bucket_mb", bucket_mb, 1e-6, 2**20)
            most = round(size * 2**20)
            if shards:
                from .sharded import ShardedCollector

                self._collector: Collector = ShardedCollector(self._model, plan)
            else:
                self._collector = ReplicatedCollector(self._model, plan, most)
            self._buffers = SlotBuffers(self._model, plan, most)
        except (TypeError, ValueError, RuntimeError) as error:
            agree(FUNCTION, {}, error, group=ranks)  # other ranks hear of it in their first step
        self._record = {"slots": plan.slots, "assignment": plan.assignment, "bucket_mb": size}
        self._name: str | None = None  # of these ranks, since they agreed
        self._steps = self._means = 0  # steps that began, and those that left a mean
        self._left: str | None = None  # where the last step is, until its end or discard()
        self._micro_step: int | None = None  # of the step that is under way
        self._is_in_slot = False
        self._weights: dict[int, float] = {}
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

    @property
    def passes(self) -> int:
        """How many forward and backward passes this rank runs in a step; there may be none."""
        plan = self._plan
        return plan.micro_steps if self._collector.needs_every_rank else len(plan.own)

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
        self._leave(self._steps)  # where another loop is in one
        self._begin_step()
        with self._left_on_error():
            if not isinstance(batches, Iterable):
                name = f"{FUNCTION}.step"
                raise validation.type_error(name, "batches", "iterable", batches)
            source = iter(batches)
            for micro_step in range(self.passes):
                number = self._plan.slot(micro_step)
                if number is not None:
                    batch = self._next(source, number)
                with self.slot() as slot:
                    yield slot, batch
            for _ in source:
                raise self._wrong_batches("more")
        self.finish()

    @contextlib.contextmanager
    def slot(self) -> Iterator[Slot]:
        """Take the forward and the backward pass in this block as those of the next slot.

        The first of a step begins it. The block is within ``fastseed.nn.rows(slot, slots,
        count=1)``; left by an exception, it leaves the step, as a loop over ``step`` does. Where
        ``Slot.is_padding`` run the passes with the batch before, again.

        Yields:
            The slot; these are ``own_slots`` in their order, and then padding.

        Raises:
            RuntimeError: the step has had its ``passes``, or another slot is open; that and what
                ``step`` raises end the step on every rank.

        Examples:
            >>> import torch
            >>> model = torch.nn.Linear(1, 1, bias=False)
            >>> gradients = fastseed.elastic.SlotGradients(model, slots=2)
            >>> for i in range(gradients.passes):
            ...     with gradients.slot() as slot:
            ...         model(torch.full((1, 1), 1.0 + slot.number)).sum().backward()
            >>> gradients.finish()
            >>> model.weight.grad
            tensor([[1.5000]])
        """
        if self._micro_step is None:
            self._begin_step()
        plan, number = self._plan, self._steps
        with self._left_on_error():
            micro_step = self._micro_step or 0
            self._check_passes("slot", micro_step < self.passes)
            slot = Slot(plan.slot(micro_step))
            slot._skip = self._collector.skip
            self._left, self._is_in_slot = f"in slot {slot.number}", True
            self._collector.start(micro_step)
            # Where the slot is padding, rows that this rank has not used in this step.
            row = (plan.rank + 1) % plan.ranks if slot.number is None else slot.number
            is_first = self._steps == 1  # later ones draw as it does
            watch = watch_draws(self._buffers.device) if is_first else contextlib.nullcontext()
            with rows(row, plan.slots, count=1), watch:
                yield slot
            if self._micro_step is None or self._steps != number:
                raise RuntimeError(
                    f"fastseed.{FUNCTION}.slot: a step must not be left, by discard() or another "
                    "step, in one of its slots"
                )
            self._collect(slot)

    def finish(self) -> None:
        """End a step, after ``passes`` blocks of ``slot``: ``p.grad`` is the mean.

        Raises:
            RuntimeError: a slot is open, or the step has had fewer passes; that and what ``step``
                raises end the step on every rank.
        """
        if self._micro_step is None:
            self._begin_step()
        with self._left_on_error():
            done = self._micro_step or 0
            self._check_passes("finish", done >= self.passes)
            for micro_step in range(done, self._plan.micro_steps):
                self._collector.start(micro_step)
                self._collect(Slot(None))
            self._add_up()
        self._means += 1
        self._left = self._micro_step = None

    def discard(self) -> None:
        """Drop the gradients of a step that was left, on every rank in the same slot."""
        if self._left is not None:
            self._plan.peers.leave(self._left)
            self._drop()
        self._left = self._micro_step = None

    def _begin_step(self) -> None:
        """Check the model; from time to time, also that all ranks have the same."""
        self._steps += 1
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
        if self._name is None:  # a problem waits until the other ranks have heard of it
            self._name = self._agree(problem)
        self._plan.peers.enter(self._name, self._steps)
        if problem is not None:
            self._plan.peers.leave("before its first slot")
            raise problem
        self._left, self._micro_step = "before its first slot", 0
        self._is_in_slot, self._weights = False, {}

    def _check_passes(self, name: str, is_right: bool) -> None:
        """RuntimeError for a call that is not the next one of the step."""
        if self._is_in_slot or not is_right:
            raise RuntimeError(
                f"fastseed.{FUNCTION}.{name}: a step must have {self.passes} blocks of slot(), one "
                f"after another, and then finish(); this rank has had {self._micro_step}"
                + (", and is in the next" if self._is_in_slot else "")
            )

    @contextlib.contextmanager
    def _left_on_error(self) -> Iterator[None]:
        number = self._steps
        try:
            yield
        except BaseException:
            self._leave(number)
            raise

    def _leave(self, number: int) -> None:
        """Drop a step, and tell the ranks that wait for this one."""
        if self._micro_step is not None and self._left and self._steps == number:
            self._micro_step = None
            logger.warning(
                "fastseed.%s: a step was left %s; it has no gradients", FUNCTION, self._left
            )
            self._plan.peers.leave(self._left)
            self._drop()

    def _agree(self, problem: Exception | None) -> str:
        """Raise on every rank unless all have the same; return a name of these ranks."""
        if self._plan.ranks == 1:
            return ""
        record = self._record | arguments.describe_machine(self._buffers.device)
        rows, chosen = arguments.describe_model(self._model), uuid.uuid4().hex
        rows += arguments.describe_values(self._model)
        name = agree(FUNCTION, record, problem, rows=rows, chosen=chosen, group=self._plan.group)
        if (replicas := self._collector.replicas) is not None:
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

    def _collect(self, slot: Slot) -> None:
        """Take the gradients of a slot, and put back the buffers that its passes changed."""
        if not self._collector.collect():
            raise RuntimeError(f"fastseed.{FUNCTION}.step: slot {slot.number} has no backward pass")
        if slot.number is not None:
            self._buffers.keep()
            self._weights[slot.number] = slot.word()
        self._buffers.restore(kept=not slot.is_padding)
        assert self._micro_step is not None
        self._micro_step, self._is_in_slot = self._micro_step + 1, False

    def _next(self, batches: Iterator[Batch], slot: int) -> Batch:
        MicroBatches.latest = None  # the batch may come through an iterator that wraps them
        for batch in batches:
            if MicroBatches.latest not in (None, self.own_slots):
                found = f"those of slots in {MicroBatches.latest}: give data.steps slots=gradients"
                raise self._wrong_batches(f"{found}, this object")
            return batch
        raise self._wrong_batches(f"none for slot {slot}")

    def _wrong_batches(self, found: str) -> ValueError:
        rank, ranks, own = self._plan.rank, self._plan.ranks, self.own_slots
        rule = f"{len(own)} micro-batches, those of slots in {own} for rank {rank} of {ranks}"
        return ValueError(f"fastseed.{FUNCTION}.step: batches must be {rule}, got {found}")

    def _add_up(self) -> None:
        """Add up what each rank knows of the step, and leave the mean."""
        self._collector.check()  # before the collective, while this rank can still leave alone
        plan, used, changed = self._plan, self._collector.used(), self._buffers.changed()
        known = torch.zeros(plan.slots, dtype=torch.float64)
        for slot, weight in self._weights.items():
            known[slot] = weight
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
        arguments.check_ranks(ranks.view(-1, 3).tolist(), plan.rank)
        divisor = divisor_of(values.view(torch.float64).tolist())
        some = [count > 0 for count in flags.tolist()]
        self._buffers.finish(some[len(used) :])
        self._collector.finish(divisor, some[: len(used)])
