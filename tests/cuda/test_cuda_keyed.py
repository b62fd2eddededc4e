"""Blocks of ``random.keyed`` on a CUDA device draw what they draw on the CPU."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

import fastseed
from fastseed.random import keyed

pytestmark = pytest.mark.cuda


@pytest.fixture(autouse=True)
def _started(device):
    fastseed.init(42, rank=0, world_size=1)
    torch.zeros(1, device=device)  # reseed writes the scope to devices that are in use
    fastseed.reseed(1, 0, 3)


def draws(device):
    x = torch.ones(33, 65, device=device)
    return [
        torch.randn_like(x),
        torch.rand(1 << 20, device=device, dtype=torch.float64),
        torch.randint(0, 1000, (77,), device=device),
        torch.randperm(1000, device=device),
        torch.bernoulli(x / 3),
        torch.multinomial(x, 5),
        torch.multinomial(x, 5, replacement=True),
        torch.empty(99, device=device).exponential_(),
        torch.empty(99, device=device).geometric_(0.1),
        torch.empty(99, device=device).cauchy_(),
        torch.empty(99, device=device, dtype=torch.float64).log_normal_(),
        torch.normal(x, x),
        functional.dropout(x, 0.3),
        functional.dropout2d(x[None, :, :, None], 0.3),
        functional.alpha_dropout(x, 0.3, training=True) > 0,
    ]


def same(found, expected):
    return all(torch.equal(a.cpu(), b) for a, b in zip(found, expected, strict=True))


def test_the_draws_of_the_cpu(device):
    with keyed("flow", 0, check=True):
        expected = draws("cpu")
    with keyed("flow", 0, check=True):
        assert same(draws(device), expected)


@pytest.mark.slow
def test_compiled(device):
    with keyed("flow", 0):
        expected = draws("cpu")
    compiled = torch.compile(draws, fullgraph=True)
    for step in (3, 4, 3):
        fastseed.reseed(1, 0, step)
        with keyed("flow", 0):
            found = compiled(device)
        assert same(found, expected) == (step == 3)


@pytest.mark.needs_cuda
def test_a_graph_replays_its_draw_in_the_scope_of_the_replay(device):
    def two():
        return torch.randn(99, device=device), functional.dropout(torch.ones(99, device=device))

    with keyed("flow", 0):
        two()
    graph = torch.cuda.CUDAGraph()
    with keyed("flow", 0), torch.cuda.graph(graph):
        found = two()
    for step in (5, 6, 5):
        fastseed.reseed(1, 0, step)
        graph.replay()
        with keyed("flow", 0):
            expected = torch.randn(99), functional.dropout(torch.ones(99))
        assert same(found, expected)
