"""The registered operators, and derive_keys and derive_seeds above them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from helpers.simd import set_simd
from helpers.support import needs_native, run_python, run_script, seeder, snapshot
from hypothesis import given, settings
from hypothesis import strategies as st

import fastseed
from fastseed._backend import derive, native, parts
from fastseed._backend.reference import philox, scalar

SCOPE = scalar.scope_key(42, 1, 7, 0)
NAME = scalar.name_key(SCOPE, scalar.name_words("numpy"))
RANK_WORD = 3 | scalar.DOMAIN_STREAM << 24
TOP = 2**64 - 1
OPS = {"derive_keys": (2,), "derive_seeds": ()}


def reference(function, n, start=0, worker=0, rank=3):
    """The answer, as a tensor."""
    keys = torch.from_numpy(philox.derive_keys(NAME, rank, worker, start, n))
    return keys if function == "derive_keys" else keys[:, 0].contiguous()


def public(function, n, **more):
    """The answer of the library, for the same stream."""
    s = seeder(42, rank=3, world_size=8)
    return getattr(s, function)("numpy", n, task=1, epoch=7, **more)


# ---------------------------------------------------------------- the public functions


@pytest.mark.parametrize("function", OPS)
@pytest.mark.parametrize("n", [0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 63, 64, 65, 1001, 70_001])
def test_derive_equals_the_reference(function, n):
    before = snapshot()
    found = public(function, n)
    assert (found.dtype, tuple(found.shape)) == (torch.uint64, (n, *OPS[function]))
    assert found.is_contiguous() and found.device.type == "cpu"
    assert torch.equal(found, reference(function, n))
    assert snapshot() == before


@pytest.mark.parametrize("function", OPS)
@pytest.mark.parametrize(
    ("start", "worker", "n"),
    [
        (5, 0, 100),
        (2**31 - 50, 0, 100),  # across 32-bit boundaries of the index
        (2**32 - 50, 0, 100),
        (2**40 - 50, 0, 100),
        (2**64 - 100, 0, 100),  # the last that there are
        (TOP, 2**32 - 1, 1),
        (2**64 - 33, 2**32 - 1, 33),
        (0, 1, 17),
        (2**40, 0, 0),
    ],
)
def test_derive_anywhere_in_the_index(function, start, worker, n):
    found = public(function, n, start=start, worker=worker)
    assert torch.equal(found, reference(function, n, start, worker))


def test_derive_row_is_the_key_of_its_index():
    s = seeder(42, rank=3, world_size=8)
    at = {"task": 1, "epoch": 7, "step": 9, "worker": 2}
    keys = s.derive_keys("x", 20, start=1000, **at)
    seeds = s.derive_seeds("x", 20, start=1000, **at)
    for i in range(20):
        lo, hi = keys[i].tolist()
        assert lo | hi << 64 == s.derive_key("x", index=1000 + i, **at)
        assert seeds[i].item() == lo == s.derive_seed("x", index=1000 + i, **at)


@settings(max_examples=40, deadline=None, derandomize=True, database=None)
@given(st.integers(0, 3000), st.integers(0, 3000), st.integers(0, 2**64 - 6000), st.booleans())
def test_derive_of_a_split_range_is_the_whole(a, b, start, keys):
    function = "derive_keys" if keys else "derive_seeds"
    whole = public(function, a + b, start=start)
    assert torch.equal(whole[:a], public(function, a, start=start))
    assert torch.equal(whole[a:], public(function, b, start=start + a))


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_derive_on_any_number_of_threads(threads):
    torch.set_num_threads(threads)
    n = 200_003
    assert torch.equal(public("derive_seeds", n, start=7), reference("derive_seeds", n, 7))


@needs_native
@pytest.mark.parametrize("simd", derive.simd_paths())
def test_derive_on_every_simd_path(simd):
    set_simd(simd)
    for n in (1, 5, 16, 33, 1001):
        for start in (0, 3, 2**32 - 7, 2**64 - 2000):
            for function in OPS:
                found = public(function, n, start=start, worker=1)
                assert torch.equal(found, reference(function, n, start, 1)), (n, start)


def _views(n, tail):
    """Tensors of the right shape with strides of every kind; each with what they are a view of."""
    yield "contiguous", torch.zeros(n, *tail, dtype=torch.uint64)
    yield "every other", torch.zeros(2 * n, *tail, dtype=torch.uint64)[::2]
    yield "offset", torch.zeros(n + 3, *tail, dtype=torch.uint64)[3:]
    if tail:
        yield "transposed", torch.zeros(2, n, dtype=torch.uint64).T
        yield "wide", torch.zeros(n, 5, dtype=torch.uint64)[:, 1:3]
    else:
        yield "a column", torch.zeros(n, 3, dtype=torch.uint64)[:, 1]


@pytest.mark.parametrize("function", OPS)
@pytest.mark.parametrize("n", [0, 1, 1001])
def test_derive_into_out_of_any_strides(function, n):
    expected = reference(function, n, 5)
    for kind, out in _views(n, OPS[function]):
        found = public(function, n, start=5, out=out)
        assert found is out, kind
        assert torch.equal(out, expected), kind


@pytest.mark.parametrize("function", OPS)
def test_derive_into_out_writes_nothing_else(function):
    base = torch.full((64, 4), 7, dtype=torch.uint64)
    out = base[8:40:2, 1:3] if OPS[function] else base[8:40:2, 1]
    public(function, 16, out=out)
    kept = base.clone()
    (kept[8:40:2, 1:3] if OPS[function] else kept[8:40:2, 1]).fill_(7)
    assert (kept == 7).all()
    assert torch.equal(out, reference(function, 16))


@pytest.mark.parametrize("function", OPS)
@pytest.mark.parametrize(
    ("n", "more", "error", "says"),
    [
        (-1, {}, ValueError, "n must be in [0, 1099511627776], got -1"),
        (2.0, {}, TypeError, "n must be an integer, got 2.0 of type float"),
        (True, {}, TypeError, "n must be an integer, got True of type bool"),
        (1, {"start": -1}, ValueError, "start must be in [0, 18446744073709551615], got -1"),
        (0, {"start": 2**64}, ValueError, "start must be in [0, 18446744073709551615], got 184"),
        (2, {"start": 2**64 - 1}, ValueError, "n must be in [0, 1], got 2"),
        (101, {"start": 2**64 - 100}, ValueError, "n must be in [0, 100], got 101"),
        (2**40 + 1, {}, ValueError, "n must be in [0, 1099511627776], got 1099511627777"),
        (4, {"out": [1, 2, 3, 4]}, TypeError, "out must be a tensor, got [1, 2, 3, 4]"),
        (4, {"out": torch.zeros(4)}, TypeError, "out must be of dtype torch.uint64, got torch.fl"),
        (4, {"out": torch.zeros(4, dtype=torch.int64)}, TypeError, "out must be of dtype torch.ui"),
        (4, {"out": torch.zeros(5, 2, dtype=torch.uint64)}, ValueError, "out must be of shape (4,"),
        (4, {"out": torch.zeros(8, dtype=torch.uint64)}, ValueError, "out must be of shape (4,"),
    ],
)
def test_derive_refuses(function, n, more, error, says):
    with pytest.raises(error) as caught:
        public(function, n, **more)
    assert str(caught.value).startswith(f"fastseed.{function}: {says}")
    out = more.get("out")
    assert not isinstance(out, torch.Tensor) or not out.any()


def test_module_functions_equal_the_seeder_ones():
    fastseed.init(42, rank=3, world_size=8)
    at = {"task": 1, "epoch": 7, "start": 3, "worker": 2}
    for function in OPS:
        expected = reference(function, 9, 3, 2)
        assert torch.equal(getattr(fastseed, function)("numpy", 9, **at), expected)
        shared = getattr(fastseed, function)("numpy", 9, rank=fastseed.SHARED, **at)
        assert torch.equal(shared, reference(function, 9, 3, 2, rank=fastseed.SHARED))


# ---------------------------------------------------------------- the operators


def signed(value):
    return value - 2**64 if value >> 63 else value


def arguments(n, tail, start=0, worker=0):
    """Sample inputs of the operators."""
    out = torch.zeros(n, *tail, dtype=torch.uint64)
    return out, signed(NAME[0]), signed(NAME[1]), RANK_WORD, worker, signed(start)


@needs_native
@pytest.mark.parametrize("op", OPS)
def test_opcheck(op):
    inputs = arguments(17, OPS[op], 2**32 - 9)
    found = torch.library.opcheck(getattr(torch.ops.fastseed, op).default, inputs)
    assert set(found.values()) == {"SUCCESS"}


@needs_native
def test_opcheck_advise_huge_pages():
    op = torch.ops.fastseed.advise_huge_pages.default
    for n in (0, 1, 1 << 19):
        out = torch.zeros(n, dtype=torch.uint64)
        assert set(torch.library.opcheck(op, (out,)).values()) == {"SUCCESS"}
        assert not out.any()


@needs_native
@pytest.mark.parametrize("op", OPS)
def test_op_index_wraps_at_64_bits(op):
    inputs = arguments(8, OPS[op], TOP - 3, 2**32 - 1)
    assert inputs[-1] == -4
    getattr(torch.ops.fastseed, op)(*inputs)
    assert torch.equal(inputs[0], reference(op, 8, TOP - 3, 2**32 - 1))
    assert torch.equal(inputs[0][4:], reference(op, 4, 0, 2**32 - 1))


@needs_native
@pytest.mark.slow
def test_op_compiles_into_a_full_graph():
    """In a process of its own, which then has imported Dynamo."""
    found = run_script("compiled_ops.py")
    assert found == {"eager": True, "aot_eager": True}


@needs_native
def test_kernels_binary_has_no_python_symbols():
    """Behind the stable ABI alone, one binary serves every Python and every torch from 2.10."""
    (binary,) = Path(fastseed.__file__).parent.glob(f"{parts.KERNELS}.*so")
    names = set(re.findall(rb"\0(_?Py[A-Z][A-Za-z]*_[A-Za-z]\w*)(?=\0)", binary.read_bytes()))
    assert names == set()
    generators = Path(native.generators.__file__).read_bytes()
    assert re.search(rb"\0_?Py[A-Z][A-Za-z]*_[A-Za-z]\w*\0", generators)


# ---------------------------------------------------------------- where it is called from


@pytest.mark.parametrize("offset", [1, 4, 8, 16])
def test_large_outputs_at_any_address(offset):
    """From 4 MiB on, stores pass the caches by where the address allows it."""
    n = 1 << 20
    buffer = bytearray(8 * n + 64)
    out = torch.frombuffer(buffer, dtype=torch.uint64, offset=offset, count=n)
    s = fastseed.Seeder(42, rank=0, world_size=1)
    s.derive_seeds("a", n, task=1, out=out)
    expected = s.derive_seeds("a", n, task=1).numpy().tobytes()
    assert bytes(buffer[offset : offset + 8 * n]) == expected
    assert not any(buffer[:offset]) and not any(buffer[offset + 8 * n :])


def test_default_device_is_not_in_the_way():
    s = fastseed.Seeder(42, rank=0, world_size=1)
    with torch.device("meta"):
        keys = s.derive_keys("a", 3, task=1)
    assert keys.device.type == "cpu"
    assert torch.equal(keys, s.derive_keys("a", 3, task=1))


def test_seeds_are_right_in_a_compiled_region_for_every_epoch():
    s = fastseed.Seeder(42, rank=0, world_size=1)

    @torch.compile(backend="eager")
    def seeds(epoch):
        return s.derive_seeds("a", 4, task=1, epoch=epoch)

    for epoch in range(4):
        assert torch.equal(seeds(epoch), s.derive_seeds("a", 4, task=1, epoch=epoch))


def test_export_is_refused():
    """An exported program would leave it out."""
    s = fastseed.Seeder(42, rank=0, world_size=1)

    class Model(torch.nn.Module):
        def forward(self, x):
            s.reseed(1)
            return x + 1

    with pytest.raises(RuntimeError, match="must not be called while a model is exported"):
        torch.export.export(Model(), (torch.ones(2),), strict=False)


def test_an_empty_choice_of_backend_is_no_choice():
    code = "import fastseed; print(fastseed.build_info()['backend'])"
    assert run_python("-c", code, FASTSEED_BACKEND="").strip() == derive.backend
