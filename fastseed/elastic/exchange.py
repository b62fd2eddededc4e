"""Leaves of several tensors in one flat buffer, and the exchange of its pieces between ranks."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from fractions import Fraction

import torch
import torch.distributed as dist

from .collector import SlotPlan
from .tree import TreeSum

# torch 2.13 warns about the name that 2.10 has
all_gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)


def leaf_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype in which values of ``dtype`` are added: float64, else float32."""
    return torch.float64 if dtype == torch.float64 else torch.float32


class Bucket:
    """A flat leaf of several tensors of one device and leaf dtype, of which each rank adds a piece.

    A rank adds its own leaves of each subtree that it has whole. The owner of a piece adds these
    sums of all ranks in the order of the slots, and divides once.
    """

    def __init__(self, tensors: Sequence[torch.Tensor], plan: SlotPlan) -> None:
        self._plan = plan
        dense = [torch.empty_like(tensor, device="meta") for tensor in tensors]  # without gaps
        self._shapes = [(tensor.shape, tensor.stride()) for tensor in dense]
        self._offsets = [0]
        for tensor in tensors:
            self._offsets.append(self._offsets[-1] + tensor.numel())
        piece = -(-self._offsets[-1] // plan.ranks)
        dtype = leaf_dtype(tensors[0].dtype)
        self._flat = torch.zeros(piece * plan.ranks, dtype=dtype, device=tensors[0].device)
        self._piece = piece
        self._own, self._leaves = TreeSum(), 0  # of this rank, since its last exchange
        self._sum = TreeSum()  # of the piece of this rank
        # The ends of the subtrees of this rank, in leaves since its last exchange.
        self._ends: list[int] = []
        self._outgoing = self._received = self._flat.new_empty(0)
        if plan.ranks > 1:
            last = plan.exchange(plan.micro_steps - 1)
            most = max(sum(map(len, sums)) for sums in (plan.exchange(0), last))
            self._ends = [*itertools.accumulate(last[plan.rank] or (1,))]
            self._received = self._flat.new_empty(piece * most)
            if len(self._ends) > 1:  # else the sum is sent from where it lies
                self._outgoing = self._flat.new_empty(plan.ranks, len(self._ends), piece)
        self._work: list[dist.Work] = []
        self._arriving: list[int] = []  # leaves of each sum under way, in the order of the slots

    def __len__(self) -> int:
        return len(self._shapes)

    def write(self, index: int, value: torch.Tensor | None) -> None:
        """Write the leaf of a tensor, or add it to the leaf before; None is a leaf of +0."""
        self.receive()
        place = self.view(index)
        if value is None:
            value = place.new_zeros(())
        if self._own.is_half:
            torch.add(place, value.detach().to(place.dtype), out=place)
        else:
            place.copy_(value.detach())

    def view(self, index: int) -> torch.Tensor:
        """Return where the leaf, or after ``wait`` the mean, of a tensor lies in the buffer."""
        shape, strides = self._shapes[index]
        return self._flat.as_strided(shape, strides, self._offsets[index])

    def send(self, micro_step: int) -> None:
        """Add the leaf that was written, if any; begin to give each rank its piece of the sums."""
        plan = self._plan
        self.receive()  # where this rank has no slot, and wrote nothing
        if plan.slot(micro_step) is not None:
            self._add_leaf()
        sums = plan.exchange(micro_step) if plan.ranks > 1 else ()
        if not sums:
            return
        self._arriving = [leaves for of_rank in sums for leaves in of_rank]
        self._leaves = 0
        own, piece = len(sums[plan.rank]), self._piece
        outgoing = self._outgoing.view(-1) if own > 1 else self._flat
        # Under way until ``receive``, which ``write`` calls first: nothing overwrites what is sent.
        work = dist.all_to_all_single(
            self._received[: piece * len(self._arriving)],
            outgoing[: piece * own * plan.ranks],
            [piece * len(of_rank) for of_rank in sums],
            [piece * own] * plan.ranks,
            group=plan.group,
            async_op=True,
        )
        self._work = [work]

    def _add_leaf(self) -> None:
        """Add the leaf to the sum of its subtree, and keep this sum where it is complete."""
        # ``_flat`` is the memory to write next; it has half a pair after an odd number of leaves.
        self._leaves += 1
        is_complete = self._leaves in self._ends
        self._flat = self._own.take(self._flat, is_last=is_complete)
        if is_complete and len(self._ends) > 1:
            number = self._ends.index(self._leaves)
            self._outgoing[:, number] = self._flat.view(self._plan.ranks, self._piece)

    def receive(self) -> None:
        """Wait for what was sent last, and add it; the buffer may then be written again."""
        if not self._work:
            return
        self.wait()
        for i, leaves in enumerate(self._arriving):
            piece = self._received.narrow(0, i * self._piece, self._piece)
            self._sum.push(piece, leaves, borrowed=True)
        self._sum.keep()

    def gather(self, divisor: Fraction) -> None:
        """Divide the sum once, and begin to give every rank the mean."""
        self.receive()
        if self._plan.ranks == 1:
            self._own.take_rest(self._flat)
            self._flat = self._own.mean(divisor)
            return
        mean = self._sum.mean(divisor)
        self._work = start_gather(self._flat, mean, self._plan)
        self._sum.recycle(mean)

    def wait(self) -> None:
        works, self._work = self._work, []
        for work in works:
            self._plan.peers.wait(work, self._flat)

    def discard(self) -> None:
        """Forget all leaves; what another rank still sends goes to memory that nobody reads."""
        self._work = []
        if self._plan.ranks > 1:
            self._flat = torch.zeros_like(self._flat)
            self._received = torch.empty_like(self._received)
            self._outgoing = torch.empty_like(self._outgoing)
        self._leaves = 0
        self._own, self._sum = TreeSum(), TreeSum()  # either may hold the buffer's memory


def start_gather(whole: torch.Tensor, piece: torch.Tensor, plan: SlotPlan) -> list[dist.Work]:
    """Begin to put the pieces of all ranks into ``whole`` on each of them, in their order.

    On the CPU each rank broadcasts its own: as many bytes, without gloo's copies of all pieces.
    """
    if not whole.is_cpu:
        return [all_gather(whole, piece, group=plan.group, async_op=True)]
    pieces = whole.view(plan.ranks, piece.numel())
    pieces[plan.rank] = piece
    return [
        dist.broadcast(part, group=plan.group, group_src=owner, async_op=True)
        for owner, part in enumerate(pieces)
    ]


def make_buckets(
    tensors: Sequence[torch.Tensor], plan: SlotPlan, size: int
) -> tuple[list[Bucket], list[tuple[int, int]]]:
    """Return buckets of at least ``size`` bytes, in about the order in which gradients come.

    Also the place of each tensor: its bucket, and its number in that one.
    """
    groups: list[list[int]] = []
    is_open: dict[tuple[torch.device, torch.dtype], tuple[list[int], int]] = {}
    for i in reversed(range(len(tensors))):
        key = tensors[i].device, leaf_dtype(tensors[i].dtype)
        group, elements = is_open.pop(key, ([], 0))
        if not group:
            groups.append(group)
        group.append(i)
        elements += tensors[i].numel()
        if elements * key[1].itemsize < size:
            is_open[key] = group, elements
    places = {i: (b, at) for b, group in enumerate(groups) for at, i in enumerate(group)}
    buckets = [Bucket([tensors[i] for i in group], plan) for group in groups]
    return buckets, [places[i] for i in range(len(tensors))]


def gather_means(buckets: Sequence[Bucket], divisor: Fraction) -> None:
    """Give every rank the mean of all buckets: the sum of the leaves, divided by ``divisor``."""
    for bucket in buckets:
        bucket.gather(divisor)
    for bucket in buckets:
        bucket.wait()
