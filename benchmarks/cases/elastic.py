"""Sums of leaves, and what ranks compare at the start."""

from __future__ import annotations

import functools

import torch

from fastseed.debug import digest
from fastseed.elastic import arguments
from fastseed.elastic.tree import TreeSum

from ..case import Case, Contest, Side, expect

SLOTS = 8
LABEL = f"add_ of {SLOTS} leaves"

# As the owner of a piece adds what eight ranks send at once; it only reads these leaves.
PUSH = """
for leaf in leaves:
    tree.push(leaf, borrowed=True)
total = tree.result()
tree.recycle(total)
"""
ADD = """
total.zero_()
for leaf in leaves:
    total.add_(leaf)
"""


def push(size: int, _: str) -> Contest:
    """Add the leaves of a step, against adding each of them to one sum."""
    generator = torch.Generator().manual_seed(1)
    leaves = list(torch.randn(SLOTS, size, generator=generator))
    tree, total = TreeSum(), torch.zeros(size)
    names = {"leaves": leaves, "tree": tree, "total": total}

    def check(side: Side) -> None:
        side.run()
        ours = tree.buffer(leaves[0])  # what the statement has left in the memory it returned
        a, b, c, d, e, f, g, h = leaves
        by_the_rule = ((a + b) + (c + d)) + ((e + f) + (g + h))
        expect(torch.equal(ours, by_the_rule), "the sum by the tree")
        tree.recycle(ours)

    def check_add(side: Side) -> None:
        side.run()
        expect(torch.allclose(total, sum(leaves), rtol=1e-4, atol=1e-4), "the sum in order")

    theirs = Side("add_", ADD, names)
    return Contest(Side("TreeSum", PUSH, names), check, {LABEL: lambda: [theirs]}, check_add)


def compare(size: int, _: str) -> Contest:
    """Describe a model to other ranks, as the first step does, against one digest of it."""
    layers = (torch.nn.Linear(1000, 1000) for _ in range(size // 10**6))
    model = torch.nn.Sequential(*layers)
    theirs = Side("digest", "digest(model)", {"digest": digest, "model": model})

    def check(side: Side) -> None:
        rows = dict(side.run())
        for name, leaf in theirs.run().table.items():
            expect(leaf.hex.startswith(rows[f"parameter {name!r}"]), "the digest of a parameter")

    both = "arguments.describe_model(model) + arguments.describe_values(model)"
    ours = Side("the rows to compare", both, {"arguments": arguments, "model": model})
    return Contest(ours, check, {"debug.digest": lambda: [theirs]})


def cases() -> list[Case]:
    """The rows of this module. ``add_`` moves as many bytes: it clears its sum and adds 8 times,
    and the tree adds 7 times, of which 4 write to other memory than they read."""
    return [
        Case("tree_sum", "1e7", {LABEL: 0.95}, functools.partial(push, 10**7)),
        Case("compare_start", "1e8", {"debug.digest": 0.83}, functools.partial(compare, 10**8)),
    ]
