"""What a block of ``random.keyed`` costs, beside torch's own functions outside of one.

A target below 1 says how many times slower than torch a statement may be. What is done in a block
is done a hundred times in it, so that the block itself is no part of the price.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

import fastseed

from ..case import Case, Contest, Side, Unavailable, expect
from . import dropout

N, LARGE, TIMES = 64, 2**20, 100


class _Empty(TorchFunctionMode):
    """A mode that does nothing: what torch asks of every mode."""

    def __torch_function__(
        self, func: Any, types: object, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> object:
        return func(*args, **kwargs) if kwargs else func(*args)


def _names() -> dict[str, Any]:
    fastseed.init(42, rank=0, world_size=1)
    fastseed.reseed(0)
    return {
        "torch": torch,
        "keyed": fastseed.random.keyed,
        "Empty": _Empty,
        "x": torch.ones(N),
        "found": [None],
    }


def _repeat(statement: str) -> str:
    return f"for _ in range({TIMES}): {statement}"


def _in_block(statement: str) -> str:
    return f"with keyed('bench', 0):\n    {statement}"


def _expect_draw(contest: Contest, k: int, size: int) -> None:
    """Draw k of the block was what the statement drew last."""
    contest.fastseed.run()
    key = fastseed.derive_key("keyed/bench", index=k)
    drawn = contest.fastseed.names["found"][0]
    expect(torch.equal(drawn, fastseed.random.normal(key, (size,))), f"draw {k}")


def _expect_empty(contest: Contest) -> None:
    """The block moves no generator, and one that follows begins anew."""
    before = torch.get_rng_state()
    contest.fastseed.run()
    with fastseed.random.keyed("bench", 0):
        contest.fastseed.names["found"][0] = drawn = torch.randn(N)
    expect(torch.equal(torch.get_rng_state(), before), "torch's generator")
    key = fastseed.derive_key("keyed/bench", index=0)
    expect(torch.equal(drawn, fastseed.random.normal(key, (N,))), "the first draw")


def _expect_sum(contest: Contest) -> None:
    """Both sides add."""
    for side in (contest.fastseed, *contest.baselines):
        side.names["found"][0] = None
        side.run()
        expect(torch.equal(side.names["found"][0], torch.full((N,), 2.0)), "a sum")


def _contest(ours: str, theirs: str, check: Callable[[Contest], None]) -> Contest:
    names = _names()
    return Contest(Side("fastseed", ours, names), (Side("torch", theirs, names),), check)


def _against_stateless(ours: str, check: Callable[[Contest], None]) -> Contest:
    """torch's own functions of keys, new in 2.13."""
    try:
        stateless = importlib.import_module("torch.func._random")
        stateless.normal(stateless.key(42), N)
    except (ImportError, NotImplementedError) as error:
        missing = "no such module" if isinstance(error, ImportError) else "no kernel for the CPU"
        raise Unavailable(f"{missing} in torch {torch.__version__}") from None
    theirs = "key = stateless.fold_in(key, 1); found[0] = stateless.normal(key, 64)"
    contest = _contest(ours, _repeat(theirs), check)
    contest.baselines[0].names.update(stateless=stateless, key=stateless.key(42))
    return contest


def _dropout() -> Contest:
    """Forward and backward pass of a large tensor in a block, as ``dropout`` has it outside."""
    contest = dropout.against_torch(torch.float32, torch.get_num_threads())
    theirs = contest.baselines[0]
    names = {**theirs.names, **_names(), "x": theirs.names["x"].detach().clone().requires_grad_()}
    side = Side("fastseed", _in_block(theirs.statement), names, theirs.threads)
    return Contest(side, (theirs,), _expect_mask)


def _expect_mask(contest: Contest) -> None:
    """The gradient has the mask of draw 0."""
    names = contest.fastseed.names
    contest.fastseed.run()
    key = fastseed.derive_key("keyed/bench", index=0)
    mask = fastseed.nn.functional.dropout(names["seed"], names["p"], key)
    expect(torch.equal(names["x"].grad, mask), "the mask of draw 0")


def cases() -> list[Case]:
    """The rows of this module."""
    draw, large = f"found[0] = torch.randn({N})", f"found[0] = torch.randn({LARGE})"
    draws, add = _in_block(_repeat(draw)), _repeat("found[0] = torch.add(x, x)")
    is_last = functools.partial(_expect_draw, k=TIMES - 1, size=N)
    is_first = functools.partial(_expect_draw, k=0, size=LARGE)
    many = f"{TIMES}x{N}"
    return [
        Case("keyed.block/cpu/empty", f"torch: torch.randn({N})", 1 / 6,
             functools.partial(_contest, _in_block("pass"), draw, _expect_empty)),
        Case(f"keyed.randn/cpu/{many}", f"torch: torch.randn({N})", 1 / 12,
             functools.partial(_contest, draws, _repeat(draw), is_last)),
        Case(f"keyed.randn/cpu/{many}", "torch.func._random.normal", None,
             functools.partial(_against_stateless, draws, is_last)),
        Case("keyed.randn/cpu/1048576", "torch: torch.randn(2**20)", 1,
             functools.partial(_contest, _in_block(large), large, is_first)),
        Case(f"keyed.add/cpu/{many}", "torch: torch.add(x, x)", 1 / 2.5,
             functools.partial(_contest, _in_block(add), add, _expect_sum)),
        Case(f"keyed.add/cpu/{many}", "an empty TorchFunctionMode", None,
             functools.partial(_contest, _in_block(add), f"with Empty():\n    {add}", _expect_sum)),
        Case(f"keyed.dropout/cpu/{dropout.SIZE}x{dropout.SIZE}-forward-backward",
             "torch.nn.functional.dropout", 3, _dropout),
    ]  # fmt: skip
