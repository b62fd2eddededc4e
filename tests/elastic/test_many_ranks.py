"""1,024 slots on hundreds of ranks, of which one at a time runs and the others are simulated."""

from unittest import mock

import pytest
import torch
import torch.distributed as dist
from elastic.test_tree_sum import by_the_rule, leaves

from fastseed.elastic.collector import SlotPlan
from fastseed.elastic.exchange import Bucket
from fastseed.elastic.tree import TreeSum

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
