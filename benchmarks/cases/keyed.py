"""What a block of ``random.keyed`` costs, beside torch's own functions outside of one.

A target below 1 says how many times slower than torch a statement may be. What is done in a block
is done a hundred times in it, so that the block itself is no part of the price.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch

import fastseed

from ..case import Case, Contest, Side, expect

N, TIMES = 64, 100
DRAW, ADD = f"found[0] = torch.randn({N})", "found[0] = torch.add(x, x)"


def _repeat(statement: str) -> str:
    return f"for _ in range({TIMES}): {statement}"


def _in_block(statement: str) -> str:
    return f"with keyed('bench', 0):\n    {statement}"


def _is_last_draw(side: Side) -> None:
    """The last draw of the block is that of its number."""
    side.run()
    key = fastseed.derive_key("keyed/bench", index=TIMES - 1)
    wanted = fastseed.random.normal(key, (N,))
    expect(torch.equal(side.names["found"][0], wanted), "the last draw")


def _moves_nothing(side: Side) -> None:
    """The block moves no generator, and one that follows begins anew."""
    before = torch.get_rng_state()
    side.run()
    with fastseed.random.keyed("bench", 0):
        side.names["found"][0] = drawn = torch.randn(N)
    expect(torch.equal(torch.get_rng_state(), before), "torch's generator")
    key = fastseed.derive_key("keyed/bench", index=0)
    expect(torch.equal(drawn, fastseed.random.normal(key, (N,))), "the first draw")


def _adds(side: Side) -> None:
    side.names["found"][0] = None
    side.run()
    expect(torch.equal(side.names["found"][0], torch.full((N,), 2.0)), "a sum")


def block(ours: str, theirs: str, check: Callable[[Side], None], _: str) -> Contest:
    """A block beside the same without."""
    fastseed.init(42, rank=0, world_size=1)
    fastseed.reseed(0)
    names = {
        "torch": torch, "keyed": fastseed.random.keyed, "x": torch.ones(N), "found": [None],
    }  # fmt: skip
    other = Side("torch", theirs, names)
    return Contest(Side("fastseed", ours, names), check, {"torch": lambda: [other]})


def cases() -> list[Case]:
    """The rows of this module."""
    draws, adds = _repeat(DRAW), _repeat(ADD)
    rows = (
        ("keyed.block", "empty", 1 / 6, _in_block("pass"), DRAW, _moves_nothing),
        ("keyed.randn", f"{TIMES}x{N}", 1 / 12, _in_block(draws), draws, _is_last_draw),
        ("keyed.add", f"{TIMES}x{N}", 1 / 2.5, _in_block(adds), adds, _adds),
    )
    return [
        Case(name, size, {"torch": target}, functools.partial(block, ours, theirs, check))
        for name, size, target, ours, theirs, check in rows
    ]
