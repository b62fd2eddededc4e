"""Draws from keys: the values of the specification, and their laws."""

import math

import numpy as np
import pytest
import torch
from helpers.draws import CALLS, REALS, bank_at, each_call, expected, keys_of, words
from helpers.processes import alone
from helpers.support import snapshot

import fastseed
from fastseed.random import distributions


def draw(name, dtype, keys, shape, **more):
    return getattr(fastseed.random, name)(
        keys, shape=shape, **{"dtype": dtype, **CALLS[name, dtype], **more}
    )


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)


SHAPES = [(), (0,), (1,), (7,), (3, 5), (2, 0, 3), (1, 130)]


@pytest.mark.cuda
@each_call
def test_values_are_those_of_the_reference(name, dtype, device):
    """Every number of keys and every shape, paired rather than crossed."""
    before = snapshot()
    for i, shape in enumerate(SHAPES):
        n = (5, 1, 0)[(i + len(name) + dtype.itemsize) % 3]
        keys = keys_of(n)
        found = draw(name, dtype, keys.to(device), shape)
        assert found.device.type == device and found.is_contiguous()
        assert same(found.cpu(), expected(name, dtype, keys, math.prod(shape)).view(n, *shape))
    assert snapshot() == before


@each_call
def test_keys_may_be_integers_or_a_batch_of_any_shape(name, dtype):
    key = 0x81B1E1C0FFEE0DD5_F00DCAFE12345678
    words = torch.tensor([key & 2**64 - 1, key >> 64], dtype=torch.uint64)
    assert same(draw(name, dtype, key, (4,)), draw(name, dtype, words, (4,)))
    keys = keys_of(6)
    found = draw(name, dtype, keys.view(2, 3, 2), (4,))
    assert same(found, draw(name, dtype, keys, (4,)).view(2, 3, 4))


def test_keys_are_what_derive_key_returns():
    fastseed.init(42)
    key = fastseed.derive_key("x", task=0)
    found = fastseed.random.uniform(key, (3,))
    assert same(found, fastseed.random.uniform_(torch.empty(3), key))
    assert same(fastseed.random.uniform(np.uint64(7), (3,)), fastseed.random.uniform(7, (3,)))


@pytest.mark.cuda
@each_call
def test_draw_of_positions(name, dtype, device):
    """Draws begin at the next whole block, anywhere in the stream."""
    positions = torch.tensor([0, 1, 4, 5, 2**34, 2**56 - 64])
    keys = keys_of(6)
    found = draw(name, dtype, bank_at(keys.to(device), positions.to(device)), 9).cpu()
    assert same(found, expected(name, dtype, keys, 9, position=positions))
    assert same(found[1:2], draw(name, dtype, bank_at(keys[1:2], positions[2:3]), 9))


@each_call
def test_draw_is_prefix_stable_and_order_free(name, dtype):
    keys = keys_of(6)
    long = draw(name, dtype, keys, 101)
    order = torch.tensor([4, 0, 5, 2])
    for length in (1, 2, 3, 50):
        short = draw(name, dtype, keys[order].contiguous(), length)
        assert same(short, long[order, :length])
    strided = torch.zeros(6, 4, dtype=torch.uint64)[:, ::2].copy_(keys)
    assert same(draw(name, dtype, strided, 101), long)


@each_call
def test_draw_goes_on_without_sharing_a_word(name, dtype):
    """From the position that a draw of m values leaves, values m (of the next block) follow."""
    keys = keys_of(2)
    size = words(name, dtype)
    long = draw(name, dtype, keys, 48)
    for length in (0, 1, 3, 4, 17):
        blocks = -(-length * size // 4)
        positions = torch.full((2,), 4 * blocks)
        used = blocks * 4 // size
        drawn = draw(name, dtype, bank_at(keys, positions), 20)
        assert same(drawn, long[:, used : used + 20])


def test_default_dtypes():
    keys = keys_of(2)
    assert fastseed.random.uniform(keys, 3).dtype == torch.float32
    assert fastseed.random.bernoulli(keys, 3, 0.5).dtype == torch.bool
    assert fastseed.random.randint(keys, 3, 0, 9).dtype == torch.int64
    assert fastseed.random.bits(keys, 3).dtype == torch.uint32
    torch.set_default_dtype(torch.float64)
    try:
        assert fastseed.random.normal(keys, 3).dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def test_shapes_of_every_form():
    keys = keys_of(2)
    answer = fastseed.random.uniform(keys, (3,))
    for shape in (3, [3], torch.Size([3]), np.int64(3), (np.int32(3),)):
        assert same(fastseed.random.uniform(keys, shape), answer)
    assert fastseed.random.uniform(keys, ()).shape == (2,)


def test_draws_under_other_modes():
    keys = keys_of(2)
    answer = fastseed.random.uniform(keys, 3)
    with torch.inference_mode():
        assert torch.equal(fastseed.random.uniform(keys, 3), answer)
    with torch.device("meta"):
        assert same(fastseed.random.uniform(keys, 3), answer)
    found = fastseed.random.uniform(keys.to("meta"), (3, 4))
    assert (found.device.type, found.shape) == ("meta", (2, 3, 4))


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize(
    ("low", "high"), [(0, 1), (-1, 1), (0.1, 0.7), (-3, 0), (1000, 1009), (-0.3, -0.1), (0, 6e-8)]
)
def test_uniform_stays_below_high(dtype, low, high):
    if dtype == torch.float16 and high == 6e-8:  # rounds to its smallest number
        assert not fastseed.random.uniform(keys_of(9), 200, high=high, dtype=dtype).any()
        return
    found = fastseed.random.uniform(keys_of(9), 2000, low=low, high=high, dtype=dtype)
    rounded = torch.tensor(high, dtype=torch.float64).to(dtype)
    assert (found < rounded).all() and (found >= torch.tensor(low).to(dtype)).all()


def test_uniform_cap_is_hit_and_is_the_number_below():
    for dtype in REALS:
        for high in (1.0, 0.7, -0.1, 0.0, 3.0, 2.0**-20):
            top = torch.tensor(high, dtype=torch.float64).to(dtype)
            cap = distributions.uniform("uniform", dtype, -1, high).parameters[2]
            assert cap == torch.nextafter(top, torch.tensor(-math.inf).to(dtype)).item()


def test_rounding_is_that_of_the_dtype():
    rng = np.random.default_rng(1)
    xs = rng.uniform(-2, 2, 2000) * 2.0 ** rng.integers(-160, 140, 2000)
    edges = [65504, 65519.9, 65520, 2.0**-25, 2.0**-24, 1e308, 3.4028235677973366e38, 5e-324, 0]
    for x in (*xs.tolist(), *edges):
        with np.errstate(over="ignore"):
            assert distributions.rounded(x, torch.float16) == float(np.float64(x).astype("f2"))
            assert distributions.rounded(x, torch.float32) == float(np.float64(x).astype("f4"))
        assert distributions.rounded(x, torch.float64) == x


@pytest.mark.parametrize("p", [0, 1, 0.5, 0.1, 2.0**-33, 3 * 2.0**-33, 1e-300])
def test_bernoulli_threshold_is_rounded_to_even(p):
    (threshold,) = distributions.bernoulli("bernoulli", None, p).parameters
    assert threshold == round(p * 2**32)
    assert {2.0**-33: 0, 3 * 2.0**-33: 2}.get(p, threshold) == threshold


def test_randint_spans_its_range():
    keys = keys_of(4)
    assert fastseed.random.randint(keys, 9, 5, 6).unique().tolist() == [5]
    assert fastseed.random.randint(keys, 4000, 0, 256, dtype=torch.uint8).unique().tolist() == list(
        range(256)
    )
    wide = fastseed.random.randint(keys, 100, -(2**63), 2**63 - 1)
    assert wide.min() < -(2**61) and wide.max() > 2**61
    edge = [fastseed.random.randint(keys, 8, 0, n) for n in (2**32 - 1, 2**32)]
    assert not torch.equal(*edge)


def pure(keys, low, high, n):
    random = fastseed.random
    return (
        *(random.uniform(keys, (n, 3), low=low, high=high, dtype=d) for d in REALS),
        *(random.normal(keys, n, mean=low, std=high, dtype=d) for d in REALS),
        *(random.exponential(keys[0], [2, n], rate=high, dtype=d) for d in REALS),
        *(random.trunc_normal(keys, n, a=low - 3, b=high, dtype=d) for d in REALS),
        *(random.bernoulli(keys, n, low / 10, dtype=d) for d in (torch.bool, torch.uint8)),
        random.randint(keys, (2, n), -n, n + 1),
        random.randint(keys, n, -(2**63), 2**62 + n),
        random.bits(keys, n),
        random.bits(keys, (), dtype=torch.uint64),
    )


def of_bank(bank, indices, mask, low, high, n):
    random = fastseed.random
    return (
        random.uniform(bank, n, low=low, high=high),
        random.normal(bank[indices], (2, 3), mean=low),
        random.bits(bank[mask], n),
        random.randint(bank[mask], 7, 0, n + 9),
        random.exponential(bank, (2, 2), rate=high, dtype=torch.float64),
        random.bernoulli(bank[indices], (), low / 10, dtype=torch.bfloat16),
        random.uniform(bank, ()),
    )


def reseed_and_draw(bank, seeds, indices):
    bank.reseed_from_scope()
    first = fastseed.random.uniform(bank, 3)
    bank.reseed_from_seeds(seeds, indices)
    return first, fastseed.random.normal(bank, 3)


def compiled_beside_eager(device, **options):
    """Yield (what, of eager code, of compiled code), tensors; parameters vary between calls."""
    fastseed.init(42, rank=3, world_size=8)
    keys = fastseed.derive_keys("draws", 3, task=1).to(device)
    rows = torch.tensor([4, 0, 4], device=device), torch.tensor([1, 0, 1, 0, 0], device=device) > 0
    twin = {f: torch.compile(f, **options) for f in (pure, of_bank, reseed_and_draw)}
    parameters = ((0.0, 1.0, 4), (0.1, 0.7, 5), (1, 2, 1))

    def pair_of_banks():
        return [fastseed.random.StreamBank(5, "bank", device) for _ in range(2)]

    for given in parameters:
        yield "pure", pure(keys, *given), twin[pure](keys, *given)
    for given in parameters:
        found, banks = [], pair_of_banks()
        for function, bank in zip((of_bank, twin[of_bank]), banks, strict=True):
            bank.reseed(1, given[2])
            found.append(sum((function(bank, *rows, *given) for _ in range(2)), ()))
            found[-1] += (bank.positions,)
        yield "bank", *found
    for epoch in range(2):
        eager, compiled = pair_of_banks()
        fastseed.reseed(1, epoch)
        given = torch.arange(5, device=device) - 3, torch.arange(5, device=device) + epoch
        of_eager = reseed_and_draw(eager, *given)
        found = twin[reseed_and_draw](compiled, *given)
        yield "reseeds", (*of_eager, eager.keys), (*found, compiled.keys)
        yield "positions", (eager.positions,), (compiled.positions,)
        eager.reseed(1, epoch)
        yield "reseed", (fastseed.random.uniform(eager, 3),), found[:1]


def wrong_in_compiled_code(backend, device):
    """Return what differs, and how many tensors were compared."""
    wrong, compared = [], 0
    # By itself (None) the second size compiles for all sizes, which takes inductor a minute.
    for dynamic in (None,) if backend == "inductor" else (None, True):
        torch._dynamo.reset()
        options = {"fullgraph": True, "backend": backend, "dynamic": dynamic}
        for what, eager, compiled in compiled_beside_eager(device, **options):
            agree = [same(a, b) for a, b in zip(eager, compiled, strict=True)]
            compared += len(agree)
            if not all(agree):
                wrong.append([what, dynamic, agree])
    return wrong, compared


@pytest.mark.cuda
@pytest.mark.slow
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_draws_have_the_eager_bits(backend, device):
    """In a process of its own, which then has imported Dynamo."""
    wrong, compared = alone(wrong_in_compiled_code, backend, device)
    assert wrong == [] and compared > 100


def test_a_compiled_function_has_the_eager_bits():
    """With Dynamo's own backend, which is quick; the slow tests take the others."""
    keys = torch.tensor([[1, 2], [3, 4]], dtype=torch.uint64)

    def sample(keys, scale):
        return fastseed.random.normal(keys, (5,), std=scale)

    compiled = torch.compile(sample, backend="eager", fullgraph=True)
    for scale in (1.0, 0.5):
        assert torch.equal(compiled(keys, scale), sample(keys, scale))
