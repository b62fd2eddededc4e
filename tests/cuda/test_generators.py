"""torch's own CUDA generators: before and after initialization, many of them, and in graphs."""

import json
import subprocess
import sys
import threading

import pytest
import torch
from helpers.support import clean_environment

import fastseed

pytestmark = pytest.mark.needs_cuda

# Prints the seeds of all devices and what the current one draws, after the steps of argv[1].
LAZY = """
import json, sys, torch, fastseed

s = fastseed.Seeder(42, rank=3, world_size=8)
steps = {
    "ours": lambda: s.reseed(1, 7),
    "all": lambda: torch.cuda.manual_seed_all(7),
    "one": lambda: torch.cuda.manual_seed(8),
    "torch": lambda: torch.manual_seed(9),
    "initialize": torch.cuda.init,
}
ready = False
for step in sys.argv[1].split():
    steps[step]()
    ready |= step == "initialize"
    assert torch.cuda.is_initialized() == ready, step
    assert ready or not torch._C._cuda_hasPrimaryContext(0), step
drawn = torch.rand(5, device="cuda").tolist()
seeds = [g.initial_seed() for g in torch.cuda.default_generators]
print(json.dumps([seeds, drawn]))
"""
# After these steps the seed of the current device, and of the others: None is ours.
ORDERS = {
    "all ours": (None, None),
    "ours torch one ours ours": (None, None),
    "torch initialize ours": (None, None),
    "ours one": (8, None),
    "ours all": (7, 7),
}


def own_seeds(**at: int) -> list[int]:
    """Return the key of each device, by its ordinal relative to the current one."""
    count, current = torch.cuda.device_count(), torch.cuda.current_device()
    s = fastseed.Seeder(42, rank=3, world_size=8)
    return [s.derive_seed("torch.cuda", **at, index=(i - current) % count) for i in range(count)]


def test_lazy_initialization_ends_with_the_last_seeds():
    """In processes that have not initialized CUDA, all at a time: starting them takes seconds."""
    running = {
        order: subprocess.Popen(
            [sys.executable, "-c", LAZY, order],
            env=clean_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for order in ORDERS
    }
    printed = {order: process.communicate(timeout=120) for order, process in running.items()}
    ours = own_seeds(task=1, epoch=7)
    for order, (current, others) in ORDERS.items():
        assert running[order].returncode == 0, (order, printed[order][1])
        seeds, drawn = json.loads(printed[order][0].splitlines()[-1])
        last = [current if i == 0 else others for i in range(len(ours))]
        for own, seed, found in zip(ours, last, seeds, strict=True):
            assert found == (own if seed is None else seed), order
        generator = torch.Generator("cuda:0").manual_seed(seeds[0])
        assert torch.rand(5, device="cuda:0", generator=generator).tolist() == drawn, order


def test_pool_has_the_states_of_the_loop(device):
    """On every device, with CPU generators between, used ones, and one that stands there twice."""
    places = [*(f"cuda:{i}" for i in range(torch.cuda.device_count())), "cpu"]
    members = [torch.Generator(places[i % len(places)]) for i in range(5000)]
    members.append(members[0])
    for generator in members[:50]:
        torch.rand(3, device=generator.device, generator=generator)
    pool = fastseed.GeneratorPool(members, name="many")
    for seeds in (range(len(members)), [(-i * 2**40 - 1) % 2**64 for i in range(len(members))]):
        pool.reseed_from_seeds(seeds)
        found = pool.state_dict()["states"]
        for generator, seed in zip(members, seeds, strict=True):
            generator.manual_seed(seed)
        assert torch.equal(found, pool.state_dict()["states"])
    for generator in members[:50]:
        torch.rand(3, device=generator.device, generator=generator)
    fastseed.init(42, rank=3, world_size=8)
    pool.reseed(1, 7)
    want = fastseed.derive_seeds("many", len(members), task=1, epoch=7).tolist()
    want[0] = want[-1]
    assert [generator.initial_seed() for generator in members] == want
    assert all(g.get_offset() == 0 for g in members if g.device.type == device)


def test_replays_follow_the_pool_as_eager_draws_do(device):
    fastseed.init(42, rank=3, world_size=8)
    graph = torch.cuda.CUDAGraph()
    generator = torch.Generator(device)
    pool = fastseed.GeneratorPool([generator], "pool")
    graph.register_generator_state(generator)
    torch.rand(100, device=device, generator=generator)
    with torch.cuda.graph(graph):
        drawn = torch.rand(100, device=device, generator=generator)
    for epoch in (1, 2, 1):
        pool.reseed(1, epoch)
        replayed = []
        for _ in range(2):
            graph.replay()
            replayed.append(drawn.clone())
        pool.reseed(1, epoch)
        for values in replayed:
            assert torch.equal(values, torch.rand(100, device=device, generator=generator))


def test_refused_reseed_in_a_capture_changes_nothing_anywhere(device):
    s = fastseed.Seeder(42, rank=3, world_size=8)
    own, called = torch.Generator(device), []
    bank = fastseed.random.StreamBank(3, "bank", device)
    pool = fastseed.GeneratorPool([torch.Generator(), torch.Generator(device)], "pool")
    for name, member in (("f", called.append), ("g", own), ("pool", pool), ("bank", bank)):
        s.register_generator(member, name=name)
    s.reseed(1, 1)
    before = s.state_dict(rng=True)
    kept = torch.zeros(4, device=device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        with pytest.raises(RuntimeError, match=r"fastseed\.reseed: must not .* StreamBank"):
            s.reseed(1, 2)
        kept.add_(1)
    graph.replay()  # the capture was not spoilt
    assert kept.tolist() == [1, 1, 1, 1] and len(called) == 1
    after = s.state_dict(rng=True)
    assert before.keys() == after.keys()
    for name, value in before.items():
        same = torch.equal if isinstance(value, torch.Tensor) else type(value).__eq__
        assert same(value, after[name]), name


def test_reseed_in_another_thread_than_the_captures_holds_from_the_next_replay(device):
    """torch asks for the current stream of the thread that seeds: what it lets through holds."""
    s = fastseed.Seeder(42, rank=3, world_size=8)
    s.reseed(1, 0)
    torch.rand(8, device=device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        drawn = torch.rand(8, device=device)
        thread = threading.Thread(target=s.reseed, args=(1, 7))
        thread.start()
        thread.join()
    graph.replay()
    replayed = drawn.clone()
    s.reseed(1, 7)
    assert torch.equal(replayed, torch.rand(8, device=device))


def test_every_default_generator_has_the_seed_of_its_relative_ordinal(device):
    fastseed.init(42, rank=2, world_size=4)
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
