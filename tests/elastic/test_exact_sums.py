"""Exact sums depend on the values alone: order, cuts and threads change no bit."""

import functools
import struct
from fractions import Fraction
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from elastic.test_tree_sum import by_the_rule, leaves
from helpers import vectors
from helpers.operators import summands

from fastseed._backend.ops import exact as exact_op
from fastseed._backend.ops.draws import REALS
from fastseed._backend.ops.register import REFERENCES
from fastseed._backend.reference import exact_sum as reference
from fastseed.elastic import sums
from fastseed.elastic.collector import SlotPlan
from fastseed.elastic.exchange import Bucket
from fastseed.elastic.tree import TreeSum

DTYPES = REALS


def total_of(values, factors=(), total=None):
    total = torch.zeros(exact_op.SIZE, dtype=torch.int64) if total is None else total
    torch.ops.fastseed.exact_sum(total, list(values), list(factors))
    return total


def in_numpy(values, factors=()):
    total = torch.zeros(exact_op.SIZE, dtype=torch.int64)
    REFERENCES["exact_sum"](total, list(values), list(factors))
    return total


def fraction_of(total) -> Fraction:
    return Fraction(reference.to_integer(total.numpy()), 2**reference.FRACTION_BITS)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_sum_is_that_of_fractions(dtype):
    for values in summands(dtype, 700).values():
        exact = [Fraction(x) for x in values.double().tolist() if abs(x) < float("inf")]
        assert fraction_of(in_numpy([values])) == sum(exact)
        assert fraction_of(in_numpy([values], [values])) == sum(x * x for x in exact)


@pytest.mark.parametrize("squares", [False, True])
def test_order_cuts_and_threads_change_no_bit(squares):
    values = summands(torch.float32, 300_001)["by steps"]
    expected = total_of([values], [values] if squares else [])
    threads = torch.get_num_threads()
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            shuffled = values[torch.randperm(len(values), generator=torch.Generator())]
            parts = list(shuffled.split([1, 63, 64, 4097, 100_000, 195_776]))
            assert torch.equal(total_of(parts, parts if squares else []), expected)
    finally:
        torch.set_num_threads(threads)
    # and accumulators of parts, added as integers
    totals = [total_of([part], [part] if squares else []) for part in values.chunk(7)]
    assert torch.equal(total_of([], [], torch.stack(totals).sum(0)), expected)


def test_mixed_dtypes_share_an_accumulator():
    parts = [torch.tensor([1.5], dtype=dtype) for dtype in DTYPES]
    assert fraction_of(total_of(parts)) == 6
    assert fraction_of(total_of(parts, parts)) == 9


def test_limbs_of_many_ranks_are_carried():
    """Accumulators of 2**30 ranks are added as integers, in limbs of 64 bits."""
    values = torch.full((1000,), -torch.finfo(torch.float64).max, dtype=torch.float64)
    total = total_of([values], [values])
    many = total.clone()
    many[: reference.LIMBS] *= 2**30
    assert fraction_of(many) == fraction_of(total) * 2**30
    assert fraction_of(total_of([values], [values], many)) == fraction_of(total) * (2**30 + 1)


def test_nothing_and_zeros():
    empty = torch.zeros(0)
    assert not total_of([]).any() and not total_of([empty]).any()
    zeros = total_of([torch.tensor([0.0, -0.0])])
    assert zeros.tolist() == [0] * reference.COUNT + [2]


DTYPES_OF = {"float32": torch.float32, "float64": torch.float64}
rows = functools.partial(vectors.fields_of, "exact_sum")


def bits_of(dtype: str, value: float) -> str:
    return struct.pack({"float32": ">f", "float64": ">d"}[dtype], value).hex()


def test_clipping():
    for dtype, digits, exponent, weight, weight_exponent, expected in rows("mean"):
        power = int(exponent) - int(weight_exponent)
        found = sums.nearest(int(digits, 16), int(weight, 16), power, DTYPES_OF[dtype])
        assert bits_of(dtype, found) == expected


def test_roots():
    for dtype, digits, exponent, expected in rows("root"):
        odd = int(exponent) % 2
        number = int(digits, 16) << odd
        found = sums.square_root(number, int(exponent) - odd, DTYPES_OF[dtype])
        assert bits_of(dtype, found) == expected


@pytest.mark.parametrize("with_factors", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_torchs_operations_give_the_sums_of_the_operator(monkeypatch, dtype, with_factors):
    monkeypatch.setattr(exact_op, "_CHUNK", 1000)
    for kind, values in summands(dtype, 3001).items():
        factors = [values.flip(0)] if with_factors else []
        total = torch.zeros(exact_op.SIZE, dtype=torch.int64)
        exact_op.in_torch(total, [values], factors)
        expected = total_of([values], factors)
        assert fraction_of(total) == fraction_of(expected), kind
        assert torch.equal(total[reference.LIMBS :], expected[reference.LIMBS :])
        limbs = total[: reference.LIMBS - 1]
        assert limbs.min() >= -1 and limbs.max() <= 2**32


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_device_without_the_operator_copies_nothing_to_the_host(monkeypatch, dtype):
    """A copy of a meta tensor raises."""
    monkeypatch.setattr(exact_op, "exact_sum", None)
    tensors = [torch.ones(3, 4, dtype=dtype, device="meta").t(), torch.ones(0, device="meta")]
    for factors in ([], tensors):
        assert sums.accumulate(tensors, factors).device.type == "meta"


SLOTS = 1024
PIECE = 3  # elements of a leaf that a rank owns
TAKE = TreeSum.buffer


class OneRank:
    """The exchange of a bucket on one rank; what the others send is ``leaves``, one a row."""

    def __init__(self, rank, ranks, leaves):
        self.leaves = leaves
        self.plan = SlotPlan(SLOTS, rank, ranks, group=object())
        self.bucket = Bucket([torch.zeros(PIECE * ranks)], self.plan)
        self.micro_step, self.sent, self.buffers = 0, 0, {}

    def all_to_all(self, received, sent, counts, sent_counts, *, group, async_op):
        plan, own = self.plan, slice(PIECE * self.plan.rank, PIECE * (self.plan.rank + 1))
        first = self.micro_step * plan.ranks
        pieces = self.leaves[first : first + plan.ranks, own]
        assert counts == [PIECE] * len(pieces) + [0] * (plan.ranks - len(pieces))
        assert sum(sent_counts) == sent.numel()
        received.copy_(pieces.flatten())
        self.sent += sent.numel() - sent_counts[plan.rank]
        return mock.Mock()

    def buffer(self, tree, like):
        found = TAKE(tree, like)
        self.buffers[found.data_ptr()] = found  # kept, so that no address is used again
        return found

    def step(self):
        """Return this rank's piece of the mean."""
        gathered = []
        plan = self.plan
        with (
            mock.patch.object(dist, "all_to_all_single", self.all_to_all),
            mock.patch.object(TreeSum, "buffer", lambda tree, like: self.buffer(tree, like)),
            mock.patch(
                "fastseed.elastic.exchange.start_gather",
                lambda _, mean, plan: gathered.append(mean.clone()) or [],
            ),
        ):
            for self.micro_step in range(plan.micro_steps):
                if (slot := plan.slot(self.micro_step)) is not None:
                    self.bucket.write(0, self.leaves[slot])
                self.bucket.send(self.micro_step)
            self.bucket.gather(SLOTS)
        return gathered[0]


@pytest.mark.parametrize("ranks", [384, 400, 511, 512])
def test_a_piece_has_the_bits_of_the_recursion(ranks):
    table = torch.stack(leaves(SLOTS, PIECE * ranks))
    expected = by_the_rule(list(table)) / SLOTS
    assert not torch.equal(expected, table.cumsum(0)[-1] / SLOTS)
    for rank in (0, ranks // 2, ranks - 1):
        one = OneRank(rank, ranks, table)
        own = slice(PIECE * rank, PIECE * (rank + 1))
        assert torch.equal(one.step(), expected[own])
        assert len(one.buffers) <= 10  # floor(log2(V + 1)), less than log2 V + 1
        slots = len(range(rank, SLOTS, ranks))
        assert one.sent == slots * PIECE * (ranks - 1)


@pytest.mark.parametrize(
    ("ranks", "micro_steps", "without_a_slot"),
    [(384, 3, 128), (400, 3, 176), (511, 3, 509), (512, 2, 0)],
)
def test_every_slot_is_dealt_once(ranks, micro_steps, without_a_slot):
    plans = [SlotPlan(SLOTS, rank, ranks) for rank in range(ranks)]
    assert {plan.micro_steps for plan in plans} == {micro_steps}
    dealt = [[plan.slot(j) for plan in plans] for j in range(micro_steps)]
    assert [s for row in dealt for s in row if s is not None] == list(range(SLOTS))
    assert [row.count(None) for row in dealt] == [0] * (micro_steps - 1) + [without_a_slot]
    senders = [plans[0].exchange(j).count((1,)) for j in range(micro_steps)]
    assert senders == [ranks - row.count(None) for row in dealt]


WITH_MOMENTUM = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}
CUTS = ([203], [102, 101], [68, 68, 67], [51, 51, 51, 50], [13] * 15 + [8])


def train(kind: str, sizes: list[int], dtype: torch.dtype, **options: object) -> torch.Tensor:
    """Return the values after six steps, with the tensor cut into pieces of ``sizes``."""
    generator = torch.Generator().manual_seed(1)
    value = torch.randn(sum(sizes), generator=generator).to(dtype)
    pieces = [piece.clone().requires_grad_() for piece in value.split(sizes)]
    optimizer = getattr(torch.optim, kind)(pieces, **options)
    for _ in range(6):
        scale = 10 ** torch.randn(sum(sizes), generator=generator)
        gradient = (torch.randn(sum(sizes), generator=generator) * scale).to(dtype)
        for piece, part in zip(pieces, gradient.split(sizes), strict=True):
            piece.grad = part.clone()
        optimizer.step()
    return torch.cat([piece.detach() for piece in pieces])


@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize(
    ("kind", "options"), [("SGD", WITH_MOMENTUM), ("Adam", {}), ("AdamW", {"amsgrad": True})]
)
def test_elementwise_optimizers_do_not_depend_on_shards(kind, options, foreach):
    whole, *cut = (train(kind, sizes, torch.float32, foreach=foreach, **options) for sizes in CUTS)
    assert all(torch.equal(whole, value) for value in cut)


@pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"), reason="no vector loops"
)
def test_fused_adamw_on_the_cpu_depends_on_shards():
    """The limit that the guide states: the last elements of a shard are rounded differently."""
    whole, cut = (
        train("AdamW", sizes, torch.float32, fused=True) for sizes in ([7 * 300], [7] * 300)
    )
    assert 0 < (whole != cut).sum() < 200
