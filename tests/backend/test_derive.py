"""The registered operators, and derive_keys and derive_seeds above them."""

import re
from pathlib import Path

import pytest
import torch
from helpers.support import needs_native, seeder, snapshot

import fastseed
from fastseed._backend import native, parts
from fastseed._backend.reference import philox, scalar

SCOPE = scalar.scope_key(42, 1, 7, 0)
NAME = scalar.name_key(SCOPE, scalar.name_words("numpy"))
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


@pytest.mark.parametrize("function", OPS)
@pytest.mark.parametrize("n", [0, 1, 17, 1001])
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


def _views(n, tail):
    """Memory, and a part of it of the right shape, with strides of every kind."""

    def memory(*shape):
        return torch.full(shape, 7, dtype=torch.uint64)

    whole, wide, far = memory(n, *tail), memory(n, 5), memory(n + 3, *tail)
    yield whole, whole
    yield wide, wide[:, 1:3] if tail else wide[:, 1]
    yield far, far[3:]
    twice = memory(2 * n, *tail)
    yield twice, twice[::2]
    if tail:
        turned = memory(2, n)
        yield turned, turned.T


@pytest.mark.cuda
@pytest.mark.parametrize("function", OPS)
@pytest.mark.parametrize("n", [0, 1, 1001])
def test_derive_into_out_of_any_strides_writes_nothing_else(function, n, device):
    expected = reference(function, n, 5)
    for memory, part in _views(n, OPS[function]):
        part.copy_(expected)
        there = torch.full_like(memory, 7, device=device)
        out = there.as_strided(part.shape, part.stride(), part.storage_offset())
        assert public(function, n, start=5, out=out) is out
        assert torch.equal(there.cpu(), memory)


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


@needs_native
def test_kernels_binary_has_no_python_symbols():
    """Behind the stable ABI alone, one binary serves every Python and every torch from 2.10."""
    (binary,) = Path(fastseed.__file__).parent.glob(f"{parts.KERNELS}.*so")
    names = set(re.findall(rb"\0(_?Py[A-Z][A-Za-z]*_[A-Za-z]\w*)(?=\0)", binary.read_bytes()))
    assert names == set()
    generators = Path(native.generators.__file__).read_bytes()
    assert re.search(rb"\0_?Py[A-Z][A-Za-z]*_[A-Za-z]\w*\0", generators)


def test_default_device_is_not_in_the_way():
    s = fastseed.Seeder(42, rank=0, world_size=1)
    with torch.device("meta"):
        keys = s.derive_keys("a", 3, task=1)
    assert keys.device.type == "cpu"
    assert torch.equal(keys, s.derive_keys("a", 3, task=1))


@pytest.mark.costly("compiles")
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
