"""Sums of leaves, and what ranks compare at the start."""

from __future__ import annotations

import functools

import torch

from fastseed.debug import digest
from fastseed.elastic import arguments
from fastseed.elastic.tree import TreeSum

from ..case import Case, Contest, Side, expect

SLOTS = 8
SIZES = {"1e5": 10**5, "1e6": 10**6, "1e7": 10**7}

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


def push(size: int, threads: int) -> Contest:
    """Add the leaves of a step, against adding each of them to one sum."""
    generator = torch.Generator().manual_seed(1)
    leaves = list(torch.randn(SLOTS, size, generator=generator))
    tree, total = TreeSum(), torch.zeros(size)

    def check(contest: Contest) -> None:
        contest.fastseed.run(), contest.baselines[0].run()
        ours = tree.buffer(leaves[0])  # what the statement has left in the memory it returned
        a, b, c, d, e, f, g, h = leaves
        by_the_rule = ((a + b) + (c + d)) + ((e + f) + (g + h))
        expect(torch.equal(ours, by_the_rule), "the sum by the tree")
        expect(torch.allclose(ours, total, rtol=1e-4, atol=1e-4), "the sum in order")
        tree.recycle(ours)

    names = {"leaves": leaves, "tree": tree, "total": total}
    ours = Side("TreeSum", PUSH, names, threads)
    return Contest(ours, (Side("add_", ADD, names, threads),), check)


def compare(size: int) -> Contest:
    """Describe a model to other ranks, as the first step does, against one digest of it."""
    layers = (torch.nn.Linear(1000, 1000) for _ in range(size // 10**6))
    model = torch.nn.Sequential(*layers)

    def check(contest: Contest) -> None:
        rows = dict(contest.fastseed.run())
        for name, leaf in contest.baselines[0].run().table.items():
            expect(leaf.hex.startswith(rows[f"parameter {name!r}"]), "the digest of a parameter")

    both = "arguments.describe_model(model) + arguments.describe_values(model)"
    ours = Side("the rows to compare", both, {"arguments": arguments, "model": model})
    return Contest(
        ours, (Side("digest", "digest(model)", {"digest": digest, "model": model}),), check
    )


def cases() -> list[Case]:
    """The rows of this module. ``add_`` moves as many bytes: it clears its sum and adds 8 times,
    and the tree adds 7 times, of which 4 write to other memory than they read."""
    return [
        Case(
            f"tree_sum/cpu{'-2t' if threads == 2 else ''}/{label}",
            f"add_ of {SLOTS} leaves",
            0.95,
            functools.partial(push, size, threads),
        )
        for threads in (1, 2)
        for label, size in SIZES.items()
    ] + [
        Case(f"compare_start/cpu/{label}", "debug.digest", 0.83, functools.partial(compare, size))
        for label, size in {"1e7": 10**7, "1e8": 10**8}.items()
    ]
