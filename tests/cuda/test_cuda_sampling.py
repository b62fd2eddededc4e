"""Sampling on a CUDA device gives the bits of the CPU, also in a replayed graph."""

from __future__ import annotations

import pytest
import torch

from fastseed.random import StreamBank
from fastseed.sampling import accept_equal, sample

pytestmark = pytest.mark.cuda
FILTERS = ({}, {"temperature": 0.0}, {"temperature": 0.7, "top_k": 20, "top_p": 0.9, "min_p": 0.01})


def rows(n=5, size=20_000, dtype=torch.float32):
    bank = StreamBank(n, "bank")
    bank.reseed_from_seeds(range(n))
    logits = torch.randn(n, size, generator=torch.Generator().manual_seed(0)) * 3
    return logits.to(dtype), bank.keys, torch.arange(n) * 7


@pytest.mark.parametrize("filters", FILTERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_tokens_are_those_of_the_cpu(filters, dtype, device):
    on_cpu = rows(dtype=dtype)
    on_device = [t.to(device) for t in on_cpu]
    assert torch.equal(sample(*on_device, **filters).cpu(), sample(*on_cpu, **filters))


@pytest.mark.needs_cuda  # on the CPU it is an error: nothing waits
def test_rows_without_a_token_are_minus_one(device):
    logits = torch.full((2, 5), -torch.inf, device=device)
    logits[1, 3] = torch.nan
    assert sample(logits, [1, 2], 0).tolist() == [-1, -1]


def test_verified_tokens_are_those_of_the_cpu(device):
    generator = torch.Generator().manual_seed(1)
    target = torch.randn(4, 4, 500, generator=generator)
    drafted = torch.randint(0, 500, (4, 3), generator=generator)
    keys = rows(4)[1]
    expected = accept_equal(drafted, target, keys, 5)
    found = accept_equal(*(t.to(device) for t in (drafted, target, keys)), 5)
    assert torch.equal(found.tokens.cpu(), expected.tokens)


@pytest.mark.needs_cuda
def test_a_graph_replays_tokens_of_new_positions(device):
    logits, keys, positions = (t.to(device) for t in rows())
    filters = FILTERS[2]
    sample(logits, keys, positions, **filters)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        tokens = sample(logits, keys, positions, **filters)
    for step in range(3):
        positions.fill_(step)
        graph.replay()
        assert torch.equal(tokens, sample(logits, keys, positions, **filters))
