"""The exchange of leaves that replaces the reduce-scatter of ``fully_shard``.

torch's reduce-scatter adds in an order that depends on the number of ranks. ``LeafScatter`` sends
each leaf of a shard to the rank that owns the shard, which adds them in the order of the slots.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from .collector import SlotPlan
from .exchange import all_gather, leaf_dtype
from .peers import FUNCTION
from .tree import TreeSum


class ShardMesh(NamedTuple):
    """How ranks divide the parameters: rank i S + s has shard s of replica i."""

    shards: int  # S
    replicas: int  # 1 without HSDP
    group: dist.ProcessGroup | None  # the ranks with the same shard


class MicroStep:
    """The micro-step of all scatters of one model, and the exchange that is under way."""

    def __init__(self) -> None:
        self.number: int | None = None
        self.current: LeafScatter | None = None
        self.finish: Callable[[], None] | None = None  # how the exchange under way ends
        self.gathered: list[str] = []  # the groups whose parameters were gathered in this step
        self.reduced: list[str] = []  # those with a backward pass

    def receive(self) -> None:
        """Wait for the exchange that is under way, if there is one, and add its leaves."""
        finish, self.finish = self.finish, None
        if finish is not None:
            finish()

    def discard(self) -> None:
        self.number, self.current, self.finish = None, None, None

    @property
    def order(self) -> int:
        """64 bits, signed, that say which groups were used in the step, in which order."""
        found = hashlib.sha256(repr((self.gathered, self.reduced)).encode()).digest()
        return int.from_bytes(found[:8], "little", signed=True)


class WatchedGather:
    """The all-gather of a group of parameters: it notes the order, and waits as for gradients."""

    def __init__(self, name: str, plan: SlotPlan, step: MicroStep, gather: Any) -> None:
        self._name, self._plan, self._step, self._gather = name, plan, step, gather
        self.allocate = gather.allocate if gather is not None else None

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        async_op: bool = False,
    ) -> dist.Work | None:
        if self._step.number is not None:
            self._step.gathered.append(f"{self._step.number} {self._name}")
        work: dist.Work | None = self._gather(output_tensor, input_tensor, group, async_op=True)
        if async_op or work is None:
            return work
        self._plan.peers.wait(work, output_tensor)
        return None


class LeafScatter:
    """The reduce-scatter of one group of parameters, for ``FSDPModule.set_custom_reduce_scatter``.

    torch allocates an input of S shards and an output of one, copies the gradients of a backward
    pass into the input, calls this object (not where S is 1), and views the output as gradients.
    Here the input has the dtype of the gradients, and the output is not written: gradients are
    those of ``finish``.
    """

    def __init__(self, name: str, plan: SlotPlan, mesh: ShardMesh, step: MicroStep) -> None:
        # size, strides and offset in the shard, by the index of a parameter; after a backward pass
        self.pieces: dict[int, tuple[torch.Size, tuple[int, ...], int]] = {}
        self.taken = False  # whether the group had a gradient in this step
        self.dtype: torch.dtype | None = None  # of the gradients, in which leaves are sent
        self._name, self._plan, self._mesh, self._step = name, plan, mesh, step
        self._input: torch.Tensor | None = None
        self._micro_step: int | None = None  # of the last backward pass
        self._elements = 0  # of the shard
        self._sum = TreeSum()
        self._slots = 0  # how many of them are in the sum
        self._empty = torch.empty(0)

    def allocate(
        self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device
    ) -> torch.Tensor:
        """Return memory for an input or, in torch's second call of a pass, for an output."""
        if self._input is None:
            self._check()
            sent = leaf_dtype(dtype) if self.dtype is None else self.dtype
            self._input = torch.empty(tuple(size), dtype=sent, device=device)
            return self._input
        leaf, self._input = self._input, None
        if self._mesh.shards == 1:
            self._add(leaf.view(1, -1))
        return torch.empty(tuple(size), dtype=leaf_dtype(dtype), device=device)

    def _check(self) -> None:
        """RuntimeError where no backward pass of this group is expected."""
        step = self._step
        where = f"module {self._name!r}" if self._name else "the model"
        if step.number is None:
            raise RuntimeError(
                f"fastseed.{FUNCTION}: a backward pass reaches {where} outside of a slot: "
                "backward() belongs into the loop over gradients.step(batches)"
            )
        if self._micro_step == step.number:
            raise RuntimeError(
                f"fastseed.{FUNCTION}: {where} has two backward passes in micro-step {step.number}"
                ": a slot has one; a module that is used twice in a forward pass must be under the "
                "fully_shard of the module that calls it, without one of its own"
            )
        step.current, self._micro_step = self, step.number
        step.reduced.append(f"{step.number} {self._name}")

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        op: object,
        async_op: bool = False,
    ) -> None:
        received = torch.empty_like(input_tensor)
        self._step.receive()  # one exchange at a time: its memory is that of a whole group
        work = dist.all_to_all_single(received, input_tensor, group=group, async_op=True)

        def finish() -> None:
            self._plan.peers.wait(work, received)
            self._add(received.view(self._mesh.shards, -1))

        self._step.finish = finish
        if input_tensor.device.type != "cpu":
            self._step.receive()  # on torch's stream for it: the host does not wait

    def _add(self, leaves: torch.Tensor) -> None:
        """Add the leaves of this shard from the ranks of this replica, one a row."""
        assert self._step.number is not None
        leaves = leaves.to(leaf_dtype(leaves.dtype))
        self._elements = leaves.shape[1]
        first = self._step.number * self._plan.ranks
        end = min(first + self._plan.ranks, self._plan.slots)
        mesh, count = self._mesh, 1
        if mesh.replicas > 1:
            common = math.gcd(mesh.shards, self._plan.slots)
            count = common & -common  # the largest power of two that divides both
            leaves = self._exchange(leaves, first, count)
        self._empty = leaves.new_empty(0)
        self._fill(first, leaves.shape[1])
        for leaf in leaves[: len(range(first, end, count))]:
            self._sum.push(leaf, count, borrowed=True)
        self._sum.keep()
        self._slots, self.taken = end, True

    def _exchange(self, leaves: torch.Tensor, first: int, count: int) -> torch.Tensor:
        """Return the leaves of this rank's part of the shard from all ranks, added ``count`` each.

        These are whole subtrees: slots of a replica follow each other.
        """
        mesh, plan = self._mesh, self._plan
        part = -(-self._elements // mesh.replicas)
        own = first + plan.rank // mesh.shards * mesh.shards
        sent = leaves.new_zeros(mesh.shards // count, mesh.replicas * part)
        for row in range(len(sent)):
            if own + row * count < plan.slots:
                tree = TreeSum()
                for leaf in leaves[row * count : (row + 1) * count]:
                    tree.push(leaf)
                sent[row, : self._elements] = tree.result()
        sent = sent.view(-1, mesh.replicas, part).transpose(0, 1).contiguous()
        received = torch.empty_like(sent)
        plan.peers.wait(
            dist.all_to_all_single(received, sent, group=mesh.group, async_op=True), sent
        )
        return received.view(-1, part)

    def _fill(self, slot: int, elements: int) -> None:
        """Add leaves of +0 up to ``slot``, for micro-steps in which the group was not used."""
        if self._slots < slot:
            zero = self._empty.new_zeros(elements)
            for _ in range(self._slots, slot):
                self._sum.push(zero, borrowed=True)
            self._sum.keep()
            self._slots = slot

    def finish(self, divisor: Fraction) -> torch.Tensor:
        part = -(-self._elements // self._mesh.replicas)
        self._fill(self._plan.slots, part)
        mean = self._sum.mean(divisor)
        if self._mesh.replicas > 1:
            whole = mean.new_empty(self._mesh.replicas * mean.numel())
            work = all_gather(whole, mean, group=self._mesh.group, async_op=True)
            self._plan.peers.wait(work, mean)
            self._sum.recycle(mean)
            mean = whole
        self._restart()
        return mean

    def discard(self) -> None:
        self._sum = TreeSum()
        self._restart()

    def _restart(self) -> None:
        self._input, self._micro_step, self._slots, self.taken = None, None, 0, False
