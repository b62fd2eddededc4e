"""Accelerators' default generators, shown without one: what is queued, who wins, which index."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from helpers.support import LOW64, scramble, seeder, snapshot

import fastseed
from fastseed.derivation import scopes, streams
from fastseed.generators import accelerator as accelerators
from fastseed.generators.accelerator import AcceleratorGenerators, relative_index
from fastseed.seeder import generators as generators_module


def lazy_calls() -> list:
    """Return the calls that torch would run now, if it initialized CUDA."""
    return [call for call in torch.cuda._lazy_seed_tracker.get_calls() if call is not None]


def initialize() -> None:
    """Run the queued calls as torch.cuda._lazy_init does."""
    for callback, _traceback in lazy_calls():
        callback()


@pytest.fixture
def fake_cuda(monkeypatch):
    """A torch built for CUDA, not initialized yet, that will find three devices, 1 the current."""
    tracker = type(torch.cuda._lazy_seed_tracker)()
    monkeypatch.setattr(torch.cuda, "_lazy_seed_tracker", tracker)
    devices = [torch.Generator().manual_seed(900 + i) for i in range(3)]
    monkeypatch.setattr(AcceleratorGenerators, "in_one_call", False)
    monkeypatch.setattr(AcceleratorGenerators, "_default_generators", lambda self: devices)
    monkeypatch.setattr(AcceleratorGenerators, "current_device", lambda self: 1)
    monkeypatch.setattr(generators_module, "compiled_types", lambda: ["cuda"])
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    return devices


def expected(s: fastseed.Seeder, *at: int) -> list[int]:
    """The seeds of ordinals 0, 1, 2, whose relative ordinals are 2, 0, 1."""
    task, epoch, step = (*at, 0, 0)[:3]
    return [
        s.derive_seed("torch.cuda", task=task, epoch=epoch, step=step, index=i) for i in (2, 0, 1)
    ]


def seeds(devices) -> list[int]:
    return [generator.initial_seed() for generator in devices]


def test_relative_index_of_the_own_device_is_zero():
    for count in (1, 2, 8):
        for current in range(count):
            found = [relative_index(ordinal, current, count) for ordinal in range(count)]
            assert found[current] == 0
            assert sorted(found) == list(range(count))
            assert found[(current + 1) % count] == 1 % count


def test_own_device_has_one_stream_whether_it_sees_one_device_or_eight(monkeypatch):
    """A launcher shows each rank its own GPU, or all eight: the same seed either way."""
    monkeypatch.setattr(AcceleratorGenerators, "ready", lambda self: True)
    monkeypatch.setattr(AcceleratorGenerators, "in_one_call", False)
    found = []
    for current, count in ((0, 1), (5, 8)):
        devices = [torch.Generator() for _ in range(count)]
        monkeypatch.setattr(AcceleratorGenerators, "_default_generators", lambda self, d=devices: d)
        monkeypatch.setattr(AcceleratorGenerators, "current_device", lambda self, c=current: c)
        at = scopes.Scope(1, 7, 0)
        AcceleratorGenerators("cuda").reseed(streams.stream(42, at, "torch.cuda", 3))
        found.append(devices[current].initial_seed())
        assert len({g.initial_seed() for g in devices}) == count
    assert found == [0x272F96A925B03F44] * 2


# ---------------------------------------------------------------- before initialization


def test_reseed_queues_and_does_not_initialize(fake_cuda):
    s = seeder()
    s.reseed(1, 2)
    assert seeds(fake_cuda) == [900, 901, 902]
    assert len(lazy_calls()) == 1
    initialize()
    assert seeds(fake_cuda) == expected(s, 1, 2)


def test_the_queue_is_replaced_not_grown(fake_cuda):
    """A CPU job on a CUDA build reseeds for ever and never initializes."""
    s = seeder()
    for epoch in range(1000):
        s.reseed(1, epoch)
    assert len(lazy_calls()) == 1
    assert len(torch.cuda._queued_calls) < 100
    initialize()
    assert seeds(fake_cuda) == expected(s, 1, 999)


# What a job may do around torch's initialization of CUDA, and who seeded devices 0, 1, 2 last. The
# current device is 1.
OURS, ALL, ONE, TORCH, INIT = "ours", "seed all", "seed one", "torch.manual_seed", "initialize"
ORDERS = [
    ((ALL, OURS), (OURS, OURS, OURS)),
    ((OURS, ALL), (ALL, ALL, ALL)),
    ((TORCH, OURS), (OURS, OURS, OURS)),
    ((OURS, TORCH), (TORCH, TORCH, TORCH)),
    ((ONE, OURS), (OURS, OURS, OURS)),
    ((OURS, ONE), (OURS, ONE, OURS)),
    ((ALL, ONE, OURS, ONE), (OURS, ONE, OURS)),
    ((OURS, ALL, ONE), (ALL, ONE, ALL)),
    ((OURS, ALL, OURS), (OURS, OURS, OURS)),
    ((OURS, OURS, INIT), (OURS, OURS, OURS)),
    ((OURS, INIT, OURS), (OURS, OURS, OURS)),
    ((ALL, INIT, OURS), (OURS, OURS, OURS)),
    ((OURS, INIT, ALL), (ALL, ALL, ALL)),
    ((OURS, INIT, ONE), (OURS, ONE, OURS)),
    ((INIT, OURS), (OURS, OURS, OURS)),
]


@pytest.mark.parametrize(("order", "last"), ORDERS, ids=lambda v: "-".join(v).replace(" ", "_"))
def test_whatever_the_order_the_last_seeding_holds(fake_cuda, monkeypatch, order, last):
    """With the functions of torch themselves: only what has no devices here is replaced."""
    monkeypatch.setattr(torch.cuda.random, "device_count", lambda: 3)
    monkeypatch.setattr(torch.cuda.random, "current_device", lambda: 1)
    monkeypatch.setattr(torch.cuda, "default_generators", tuple(fake_cuda))
    s, epochs, theirs = seeder(), 0, {ALL: 7, ONE: 8, TORCH: 9}

    def initialized():
        initialize()
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)

    for what in (*order, *(() if INIT in order else (INIT,))):
        if what == OURS:
            epochs += 1
            s.reseed(1, epochs)
        elif what == INIT:
            initialized()
        else:
            seed = {ALL: torch.cuda.manual_seed_all, ONE: torch.cuda.manual_seed}
            seed.get(what, torch.manual_seed)(theirs[what])
    ours = expected(s, 1, epochs)
    assert seeds(fake_cuda) == [theirs.get(who, ours[i]) for i, who in enumerate(last)]


def test_queueing_needs_no_tracker(fake_cuda, monkeypatch):
    """Other accelerators have only the lazy call; a torch without the tracker still works."""
    queued = []
    monkeypatch.setattr(torch.cuda, "_lazy_seed_tracker", None)
    monkeypatch.setattr(torch.cuda, "_lazy_call", lambda call, **how: queued.append((call, how)))
    s = seeder()
    s.reseed(1, 2)
    s.reseed(1, 3)
    assert all(how == {"seed_all": True} for _, how in queued)
    for call, _ in queued:
        call()
    assert seeds(fake_cuda) == expected(s, 1, 3)


# ---------------------------------------------------------------- once it is initialized


def test_reseed_seeds_every_visible_device(fake_cuda, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    s = seeder(rank=2, world_size=4)
    s.reseed(1, 2, 3)
    assert seeds(fake_cuda) == expected(s, 1, 2, 3)
    assert lazy_calls() == []


def test_reseed_is_refused_while_a_graph_is_captured(fake_cuda, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    s, seen = seeder(), []
    s.register_generator(seen.append)
    s.reseed(1, 1)
    scramble()
    before = snapshot(), seeds(fake_cuda), list(seen)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    with pytest.raises(RuntimeError) as caught:
        s.reseed(1, 2)
    assert str(caught.value).startswith("fastseed.reseed: must not be called while a CUDA graph")
    assert "between replays" in str(caught.value) and "StreamBank" in str(caught.value)
    assert (snapshot(), seeds(fake_cuda), seen) == before and tuple(s.scope) == (1, 1, 0)


def test_a_pool_with_a_cuda_member_is_refused_before_any_has_changed(monkeypatch):
    fastseed.init(42)
    pool = fastseed.GeneratorPool([torch.Generator().manual_seed(i) for i in range(3)], "pool")
    before = pool.state_dict()["states"]
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    pool.reseed(1)  # none of its members is on a GPU
    assert not torch.equal(pool.state_dict()["states"], before)
    monkeypatch.setattr(pool, "_on_cuda", True)
    before = pool.state_dict()["states"]
    for name, call in (
        ("reseed", lambda: pool.reseed(2)),
        ("reseed_from_seeds", lambda: pool.reseed_from_seeds([1, 2, 3])),
    ):
        with pytest.raises(
            RuntimeError, match=f"fastseed.GeneratorPool.{name}: must not .*StreamBank"
        ):
            call()
    assert torch.equal(pool.state_dict()["states"], before)


def test_a_failing_accelerator_is_reported_and_the_rest_is_reseeded(fake_cuda, monkeypatch):
    def fails(self):
        raise RuntimeError("device lost")

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    s, seen = seeder(), []
    s.register_generator(seen.append)
    s.reseed(1, 1)
    clean = snapshot()
    scramble()
    monkeypatch.setattr(AcceleratorGenerators, "_default_generators", fails)
    with pytest.raises(fastseed.ReseedError) as caught:
        s.reseed(1, 1)
    assert list(caught.value.failures) == ["torch.cuda"]
    assert snapshot() == clean and len(seen) == 2 and seen[0] == seen[1]


def test_state_of_devices_is_saved_and_put_back(fake_cuda, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    fastseed.init(42)
    fastseed.reseed(1, 2)
    torch.rand(5, generator=fake_cuda[2])
    state = fastseed.state_dict(rng=True)
    expected_draws = [torch.rand(3, generator=g).tolist() for g in fake_cuda]
    fastseed.load_state_dict(state)
    assert [torch.rand(3, generator=g).tolist() for g in fake_cuda] == expected_draws


# ---------------------------------------------------------------- what is really there


def test_mps_that_is_built_but_not_available_is_left_out(monkeypatch):
    monkeypatch.setattr(torch.backends.mps, "is_built", lambda: True)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: None)
    assert "mps" not in accelerators.compiled_types()
    seeder().reseed(1)


def test_reseed_does_not_initialize_cuda():
    already = torch.cuda.is_initialized()
    seeder().reseed(1)
    assert torch.cuda.is_initialized() == already


@pytest.mark.needs_cuda
def test_cuda_generators_get_their_keys():
    torch.cuda.init()
    s = seeder(rank=3, world_size=8)
    s.reseed(1, 7)
    count, current = torch.cuda.device_count(), torch.cuda.current_device()
    for ordinal in range(count):
        generator = torch.cuda.default_generators[ordinal]
        index = relative_index(ordinal, current, count)
        assert generator.initial_seed() == s.derive_seed("torch.cuda", task=1, epoch=7, index=index)
        assert generator.get_offset() == 0
    first = torch.rand(5, device="cuda")
    s.reseed(1, 7)
    assert torch.equal(first, torch.rand(5, device="cuda"))


@pytest.mark.cuda
def test_cuda_generators_in_a_pool(device):
    fastseed.init(42)
    members = [torch.Generator(device), torch.Generator(), torch.Generator(device)]
    pool = fastseed.GeneratorPool(members, "pool")
    pool.reseed(1)
    keys = [fastseed.derive_key("pool", task=1, index=i) & LOW64 for i in range(3)]
    assert [g.initial_seed() for g in members] == keys
    pool.reseed_from_seeds([5, 6, 7])
    assert [g.initial_seed() for g in members] == [5, 6, 7]


@pytest.mark.needs_cuda
def test_cuda_capture_refuses_and_replays_follow_the_seed():
    s = seeder()
    static = torch.zeros(4, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        with pytest.raises(RuntimeError, match="while a CUDA graph is captured"):
            s.reseed(1)
        static.copy_(torch.rand(4, device="cuda"))
    drawn = []
    for epoch in (1, 2, 1):
        s.reseed(1, epoch)
        graph.replay()
        drawn.append(static.tolist())
    assert drawn[0] == drawn[2] != drawn[1]


@pytest.mark.skipif(torch.cuda.is_available(), reason="nothing is skipped on this machine")
@pytest.mark.parametrize("mark", ["", "cuda", "needs_cuda"])
def test_switch_turns_tests_without_a_cuda_device_into_failures(mark, device, request, monkeypatch):
    conftest = str(Path(__file__).resolve().parents[1] / "conftest.py")
    setup = request.config.pluginmanager.getplugin(conftest).pytest_runtest_setup
    item = SimpleNamespace(get_closest_marker=lambda name: name if name == mark else None)
    monkeypatch.setenv("FAIL_WITHOUT_CUDA", "0")
    if mark == "needs_cuda":
        with pytest.raises(pytest.skip.Exception, match="needs a CUDA device"):
            setup(item)
    else:
        assert setup(item) is None and device == "cpu"
    monkeypatch.setenv("FAIL_WITHOUT_CUDA", "1")
    if mark:
        with pytest.raises(pytest.fail.Exception, match="needs a CUDA device, and FAIL_WITHOUT"):
            setup(item)
    else:
        assert setup(item) is None
