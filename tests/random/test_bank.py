"""StreamBank: keys of the job's streams, draws that go on, rows that alone advance, its state."""

import math
from concurrent.futures import ThreadPoolExecutor, wait

import numpy as np
import pytest
import torch
from helpers.draws import bank_of
from helpers.support import snapshot

import fastseed
from fastseed.random import StreamBank

LOW64 = 2**64 - 1
ARGUMENTS = {
    "uniform": {"low": -1},
    "normal": {"std": 3},
    "exponential": {"rate": 2},
    "trunc_normal": {"b": 1},
    "bernoulli": {"p": 0.3},
    "randint": {"low": -3, "high": 9},
    "bits": {},
}


def draw(bank, name, shape, **more):
    return getattr(fastseed.random, name)(bank, shape, **ARGUMENTS[name], **more)


DTYPES = [
    *(
        (name, d)
        for name in ("uniform", "normal", "exponential", "trunc_normal")
        for d in (torch.float32, torch.float64)
    ),
    ("uniform", torch.bfloat16),
    ("normal", torch.float16),
    ("bernoulli", torch.bool),
    ("bernoulli", torch.float64),
    ("randint", torch.int64),
    ("bits", torch.uint32),
    ("bits", torch.uint64),
]
each_draw = pytest.mark.parametrize(
    ("name", "dtype"), DTYPES, ids=[f"{n}-{str(d)[6:]}" for n, d in DTYPES]
)


def as_ints(keys):
    return [lo | hi << 64 for lo, hi in keys.tolist()]


def words(dtype, name):
    return 2 if dtype in (torch.float64, torch.uint64) and name != "bernoulli" else 1


# ---------------------------------------------------------------- keys


@pytest.mark.parametrize("n", [0, 1, 2, 33])
def test_reseed_gives_stream_i_the_key_of_index_i(n):
    fastseed.init(42, rank=3, world_size=8)
    before = snapshot()
    bank = StreamBank(n, "b")
    at = {"task": 1, "epoch": 7, "step": 9}
    bank.reseed(**at)
    assert as_ints(bank.keys) == [fastseed.derive_key("b", index=i, **at) for i in range(n)]
    assert bank.positions.tolist() == [0] * n
    assert (bank.keys.dtype, bank.keys.shape) == (torch.uint64, (n, 2))
    assert (bank.positions.dtype, bank.positions.shape) == (torch.int64, (n,))
    assert snapshot() == before


@pytest.mark.parametrize("n", [0, 1, 33])
def test_reseed_from_scope_follows_the_job(n):
    bank, other = bank_of(n), StreamBank(n, "b")
    for at in ((0, 0, 0), (1, 7, 9), (2**24 - 1, 2**32 - 1, 2**64 - 1)):
        if any(at):  # else where init begins
            fastseed.reseed(*at)
        other.reseed_from_scope()
        bank.reseed(*at)
        assert torch.equal(other.keys, bank.keys) and not other.positions.any()


def test_compiled_code_reads_the_scope_at_each_call():
    bank, twin = bank_of(3), StreamBank(3, "b")

    @torch.compile(backend="eager", fullgraph=True)
    def step():
        bank.reseed_from_scope()
        return fastseed.random.uniform(bank, 2)

    for epoch in (3, 4, 3):
        fastseed.reseed(1, epoch)
        twin.reseed(1, epoch)
        assert torch.equal(step(), fastseed.random.uniform(twin, 2))


SEEDS = [0, 1, -1, 2**63, -(2**63)]


@pytest.mark.parametrize("indices", [None, [0, 7, 2**63 - 1, 3, 3]])
def test_reseed_from_seeds_is_another_jobs_key(indices):
    """That of the job whose master seed it is, at its very beginning, shared by all ranks."""
    bank = StreamBank(5, "b")  # without init
    bank.reseed_from_seeds(SEEDS, indices)
    expected = [
        fastseed.Seeder(seed & LOW64, rank=0, world_size=1).derive_key(
            "b", task=0, rank=fastseed.SHARED, index=i
        )
        for seed, i in zip(SEEDS, indices or [0] * 5, strict=True)
    ]
    assert as_ints(bank.keys) == expected


def _forms():
    values = [5, 0, 100, 77, 3]
    yield from (values, tuple(values), [np.int64(v) for v in values], np.array(values, np.uint64))
    yield from (torch.tensor(values, dtype=d) for d in (torch.int8, torch.uint8, torch.int64))
    yield from (torch.tensor(values, dtype=d) for d in (torch.uint16, torch.uint32, torch.uint64))
    yield torch.tensor(values).repeat_interleave(2)[::2]


@pytest.mark.parametrize("seeds", list(_forms()), ids=lambda s: f"{type(s).__name__}")
def test_reseed_from_seeds_of_every_form(seeds):
    bank, other = StreamBank(5, "bank"), StreamBank(5, "bank")
    other.reseed_from_seeds(seeds, seeds)
    bank.reseed_from_seeds([5, 0, 100, 77, 3], [5, 0, 100, 77, 3])
    assert torch.equal(bank.keys, other.keys)


def test_negative_seeds_of_tensors_are_modulo_64_bits():
    bank, other = StreamBank(2, "bank"), StreamBank(2, "bank")
    bank.reseed_from_seeds([2**64 - 1, 2**64 - 5])
    for seeds in (torch.tensor([-1, -5]), torch.tensor([-1, -5], dtype=torch.int8)):
        other.reseed_from_seeds(seeds)
        assert torch.equal(bank.keys, other.keys)


def test_a_reseed_writes_in_place_and_starts_anew():
    bank = bank_of(4)
    where = bank.keys.data_ptr(), bank.positions.data_ptr()
    state = bank.state_dict()
    fastseed.reseed(1, 7, 9)
    first = fastseed.random.uniform(bank, 5)
    for again in (
        lambda: bank.reseed(1, 7, 9),
        bank.reseed_from_scope,
        lambda: bank.load_state_dict(state),
    ):
        fastseed.random.normal(bank, 2)
        again()
        assert torch.equal(fastseed.random.uniform(bank, 5), first)
    bank.reseed_from_seeds(range(4))
    assert not torch.equal(fastseed.random.uniform(bank, 5), first)
    assert (bank.keys.data_ptr(), bank.positions.data_ptr()) == where


def test_banks_are_prefix_stable():
    long, short = bank_of(40), bank_of(13)
    assert torch.equal(fastseed.random.normal(long, 5)[:13], fastseed.random.normal(short, 5))


@each_draw
def test_values_are_those_of_the_keys_and_positions_advance(name, dtype):
    n = (5, 1, 0)[DTYPES.index((name, dtype)) % 3]
    bank, before = bank_of(n), snapshot()
    at = 0
    for shape in ((3,), (), (0,), (2, 0), (5, 3), (1,)):
        found = draw(bank, name, shape, dtype=dtype)
        count, size = math.prod(shape), words(dtype, name)
        first = at // size
        expected = draw(bank.keys, name, first + count, dtype=dtype)[:, first:]
        assert found.dtype == dtype and found.shape == (n, *shape)
        assert torch.equal(found, expected.reshape(n, *shape))
        at += -(-count * size // 4) * 4
        assert bank.positions.tolist() == [at] * n
    assert snapshot() == before


def test_all_draws_of_a_stream_are_one_stream_of_words():
    bank = bank_of(3)
    whole = fastseed.random.bits(bank.keys, 16)
    parts = [
        fastseed.random.bits(bank, 3),
        fastseed.random.bits(bank, (), dtype=torch.uint64),
        fastseed.random.bits(bank, 5),
    ]
    assert torch.equal(parts[0], whole[:, :3])
    assert torch.equal(parts[1].view(torch.uint32).view(3, 2), whole[:, 4:6])
    assert torch.equal(parts[2], whole[:, 8:13])
    assert bank.positions.tolist() == [16, 16, 16]


# ---------------------------------------------------------------- rows


@pytest.mark.cuda
@each_draw
def test_rows_by_index_draw_and_advance_alone(name, dtype, device):
    bank, other = bank_of(6, device=device), bank_of(6)
    for i, rows in enumerate([[], [0], [4, 1], [2, 2, 0, 2], [5, 4, 3, 2, 1, 0]]):
        index = torch.int32 if (i + DTYPES.index((name, dtype))) % 2 else torch.int64
        bank.reseed(1, 7, 9)
        other.reseed(1, 7, 9)
        before = bank.positions.clone()
        full = draw(other, name, 3, dtype=dtype)
        chosen = torch.tensor(rows, dtype=index, device=device)
        found = draw(bank[chosen], name, 3, dtype=dtype)
        assert torch.equal(found.cpu(), full[torch.tensor(rows, dtype=torch.int64)])
        moved = (bank.positions - before).tolist()
        step = 4 * words(dtype, name)
        assert moved == [step if i in rows else 0 for i in range(6)], (
            "once, however often it stands"
        )


@pytest.mark.cuda
@each_draw
def test_rows_by_mask_draw_and_advance_alone(name, dtype, device):
    bank, other = bank_of(6, device=device), bank_of(6)
    masks = [], [3], [0, 2, 5], range(6)
    for where, shape in zip(masks, ((3,), (), (2, 5), (3,)), strict=True):
        mask = torch.zeros(6, dtype=torch.bool)
        mask[list(where)] = True
        bank.reseed(1, 7, 9)
        other.reseed(1, 7, 9)
        before = bank.positions.cpu()
        found = draw(bank[mask.to(device)], name, shape, dtype=dtype).cpu()
        full = draw(other, name, shape, dtype=dtype)
        assert found.shape == full.shape
        for i in range(6):
            assert torch.equal(found[i], full[i] if mask[i] else torch.zeros_like(full[i]))
        assert torch.equal(bank.positions.cpu(), torch.where(mask, other.positions, before))


def test_rows_depend_on_nothing_but_their_own_stream():
    """A stream that joined others at other times draws what it draws alone."""
    bank, alone = bank_of(4), bank_of(4)
    for i in range(4):
        fastseed.random.uniform(bank[torch.tensor([i, (i + 1) % 4])], i + 1)
    fastseed.random.uniform(alone[torch.tensor([0])], 1)
    fastseed.random.uniform(alone[torch.tensor([0])], 4)
    index = torch.tensor([0])
    assert torch.equal(
        fastseed.random.normal(bank[index], 5), fastseed.random.normal(alone[index], 5)
    )


@pytest.mark.parametrize(
    "draw",
    [
        lambda bank: fastseed.random.normal(bank, 64),
        lambda bank: fastseed.sampling.sample(torch.zeros(64, 2**12), bank),
    ],
    ids=["normal", "sample"],
)
def test_threads_draw_different_numbers(draw):
    bank = bank_of(64)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: draw(bank).numpy().tobytes(), range(200)))
    assert len(set(found)) == len(found)
    with ThreadPoolExecutor(1) as other, bank._lock:  # held while a bank draws
        waiting = other.submit(draw, bank)
        assert wait([waiting], 0.05).not_done
        draw(bank)  # the same thread goes on, as in a finalizer
    waiting.result(10)


@pytest.mark.parametrize("randomness", ["error", "different"])
def test_vmap_is_refused_where_examples_would_draw_the_same(randomness):
    bank = bank_of(1)

    def add(x):
        return x + fastseed.random.normal(bank, 3)[0]

    with pytest.raises(RuntimeError, match=r"random\.normal: .* torch\.vmap, which"):
        torch.vmap(add, randomness=randomness)(torch.zeros(4, 3))
    assert bank.positions.tolist() == [0]
    same = torch.vmap(add, randomness="same")(torch.zeros(4, 3))
    assert torch.equal(same, same[:1].expand(4, 3))
