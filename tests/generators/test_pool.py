"""GeneratorPool: the loop over manual_seed bit for bit, and keys of consecutive indices."""

import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from helpers.simd import set_simd
from helpers.support import freed, holds_key, needs_native

import fastseed
from fastseed import GeneratorPool
from fastseed._backend import derive, native
from fastseed.derivation.shared_use import StreamUsers
from fastseed.generators import pool as pool_module

EDGES = [0, 1, -1, 2**31, 2**32 - 1, 2**32, 2**63 - 1, -(2**63), -(2**32), 12345678901234567]


def used(n: int) -> list[torch.Generator]:
    """n generators in the middle of things: positions differ, and normals are cached."""
    generators = [torch.Generator().manual_seed(1000 + i) for i in range(n)]
    for i, generator in enumerate(generators):
        torch.rand(i % 7 + 1, generator=generator)
        torch.randn((), generator=generator, dtype=torch.float64)
        if i % 2:
            torch.randn((), generator=generator)
    return generators


def seeds_for(n: int) -> list[int]:
    return [(EDGES[i % len(EDGES)] + i // len(EDGES)) % 2**64 for i in range(n)]


def states(generators) -> list[bytes]:
    return [g.get_state().numpy().tobytes() for g in generators]


def loop(generators, seeds) -> list[bytes]:
    """The states that the Python loop leaves."""
    for generator, seed in zip(generators, seeds, strict=True):
        generator.manual_seed(seed)
    return states(generators)


# ---------------------------------------------------------------- manual_seed


@pytest.mark.parametrize("n", range(71))
def test_manual_seed_is_the_loop_bit_for_bit(n):
    seeds = seeds_for(n)
    pool = GeneratorPool(used(n), "pool")
    assert pool.reseed_from_seeds(seeds) is None
    assert states(pool) == loop(used(n), seeds)
    assert [g.initial_seed() for g in pool] == seeds


@needs_native
@pytest.mark.parametrize("simd", derive.simd_paths())
def test_manual_seed_on_every_simd_path(simd):
    set_simd(simd)
    for n in (1, 7, 8, 9, 15, 16, 17, 33, 70):
        pool = GeneratorPool(used(n), "pool")
        pool.reseed_from_seeds(seeds_for(n))
        assert states(pool) == loop(used(n), seeds_for(n)), n


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_manual_seed_on_any_number_of_threads(threads):
    torch.set_num_threads(threads)
    pool = GeneratorPool(used(300), "pool")
    pool.reseed_from_seeds(seeds_for(300))
    assert states(pool) == loop(used(300), seeds_for(300))


@pytest.mark.parametrize("threads", [1, 2])
def test_manual_seed_of_duplicates_the_last_wins(threads):
    torch.set_num_threads(threads)
    places = [(i * 7) % 90 for i in range(400)]  # each generator stands there four or five times
    mine, theirs = used(90), used(90)
    for _ in range(20):
        GeneratorPool([mine[i] for i in places], "pool").reseed_from_seeds(range(400))
        loop([theirs[i] for i in places], range(400))
        assert states(mine) == states(theirs)


def _forms():
    values = [5, 0, 2**31 - 1, 77, 3]
    yield "list", values
    yield "tuple", tuple(values)
    yield "range", range(10, 15)
    yield "NumPy integers", [np.int64(v) for v in values]
    for dtype in (np.int32, np.int64, np.uint32, np.uint64):
        yield np.dtype(dtype).name, np.array(values, dtype)
    yield "big-endian", np.array(values, ">i8")
    yield "strided array", np.arange(10, dtype=np.uint64)[::2]
    yield "reversed array", np.arange(5)[::-1]
    for dtype in (torch.int32, torch.int64, torch.uint32, torch.uint64):
        yield str(dtype), torch.tensor(values, dtype=dtype)
    yield "uint8", torch.tensor([0, 1, 2, 254, 255], dtype=torch.uint8)
    yield "strided tensor", torch.arange(10)[::2]
    yield "negative int32", torch.tensor([-1, -2, -3, -4, -5], dtype=torch.int32)
    yield "negative int64", np.array([-1, -(2**63), -3, 4, 5])
    yield "top uint64", np.array([2**64 - 1, 2**63, 1, 2, 3], dtype=np.uint64)


@pytest.mark.parametrize(
    ("form", "seeds"), list(_forms()), ids=lambda v: v if type(v) is str else ""
)
def test_manual_seed_takes_every_form(form, seeds):
    pool = GeneratorPool(used(5), "pool")
    pool.reseed_from_seeds(seeds)
    assert states(pool) == loop(used(5), [int(seed) for seed in seeds])


ZEROS = torch.zeros(3, dtype=torch.int64)


@pytest.mark.parametrize(
    ("seeds", "error", "says"),
    [
        ([1, 2], ValueError, r"seeds must be of shape \(3,\), got \(2,\)"),
        (ZEROS[:, None], ValueError, r"seeds must be of shape \(3,\), got \(3, 1\)"),
        ([1, 2, 2**64], ValueError, r"seeds\[2\] must be in \[.*\], got 18446744073709551616"),
        ([1, -(2**63) - 1, 3], ValueError, r"seeds\[1\] must be in"),
        ([1, True, 3], TypeError, r"seeds\[1\] must be an integer, got True of type bool"),
        ({1, 2, 3}, TypeError, "seeds must be a tensor or a sequence of integers, got"),
        (frozenset({1, 2, 3}), TypeError, "seeds must be a tensor or a sequence of integers, got"),
        (torch.zeros(3), TypeError, "seeds must be integers, got"),
        (ZEROS.to_sparse(), ValueError, "seeds must be strided, got"),
        (ZEROS.to("meta"), ValueError, "seeds must have data, got"),
        (np.zeros(3), TypeError, r"seeds\[0\] must be an integer, got"),
    ],
)
def test_manual_seed_refuses(seeds, error, says):
    pool = GeneratorPool(used(3), "pool")
    before = states(pool)
    with pytest.raises(error, match=r"^fastseed\.GeneratorPool\.reseed_from_seeds: " + says):
        pool.reseed_from_seeds(seeds)
    assert states(pool) == before


# ---------------------------------------------------------------- reseed


@pytest.mark.parametrize("n", [0, 1, 2, 15, 16, 17, 70])
def test_reseed_gives_member_i_the_key_of_index_i(n):
    fastseed.init(42, rank=3, world_size=8)
    pool = GeneratorPool(used(n), name="p")
    pool.reseed(1, 7, 9)
    for i, generator in enumerate(pool):
        assert holds_key(generator, fastseed.derive_key("p", task=1, epoch=7, step=9, index=i)), i


@needs_native
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("simd", derive.simd_paths())
def test_reseed_on_every_path_and_thread_count(simd, threads):
    set_simd(simd)
    torch.set_num_threads(threads)
    fastseed.init(42)
    pool = GeneratorPool(used(200), "pool")
    pool.reseed(1, 7)
    for i in (0, 1, 63, 64, 65, 128, 199):
        assert holds_key(pool[i], fastseed.derive_key("pool", task=1, epoch=7, index=i)), i


def test_reseed_of_duplicates_the_last_wins():
    fastseed.init(42)
    a, b = used(2)
    GeneratorPool([a, b, a, a, b], name="p").reseed(1)
    assert holds_key(a, fastseed.derive_key("p", task=1, index=3))
    assert holds_key(b, fastseed.derive_key("p", task=1, index=4))


@needs_native
def test_without_generators_it_gives_the_same_states(monkeypatch):
    """More of them than one call makes; one twice, and one whose states torch does not make."""
    members = used(150)
    members[149] = members[3]
    expected = GeneratorPool(members, "pool")
    fastseed.init(42, rank=0, world_size=1)
    expected.reseed(1)
    native_states = states(members)
    monkeypatch.setattr(native, "generators", None)
    members = used(150)
    members[149] = members[3]
    pool = GeneratorPool(members, "pool")
    pool._are_mt19937[5] = False
    pool.reseed(1)
    assert states(members)[:5] + states(members)[6:] == native_states[:5] + native_states[6:]
    key = fastseed.derive_key("pool", task=1, index=5)
    assert states(members[5:6]) == states([torch.Generator().manual_seed(key % 2**64)])


def test_without_generators_threads_reseed_pools_of_their_own(monkeypatch):
    monkeypatch.setattr(native, "generators", None)
    fastseed.init(42)
    pools = [GeneratorPool(used(64), name) for name in ("a", "b", "c")]
    wrong: list[tuple[str, int]] = []

    def work(pool):
        for epoch in range(40):
            pool.reseed(1, epoch)
            for i in (0, 63):
                if not holds_key(
                    pool[i], fastseed.derive_key(pool.name, task=1, epoch=epoch, index=i)
                ):
                    wrong.append((pool.name, epoch))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(len(pools)) as executor:
            list(executor.map(work, pools))
    finally:
        sys.setswitchinterval(interval)
    assert not wrong


def test_pool_as_a_sequence():
    generators = used(3)
    pool = GeneratorPool(iter(generators), name="mine")
    assert len(pool) == 3 and pool[1] is generators[1] and pool.name == "mine"
    assert "3 generators" in repr(pool) and "mine" in repr(pool)
    assert len(GeneratorPool([], "pool")) == 0


def test_pool_needs_init():
    pool = GeneratorPool(used(3), "pool")
    with pytest.raises(
        RuntimeError, match=r"^fastseed\.GeneratorPool\.reseed: call fastseed\.init\(\.\.\.\) first"
    ):
        pool.reseed(1)
    pool.reseed_from_seeds([1, 2, 3])


@pytest.mark.costly("threads that draw all the time")
@needs_native
@pytest.mark.timeout(60)
def test_overlapping_pools_in_many_threads_do_not_lock_up():
    """Pools over the same generators in opposite orders, while others draw from them."""
    fastseed.init(42)
    generators = used(64)
    pools = [GeneratorPool(generators, "pool"), GeneratorPool(generators[::-1], "pool")]
    stop, failures = threading.Event(), []

    def guarded(work):
        try:
            while not stop.is_set():
                work()
        except Exception as error:  # pragma: no cover
            failures.append(error)

    works = [lambda p=p: p.reseed_from_seeds(range(64)) for p in pools]
    works += [lambda p=p: p.reseed(1, 1) for p in pools]
    works += [lambda: [torch.rand(50, generator=g) for g in generators]]
    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    stop.wait(1.0)
    stop.set()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert failures == []
    pools[0].reseed_from_seeds(range(64))
    assert states(generators) == loop(used(64), range(64))


@pytest.mark.parametrize("values", [None, freed(torch.zeros(2)), torch.zeros(0)])
def test_what_is_no_sequence_is_refused(values):
    with pytest.raises(TypeError, match=r"fastseed.GeneratorPool: generators must be a sequence"):
        GeneratorPool(values, "pool")
    with pytest.raises(TypeError, match=r"^fastseed.GeneratorPool.reseed_from_seeds: seeds must"):
        GeneratorPool([torch.Generator()], "pool").reseed_from_seeds(values)


def test_a_state_is_of_one_name():
    state = GeneratorPool(used(3), "pool").state_dict()
    with pytest.raises(ValueError, match=r"state\['name'\] must be 'other', got 'pool'"):
        GeneratorPool(used(3), "other").load_state_dict(state)


@pytest.mark.parametrize(
    "change",
    [lambda s: s[1:], lambda s: s.to("meta"), torch.Tensor.to_sparse, freed, torch.zeros_like],
)
def test_states_that_are_invalid_are_refused_and_nothing_changes(change):
    pool = GeneratorPool(used(2), "pool")
    before, state = states(pool), pool.state_dict()
    says = r"^fastseed.GeneratorPool.load_state_dict: state\['states'\] is invalid: "
    with pytest.raises(ValueError, match=says):
        pool.load_state_dict({**state, "states": change(state["states"])})
    assert states(pool) == before


def test_two_pools_of_one_name_warn_once(caplog, monkeypatch):
    monkeypatch.setattr(pool_module, "users", StreamUsers(pool_module.users._message))
    fastseed.init(42, rank=0, world_size=1)
    first, second = GeneratorPool(used(2), "envs"), GeneratorPool(used(2), "envs")
    for pool in (first, first, second, second):
        pool.reseed(0)
    (message,) = caplog.messages
    assert "another pool or bank with the name 'envs' has the same streams" in message


def test_a_worker_cannot_reseed_a_pool(monkeypatch):
    """All workers would draw the same."""
    fastseed.init(42, rank=0, world_size=1)
    pool = GeneratorPool(used(2), "envs")
    before = states(pool)
    monkeypatch.setattr(torch.utils.data, "get_worker_info", lambda: object())
    with pytest.raises(RuntimeError, match=r"^fastseed\.GeneratorPool\.reseed: .* in a DataLoader"):
        pool.reseed(0)
    assert states(pool) == before
    pool.reseed_from_seeds([1, 2])
