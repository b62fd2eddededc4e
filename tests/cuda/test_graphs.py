"""Streams inside captured CUDA graphs, and what a graph would freeze."""

import textwrap

import pytest
import torch
from helpers.draws import keys_of
from helpers.operator_calls import bits as raw
from helpers.processes import run_python
from torch.nn import functional

import fastseed
from fastseed.data import ShuffleSampler
from fastseed.random import keyed
from fastseed.sampling import sample

pytestmark = pytest.mark.needs_cuda

N, SHAPE = 300, (17,)


def bank_on(device: str) -> fastseed.random.StreamBank:
    bank = fastseed.random.StreamBank(N, "graph", device)
    bank.reseed(1, 0)
    return bank


@pytest.fixture(autouse=True)
def _started(device):
    fastseed.init(42, rank=2, world_size=4)
    torch.zeros(1, device=device)  # reseed writes the scope to devices that are in use
    fastseed.reseed(1, 0, 3)


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


@pytest.mark.slow
def test_compiled_banks_go_on_as_eager_ones(device):
    """With rows by mask and by index, where compiled code becomes a CUDA graph."""
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

    how = {"fullgraph": True, "mode": "reduce-overhead"}
    compiled = torch.compile(lambda *given: step(banks[0], *given), **how)
    for _ in range(4):
        found = [values.clone() for values in compiled(mask, rows)]
        for here, there in zip(step(banks[1], mask, rows), found, strict=True):
            assert torch.equal(raw(here), raw(there))
        assert torch.equal(banks[0].positions, banks[1].positions)


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
        assert all(map(torch.equal, (t.cpu() for t in found), expected))


def test_a_graph_replays_tokens_of_new_positions(device):
    logits, positions = torch.randn(5, 20_000, device=device) * 3, torch.arange(5, device=device)
    keys, filters = keys_of(5).to(device), {"temperature": 0.7, "top_k": 20, "top_p": 0.9}
    sample(logits, keys, positions, **filters)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        tokens = sample(logits, keys, positions, **filters)
    for step in range(3):
        positions.fill_(step)
        graph.replay()
        assert torch.equal(tokens, sample(logits, keys, positions, **filters))


def test_an_order_is_refused_in_a_capture(device):
    sampler, out = ShuffleSampler(10), torch.empty(10, dtype=torch.int64, device=device)
    sampler.indices(out=out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        with pytest.raises(RuntimeError, match="while a CUDA graph is captured"):
            sampler.indices(out=out)
        out.add_(1)


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
