"""The sum of leaves: its bits against the rule written as a recursion, and its memory."""

import numpy as np
import pytest
import torch

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


def test_bits_differ_from_those_of_other_orders():
    values = leaves(8)
    total = tree_sum(values)
    assert not torch.equal(total, sum(values[1:], values[0]))
    assert not torch.equal(total, tree_sum(values[1:] + values[:1]))


def ddp_sum(values, ranks):
    """Each rank adds its leaves as they come, and the ranks add their sums in order."""
    own = [sum(values[rank + ranks :: ranks], values[rank]) for rank in range(ranks)]
    return sum(own[1:], own[0])


@pytest.mark.parametrize("count", [8, 64])
@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_error_is_no_greater_than_that_of_ranks_in_order(count, ranks):
    generator = torch.Generator().manual_seed(1)
    values = list(torch.randn(count, 20_000, generator=generator) + 1)
    exact = torch.stack(values).double().sum(0)
    ours, theirs = (
        (found.double() - exact).square().mean().sqrt()
        for found in (tree_sum(values), ddp_sum(values, ranks))
    )
    assert 0 < ours <= (1.02 * theirs if ranks > 1 else theirs)


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
