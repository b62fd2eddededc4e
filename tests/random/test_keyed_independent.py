"""An independent program, written from the specification, reproduces the draws of a block."""

import sys

import pytest
import torch
from helpers.paths import VECTORS
from torch.nn import functional

import fastseed
from fastseed.random import keyed

sys.path.insert(0, str(VECTORS))

import block_draws

N = 67
P = torch.rand(N, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
F64 = {"dtype": torch.float64}
PLACES = [
    block_draws.Block(42, 1, 7, 3, 0, "flow", 0),
    block_draws.Block(2**64 - 1, 2**24 - 1, 2**32 - 1, 2**40 + 5, 3, "\u03b1/\u03b2", 2**39 - 1),
]


def drawn():
    """What torch's functions return in the block, in order."""
    return [
        torch.rand(N),
        torch.empty(N, **F64).uniform_(**{"from": -3, "to": 2}),
        torch.randn(N, dtype=torch.float16),
        torch.empty(N).normal_(1.5, 0.25),
        torch.randn(N, **F64),
        torch.randint(-3, 1000, (N,)),
        torch.randint(-(2**62), 2**62 + 1, (N,)),
        torch.bernoulli(P),
        torch.zeros(N).bernoulli_(0.3),
        functional.dropout(torch.ones(N), 0.1),
        functional.dropout2d(torch.ones(5, 3, 2, 2), 0.5).flatten(),
        torch.empty(N).geometric_(0.3),
        torch.empty(N, **F64).cauchy_(1.0, 2.0),
        torch.randperm(N),
    ]


def specified(block):
    """The same by the independent program."""
    at = [block.draw(k, N) for k in range(14)]
    program = block_draws
    return [
        program.uniform(at[0], "float32", 0.0, 1.0),
        program.uniform(at[1], "float64", -3.0, 2.0),
        program.normal(at[2], "float16", 0.0, 1.0),
        program.normal(at[3], "float32", 1.5, 0.25),
        program.normal(at[4], "float64", 0.0, 1.0),
        program.randint(at[5], -3, 1000),
        program.randint(at[6], -(2**62), 2**62 + 1),
        program.bernoulli(at[7], P.tolist()),
        program.bernoulli(at[8], [0.3] * N),
        program.dropout(at[9], 0.1),
        program.channels(at[10]._replace(count=15), 0.5, 4),
        program.geometric(at[11], 0.3),
        program.cauchy(at[12], 1.0, 2.0),
        program.randperm(at[13], N),
    ]


@pytest.mark.parametrize("block", PLACES, ids=["first", "last"])
def test_a_block_draws_what_the_specification_says(block):
    fastseed.init(block.master, rank=block.rank, world_size=4)
    fastseed.reseed(block.task, block.epoch, block.step)
    with keyed(block.name, block.index):
        found = drawn()
    for k, (tensor, values) in enumerate(zip(found, specified(block), strict=True)):
        is_real = tensor.is_floating_point()
        expected = torch.tensor(
            [float(v) if is_real else int(v) for v in values],
            dtype=torch.float64 if is_real else torch.int64,
        )
        assert torch.equal(tensor, expected.to(tensor.dtype)), (k, tensor, expected)
