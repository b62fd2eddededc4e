"""Streams inside captured CUDA graphs and compiled code, and torch's own generators beside them."""

from __future__ import annotations

import textwrap

import pytest
import torch
from helpers.processes import run_python

import fastseed

pytestmark = pytest.mark.cuda

N, SHAPE = 300, (17,)


def bank_on(device: str) -> fastseed.random.StreamBank:
    bank = fastseed.random.StreamBank(N, "graph", device)
    bank.reseed(1, 0)
    return bank


@pytest.fixture(autouse=True)
def _seeder():
    fastseed.init(42, rank=2, world_size=4)


@pytest.mark.needs_cuda
def test_replays_draw_anew_and_follow_reseeds(device):
    bank, twin = bank_on(device), bank_on("cpu")
    fastseed.random.normal(bank, SHAPE)  # what a first call sets up is no part of the graph
    fastseed.random.randint(bank, (3,), 0, 100)
    bank.reseed(1, 0)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        normals = fastseed.random.normal(bank, SHAPE)
        integers = fastseed.random.randint(bank, (3,), 0, 100)
    for epoch in (0, 1, 0):
        bank.reseed(1, epoch)
        twin.reseed(1, epoch)
        for _ in range(3):
            graph.replay()
            assert torch.equal(normals.cpu(), fastseed.random.normal(twin, SHAPE))
            assert torch.equal(integers.cpu(), fastseed.random.randint(twin, (3,), 0, 100))
            assert torch.equal(bank.positions.cpu(), twin.positions)


@pytest.mark.needs_cuda
def test_a_captured_reseed_follows_reseed(device):
    bank, twin = bank_on(device), bank_on("cpu")
    bank.reseed_from_scope()
    fastseed.random.uniform(bank, SHAPE)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        bank.reseed_from_scope()
        drawn = fastseed.random.uniform(bank, SHAPE)
    for epoch in (3, 4, 3):
        fastseed.reseed(1, epoch)
        twin.reseed(1, epoch)
        graph.replay()
        assert torch.equal(drawn.cpu(), fastseed.random.uniform(twin, SHAPE))


@pytest.mark.needs_cuda
def test_what_a_graph_would_freeze_is_refused_in_a_capture(device):
    bank = bank_on(device)
    pool = fastseed.GeneratorPool([torch.Generator(), torch.Generator(device)], "pool")
    pool.reseed(1)
    before = pool.state_dict()["states"]
    static = torch.zeros(4, device=device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in (
            lambda: bank.reseed(1, 5),
            lambda: pool.reseed(2),
            lambda: pool.reseed_from_seeds([1, 2]),
            lambda: fastseed.reseed(1, 5),
        ):
            with pytest.raises(RuntimeError, match="while a CUDA graph is captured"):
                call()
        static.add_(1)
    graph.replay()
    assert torch.equal(pool.state_dict()["states"], before)


@pytest.mark.slow
def test_compiled_draws_are_the_eager_ones(device):
    bank, twin = bank_on(device), bank_on("cpu")

    @torch.compile(fullgraph=True)
    def step(x: torch.Tensor) -> torch.Tensor:
        return x + fastseed.random.normal(bank, SHAPE)

    for _ in range(3):
        assert torch.equal(
            step(torch.zeros(N, *SHAPE, device=device)).cpu(), fastseed.random.normal(twin, SHAPE)
        )
    assert torch.equal(bank.positions.cpu(), twin.positions)


@pytest.mark.needs_cuda
def test_every_default_generator_has_the_seed_of_its_relative_ordinal(device):
    current, count = torch.cuda.current_device(), torch.cuda.device_count()
    torch.zeros(1, device=device)
    fastseed.reseed(1, 7)
    for i, generator in enumerate(torch.cuda.default_generators):
        index = (i - current) % count
        assert generator.initial_seed() == fastseed.derive_seed(
            "torch.cuda", task=1, epoch=7, index=index
        )
        assert generator.get_offset() == 0
    drawn = torch.rand(5, device=device)
    assert torch.cuda.default_generators[current].get_offset() > 0
    fastseed.reseed(1, 7)
    assert torch.equal(torch.rand(5, device=device), drawn)


@pytest.mark.needs_cuda
def test_a_pool_of_many_generators_on_every_device_is_the_loop(device):
    members = [torch.Generator(f"cuda:{i % torch.cuda.device_count()}") for i in range(3000)] + [
        torch.Generator()
    ]
    pool = fastseed.GeneratorPool(members, name="many")
    pool.reseed(1, 2)
    want = [fastseed.derive_seed("many", task=1, epoch=2, index=i) for i in range(len(members))]
    assert [g.initial_seed() for g in members] == want
    torch.rand(9, device=device, generator=members[0])
    pool.reseed_from_seeds(range(len(members)))
    assert [g.initial_seed() for g in members] == list(range(len(members)))
    assert members[0].get_offset() == 0


@pytest.mark.needs_cuda
def test_a_kernel_that_was_never_launched_is_captured():
    """CUDA loads a kernel when it is launched first; every other test has launched its kernels."""
    code = """
        import torch, fastseed
        keys = fastseed.random.bits(7, (2, 2), dtype=torch.uint64).cuda()
        found, graph = torch.empty(2, 5, device="cuda"), torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found.copy_(fastseed.random.normal(keys, (5,)))
        graph.replay()
        assert torch.equal(found.cpu(), fastseed.random.normal(keys.cpu(), (5,)))
    """
    run_python("-c", textwrap.dedent(code))
