"""Compiled draws on a CUDA device have the eager bits; so have captured fills and masked rows."""

from __future__ import annotations

import pytest
import torch
from test_cuda_draws import CASES, draw, keys_of, raw

import fastseed

pytestmark = [pytest.mark.cuda, pytest.mark.slow]


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def everything(keys: torch.Tensor) -> list[torch.Tensor]:
    """Every draw in every dtype."""
    return [draw(name, dtype, keys, (3, 7)) for name, dtype in CASES]


def test_compiled_draws_of_every_kind_are_the_eager_ones(device):
    keys = keys_of(11).to(device)
    compiled = torch.compile(everything, fullgraph=True)
    for here, there in zip(everything(keys), compiled(keys), strict=True):
        assert here.dtype == there.dtype and torch.equal(raw(here), raw(there))


@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
def test_compiled_banks_go_on_as_eager_ones(mode, device):
    """With rows by mask and by index; and where compiled code becomes a CUDA graph."""
    banks = [fastseed.random.StreamBank(20, "b", device) for _ in range(2)]
    for bank in banks:
        bank.reseed_from_seeds(range(20))
    mask = torch.arange(20, device=device) % 3 == 0
    rows = torch.tensor([3, 1, 19], device=device)

    def step(bank, mask, rows):
        return (
            fastseed.random.normal(bank, 5),
            fastseed.random.uniform(bank[mask], 3),
            fastseed.random.randint(bank[rows], (4,), 0, 10),
        )

    compiled = torch.compile(lambda *how: step(banks[0], *how), fullgraph=True, mode=mode)
    for _ in range(4):
        found = [values.clone() for values in compiled(mask, rows)]
        for here, there in zip(step(banks[1], mask, rows), found, strict=True):
            assert torch.equal(raw(here), raw(there))
        assert torch.equal(banks[0].positions, banks[1].positions)


def test_compiled_reseeds_and_fills_are_the_eager_ones(device):
    fastseed.init(42, rank=2, world_size=4)
    bank, twin = (fastseed.random.StreamBank(20, "b", device) for _ in range(2))

    @torch.compile(fullgraph=True)
    def step(key, x):
        bank.reseed_from_scope()
        return fastseed.random.uniform(bank, 5), fastseed.random.normal_(x, key, std=0.02)

    for epoch in range(3):
        key = keys_of(3)[epoch].to(device)
        fastseed.reseed(1, epoch)
        drawn, filled = step(key, torch.empty(50, 3, device=device))
        twin.reseed(1, epoch)
        assert torch.equal(raw(drawn), raw(fastseed.random.uniform(twin, 5)))
        want = fastseed.random.normal_(torch.empty(50, 3), key.cpu(), std=0.02)
        assert torch.equal(raw(filled), raw(want))


@pytest.mark.needs_cuda
def test_captured_rows_and_fills_follow_their_tensors(device):
    """A mask, a key and seeds that are written between replays; and state put back in place."""
    bank, twin = (fastseed.random.StreamBank(30, "b", d) for d in (device, "cpu"))
    mask = torch.zeros(30, dtype=torch.bool, device=device)
    seeds = torch.zeros(30, dtype=torch.int64, device=device)
    key, filled = keys_of(1)[0].to(device), torch.zeros(1000, device=device)

    def work():
        bank.reseed_from_seeds(seeds)
        fastseed.random.normal_(filled, key)
        return fastseed.random.normal(bank, 5), fastseed.random.exponential(bank[mask], 4)

    work()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        drawn = work()
    for i in range(3):
        mask.copy_(torch.arange(30) % (i + 2) == 0)
        seeds.copy_(torch.arange(30) * (i + 1))
        key.view(torch.int64).add_(1)
        graph.replay()
        twin.reseed_from_seeds(seeds.cpu())
        assert torch.equal(raw(drawn[0]), raw(fastseed.random.normal(twin, 5)))
        assert torch.equal(raw(drawn[1]), raw(fastseed.random.exponential(twin[mask.cpu()], 4)))
        assert torch.equal(raw(bank.positions), raw(twin.positions))
        assert torch.equal(raw(filled), raw(fastseed.random.normal_(torch.zeros(1000), key.cpu())))


@pytest.mark.needs_cuda
def test_a_registered_bank_follows_fastseed_reseed_between_replays(device):
    fastseed.init(42, rank=2, world_size=4)
    bank, twin = (fastseed.random.StreamBank(30, "bank", d) for d in (device, "cpu"))
    fastseed.register_generator(bank)
    other = fastseed.Seeder(42, rank=2, world_size=4)
    other.register_generator(twin)
    fastseed.reseed(1, 0)
    fastseed.random.uniform(bank, 6)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        drawn = fastseed.random.uniform(bank, 6)
    for epoch in (3, 4, 3):
        fastseed.reseed(1, epoch)
        other.reseed(1, epoch)
        for _ in range(2):
            graph.replay()
            assert torch.equal(raw(drawn), raw(fastseed.random.uniform(twin, 6)))
    state = bank.state_dict()
    graph.replay()
    first = drawn.clone()
    bank.load_state_dict(state)
    graph.replay()
    assert torch.equal(drawn, first)
