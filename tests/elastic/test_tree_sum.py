"""The sum of leaves: its bits against the rule written as a recursion, and its memory."""

import collections
import itertools
from fractions import Fraction
from unittest import mock

import numpy as np
import pytest
import torch
import torch.distributed as dist

from fastseed.elastic.collector import SlotPlan
from fastseed.elastic.exchange import Bucket
from fastseed.elastic.tree import TreeSum


def leaves(count, size=200):
    generator = torch.Generator().manual_seed(count)
    scale = 10.0 ** torch.randint(-3, 4, (count, 1), generator=generator)
    return list(torch.randn(count, size, generator=generator) * scale)


def complete(values):
    """The sum of 2**k leaves: of its halves."""
    if len(values) == 1:
        return values[0]
    half = len(values) // 2
    return complete(values[:half]) + complete(values[half:])


def by_the_rule(values):
    """Blocks of the binary digits of the count, the largest first; then from the right."""
    blocks, rest = [], values
    while rest:
        size = 1 << (len(rest).bit_length() - 1)
        blocks.append(complete(rest[:size]))
        rest = rest[size:]
    total = blocks.pop()
    while blocks:
        total = blocks.pop() + total
    return total


def tree_sum(values, borrowed_for=None):
    tree = TreeSum()
    for s, leaf in enumerate(values):
        tree.push(leaf.clone() if borrowed_for is None else leaf, borrowed=bool(borrowed_for))
        if borrowed_for and s % borrowed_for == borrowed_for - 1:
            tree.keep()
    return tree.result()


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 6, 7, 8, 13, 16, 31, 100])
def test_bits_are_those_of_the_rule(count):
    values = leaves(count)
    expected = by_the_rule([leaf.numpy() for leaf in values])
    assert expected.dtype == np.float32
    for borrowed_for in (None, 1, 2, 3, 5):
        assert tree_sum(values, borrowed_for).numpy().tobytes() == expected.tobytes()


def test_borrowed_leaves_are_only_read():
    values = leaves(7)
    before = [leaf.clone() for leaf in values]
    tree_sum(values, 3)
    assert all(torch.equal(*pair) for pair in zip(values, before, strict=True))


def test_at_most_log2_partial_sums_are_kept_and_used_again():
    tree, taken = TreeSum(), []
    for _ in range(3):  # steps
        for leaf in leaves(100, 4):
            memory = tree.buffer(leaf)
            taken.append(memory)
            tree.push(memory.copy_(leaf))
        tree.recycle(tree.result())
    assert len({memory.data_ptr() for memory in taken}) == 7  # of 6 sums and the leaf


@pytest.mark.parametrize("borrowed_for", [1, 2, 3, 5, 8, 400])
def test_memory_is_that_of_the_documented_formula(monkeypatch, borrowed_for):
    taken, take = {}, TreeSum.buffer

    def buffer(tree, like):
        found = take(tree, like)
        taken[found.data_ptr()] = found  # kept, so that no address is used again
        return found

    monkeypatch.setattr(TreeSum, "buffer", buffer)
    for count in (1, 2, 3, 7, 8, 15, 16, 100, 127):
        taken.clear()
        tree_sum(leaves(count, 4), borrowed_for)
        most = (count + 1).bit_length() - 1  # floor(log2(V + 1))
        assert len(taken) <= most
        assert borrowed_for > 1 or len(taken) == most


class Symbols(dict):
    """The number of each sum (a, b), and how often it was added for one element."""

    def __init__(self):
        self.made = collections.Counter()

    def __missing__(self, pair):
        self[pair] = float(1000 + len(self))
        return self[pair]

    def add(self, a, b, *, out):
        pairs = list(zip(a.tolist(), b.tolist(), strict=True))
        self.made.update(pairs)
        out.copy_(torch.tensor([self[pair] for pair in pairs], dtype=a.dtype))


def tree(symbols, slots):
    """The specification: the sum of all slots, and its additions."""
    stack, additions = [], set()

    def merge():
        (b, m), (a, n) = stack.pop(), stack.pop()
        additions.add((a, b))
        stack.append((symbols[a, b], n + m))

    for slot in range(slots):
        stack.append((float(slot), 1))
        while len(stack) > 1 and stack[-1][1] == stack[-2][1]:
            merge()
    while len(stack) > 1:
        merge()
    return stack[0][0], additions


class Network:
    """All-to-all and broadcasts of ranks that run in turn: nothing arrives before all have sent."""

    def __init__(self, ranks):
        self.ranks = ranks
        self.turn = [0] * ranks
        self.posted = {}  # (exchange, rank) -> the parts for each rank
        self.sent = [0] * ranks  # elements, to other ranks
        self.messages = [0] * ranks

    def post(self, rank, parts):
        self.posted[self.turn[rank], rank] = [part.clone() for part in parts]
        others = [part for other, part in enumerate(parts) if other != rank]
        self.sent[rank] += sum(part.numel() for part in others)
        self.messages[rank] += sum(part.numel() > 0 for part in others)
        self.turn[rank] += 1
        return self.turn[rank] - 1

    def all_to_all(self, received, sent, counts, sent_counts, *, group, async_op):
        number = self.post(group, sent.split(sent_counts))

        def arrive():
            parts = [self.posted[number, other][group] for other in range(self.ranks)]
            assert counts == [part.numel() for part in parts]
            received.copy_(torch.cat(parts))

        return arrive

    def broadcast(self, part, *, group, group_src, async_op):
        number = self.post(group, [part] * self.ranks if group == group_src else [])
        return lambda: part.copy_(self.posted[number, group_src][group])

    def wait(self, work, tensor):
        work()


def step(slots, ranks, assignment, size=None):
    """Return what each rank has at the end of a step, the symbols and the network."""
    network, symbols = Network(ranks), Symbols()
    plans = [SlotPlan(slots, rank, ranks, rank, network, assignment) for rank in range(ranks)]
    with (
        mock.patch.object(dist, "all_to_all_single", network.all_to_all),
        mock.patch.object(dist, "broadcast", network.broadcast),
        mock.patch("fastseed.elastic.tree.torch.add", symbols.add),
    ):
        # one element for each rank
        leaf = torch.zeros(ranks if size is None else size, dtype=torch.float64)
        buckets = [Bucket([leaf], plan) for plan in plans]
        for micro_step in range(max(plan.micro_steps for plan in plans)):
            for plan, bucket in zip(plans, buckets, strict=True):
                if micro_step < plan.micro_steps:
                    if (slot := plan.slot(micro_step)) is not None:
                        bucket.write(0, torch.full_like(leaf, slot))
                    bucket.send(micro_step)
        for bucket in buckets:
            bucket.gather(Fraction(1))
        for bucket in buckets:
            bucket.wait()
    network.memory = [elements(bucket) for bucket in buckets]
    return [bucket.view(0).tolist() for bucket in buckets], symbols, network


def elements(bucket):
    """The elements of the memory that a bucket keeps: before the owner's sum, and of that."""
    of_owner = sum(memory.numel() for memory in bucket._sum._free)
    own = [bucket._flat, bucket._outgoing, bucket._received, *bucket._own._free]
    return sum(memory.numel() for memory in own), of_owner


def subtrees(first, end):
    """The closed formula: both sides of the most even number in the block, digit by digit."""
    if first == end:
        return 0
    even = (1 << (first ^ end).bit_length() - 1) * (end >> (first ^ end).bit_length() - 1)
    return (even - first).bit_count() + (end - even).bit_count()


@pytest.mark.parametrize("ranks", range(1, 13))
@pytest.mark.parametrize("assignment", ["blocks", "deal"])
def test_ranks_add_what_the_tree_says(assignment, ranks):
    for slots in range(1, 34):
        found, symbols, network = step(slots, ranks, assignment)
        total, additions = tree(symbols, slots)
        assert found == [[total] * ranks] * ranks
        # each addition of the tree once for each element, on some rank
        assert symbols.made == dict.fromkeys(additions, ranks)
        for rank in range(ranks):
            if assignment == "blocks":
                first, end = rank * slots // ranks, (rank + 1) * slots // ranks
                sums, exchanges = subtrees(first, end), min(1, end - first)
                assert sums <= max(1, 2 * ((end - first).bit_length() - 1))
            else:
                sums = exchanges = len(range(rank, slots, ranks))
            # pieces of one element, and one more for the mean
            assert network.sent[rank] == (sums + 1) * (ranks - 1)
            assert network.messages[rank] == (exchanges + 1) * (ranks - 1)


def test_memory_of_blocks_is_that_of_the_documented_formula():
    for ranks, slots in itertools.product(range(2, 9), range(1, 34)):
        _, _, network = step(slots, ranks, "blocks")
        plans = [SlotPlan(slots, rank, ranks, assignment="blocks") for rank in range(ranks)]
        sums = plans[0].exchange(plans[0].micro_steps - 1)
        for own, (kept, of_owner) in zip(sums, network.memory, strict=True):
            largest = max(1, max(own, default=1).bit_length() - 1)
            copies = len(own) if len(own) > 1 else 0
            assert kept == ranks * (largest + copies) + sum(map(len, sums))
            ends = itertools.accumulate(leaves for of_rank in sums for leaves in of_rank)
            assert of_owner <= max(end.bit_count() for end in ends)


def test_tensors_without_elements_are_leaves_too():
    for ranks, slots in ((1, 3), (2, 5), (3, 8)):
        found, *_ = step(slots, ranks, "blocks", size=0)
        assert found == [[]] * ranks


def test_each_leaf_is_rounded_before_it_is_added():
    leaves = torch.rand(2, 1000, dtype=torch.float64)
    bucket = Bucket([torch.zeros(1000)], SlotPlan(2))
    for slot, leaf in enumerate(leaves):
        bucket.write(0, leaf)
        bucket.send(slot)
    bucket.gather(Fraction(1))
    assert torch.equal(bucket.view(0), leaves[0].float() + leaves[1].float())


def most_sums(slots, ranks):
    plan = SlotPlan(slots, 0, ranks, assignment="blocks")
    return max(map(len, plan.exchange(plan.micro_steps - 1)))


@pytest.mark.parametrize(
    ("per_rank", "sums"), [(1, 1), (2, 1), (4, 1), (8, 1), (3, 2), (5, 3), (6, 2), (7, 3)]
)
def test_traffic_is_that_of_ddp_where_slots_divide_by_a_power_of_two(per_rank, sums):
    """A step sends (sums + 1) pieces, and that of DDP 2."""
    for ranks in range(1, 65):
        assert most_sums(per_rank * ranks, ranks) <= sums
    assert most_sums(per_rank * 8, 8) == sums


def test_every_slot_is_in_one_block():
    for slots in range(1, 40):
        for ranks in range(1, 40):
            blocks = [SlotPlan(slots, r, ranks, assignment="blocks").own for r in range(ranks)]
            assert [slot for block in blocks for slot in block] == list(range(slots))
            assert {len(block) for block in blocks} <= {slots // ranks, -(-slots // ranks)}
