"""Known answers of dropout, on the NumPy reference and every SIMD path."""

from __future__ import annotations

import functools
import struct

import pytest
import torch
from helpers import vectors
from helpers.simd import set_simd
from helpers.support import needs_native

import fastseed
from fastseed._backend import derive
from fastseed._backend.ops.register import REFERENCES
from fastseed._backend.reference import scalar
from fastseed.derivation import streams
from fastseed.nn.dropout import rows as scope_blocks
from fastseed.nn.dropout import scope as layer_scope
from fastseed.random import dropout

KINDS = {"mask": 60, "value": 300, "layer": 100, "p": 10, "block": 100}
DTYPES = {
    "float16": (torch.float16, torch.uint16),
    "bfloat16": (torch.bfloat16, torch.uint16),
    "float32": (torch.float32, torch.uint32),
    "float64": (torch.float64, torch.uint64),
}
rows = functools.partial(vectors.fields_of, "dropout")


@pytest.fixture(params=("reference", *derive.simd_paths()))
def ops(request):
    """The operators of a backend."""
    if request.param == "reference":
        return REFERENCES["dropout"], REFERENCES["layer_key"]
    set_simd(request.param)
    return torch.ops.fastseed.dropout.default, torch.ops.fastseed.layer_key.default


def key_tensor(*words: int) -> torch.Tensor:
    return torch.tensor([words], dtype=torch.uint64)


def test_vectors_are_frozen():
    vectors.check_file("dropout", KINDS)


def test_masks(ops):
    dropout, _ = ops
    for lo, hi, first, threshold, count, expected in rows("mask"):
        ones = torch.ones(int(count))
        key = key_tensor(int(lo, 16), int(hi, 16))
        at = ([], [], int(first), int(threshold))
        found = "".join(str(int(bit)) for bit in dropout(ones, key, *at) != 0)
        assert found == expected, (lo, hi, first, threshold)
        # the first index as a word of the key, and elements apart from each other
        key = key_tensor(int(lo, 16), int(hi, 16), int(first))
        found = "".join(
            str(int(dropout(ones[:1], key, [], [], i, int(threshold)).item() != 0))
            for i in range(int(count))
        )
        assert found == expected, (lo, hi, first, threshold)


def test_values(ops):
    dropout, _ = ops
    for name, (dtype, integers) in DTYPES.items():
        for _, threshold, element, expected in (r for r in rows("value") if r[0] == name):
            width = dtype.itemsize * 8
            bits = int(element, 16)
            bits = torch.tensor([bits - (bits >> width - 1 << width)]).to(
                {16: torch.int16, 32: torch.int32, 64: torch.int64}[width]
            )
            given = bits.view(dtype).expand(64).contiguous()
            found = dropout(given, key_tensor(1, 2), [], [], 0, int(threshold))
            stays = dropout(torch.ones(64), key_tensor(1, 2), [], [], 0, int(threshold)) != 0
            assert stays.any() or int(threshold) > 60000
            for i, value in enumerate(found.view(integers).tolist()):
                assert value == (int(expected, 16) if stays[i] else 0), (name, threshold, element)


def test_keys_of_layers(ops):
    _, layer_key = ops
    for *at, name, label, row, elements, lo, hi, first in rows("layer"):
        master, task, epoch, step = map(int, at)
        scope = torch.tensor(derive.scope_key(master, task, epoch, step), dtype=torch.uint64)
        words = layer_scope.LayerName(name).words
        index = 0 if label == "-" else scope_blocks.label(label).value
        out = torch.empty(3, dtype=torch.uint64)
        layer_key(
            out, scope, torch.tensor([int(row)]), *words, index, 0, int(elements), fastseed.SHARED
        )
        assert out.tolist() == [int(lo, 16), int(hi, 16), int(first, 16)], (name, label, row)
        fastseed.init(master, rank=0, world_size=1)
        key = fastseed.derive_key(
            f"dropout/{name}", task=task, epoch=epoch, step=step, rank=fastseed.SHARED, index=index
        )
        assert key == int(lo, 16) | int(hi, 16) << 64


def test_keys_of_draws_of_blocks(ops):
    _, layer_key = ops
    for *at, name, index, step, rank, count, lo, hi in rows("block"):
        scope = torch.tensor(derive.scope_key(*map(int, at)), dtype=torch.uint64)
        low, high = map(scalar.signed, streams.name_words(f"keyed/{name}"))
        out, number = torch.empty(3, dtype=torch.uint64), torch.tensor([int(count)])
        first, by = scalar.signed(int(index)), int(step)
        layer_key(out, scope, number, low, high, first, by, 0, int(rank))
        assert out.tolist() == [int(lo, 16), int(hi, 16), 0], (name, index, count)


def test_thresholds():
    for bits, threshold in rows("p"):
        p = struct.unpack(">d", bytes.fromhex(bits))[0]
        assert dropout.threshold_of(p) == int(threshold), p


@pytest.mark.parametrize("dtype", DTYPES)
def test_index_after_the_last_is_0(ops, dtype):
    dropout, _ = ops
    last = 2**64 - 1
    x = torch.randn(6000).to(DTYPES[dtype][0])
    for before in (0, 6, 7, 8, 4095, 4096, 5000):
        found = dropout(x, key_tensor(3, 4, last - before), [], [], 0, 30000)
        parts = [
            dropout(x[i : i + 1], key_tensor(3, 4, (last - before + i) % 2**64), [], [], 0, 30000)
            for i in range(before - 2 if before > 2 else 0, before + 4)
        ]
        assert torch.equal(found[max(before - 2, 0) :][: len(parts)], torch.cat(parts))
        after = dropout(x[before + 1 :], key_tensor(3, 4), [], [], 0, 30000)
        assert torch.equal(found[before + 1 :], after)


@pytest.mark.parametrize("dtype", DTYPES)
def test_elements_along_a_stride_of_0_have_one_number(ops, dtype):
    dropout, _ = ops
    for rows, channels, each in ((2, 9, 7), (3, 8, 1), (1, 3, 9000), (2, 5000, 2)):
        x = torch.randn(rows, channels, each).to(DTYPES[dtype][0])
        keys = key_tensor(5, 6, 2**64 - 7)
        numbers = dropout(torch.ones(rows, channels, 1), keys, [], [], 2, 30000) != 0
        found = dropout(x, keys, [rows * channels, each], [1, 0], 2, 30000)
        last = x.transpose(1, 2).contiguous()
        moved = dropout(last, keys, [rows, each, channels], [channels, 0, 1], 2, 30000)
        assert torch.equal(found, moved.transpose(1, 2))
        real = torch.float64 if dtype == "float64" else torch.float32
        scaled = (x.to(real) * (2**16 / (2**16 - 30000))).to(x.dtype)
        assert torch.equal(found, torch.where(numbers, scaled, 0))
        assert not found[~numbers.expand_as(x)].signbit().any()


REFUSED = {
    "keys of a wrong shape": (torch.ones(4), torch.ones(2, dtype=torch.uint64), [], [], 0, 5),
    "no keys": (torch.ones(4), torch.ones(0, 2, dtype=torch.uint64), [], [], 0, 5),
    "keys of four words": (torch.ones(4), key_tensor(1, 2, 3, 4), [], [], 0, 5),
    "keys of another dtype": (torch.ones(4), torch.ones(1, 2, dtype=torch.int64), [], [], 0, 5),
    "strided keys": (torch.ones(4), key_tensor(1, 2, 3, 4)[:, ::2].t().t(), [], [], 0, 5),
    "strided input": (torch.ones(4, 4).t(), key_tensor(1, 2), [], [], 0, 5),
    "integers": (torch.ones(4, dtype=torch.int32), key_tensor(1, 2), [], [], 0, 5),
    "uneven rows": (torch.ones(5), torch.ones(2, 2, dtype=torch.uint64), [], [], 0, 5),
    "a threshold too high": (torch.ones(4), key_tensor(1, 2), [], [], 0, 2**16 + 1),
    "a threshold too low": (torch.ones(4), key_tensor(1, 2), [], [], 0, -1),
    "a negative offset": (torch.ones(4), key_tensor(1, 2), [], [], -1, 5),
    "values past 2**56": (torch.ones(4), key_tensor(1, 2), [], [], 2**56, 5),
    "an axis past 2**56": (torch.ones(4), key_tensor(1, 2), [4], [2**55], 0, 5),
    "fewer strides than sizes": (torch.ones(4), key_tensor(1, 2), [2, 2], [1], 0, 5),
    "sizes of another row": (torch.ones(4), key_tensor(1, 2), [3], [1], 0, 5),
    "a size of 0": (torch.ones(4), key_tensor(1, 2), [4, 0], [1, 1], 0, 5),
    "a negative stride": (torch.ones(4), key_tensor(1, 2), [4], [-1], 0, 5),
}


@needs_native
@pytest.mark.parametrize("arguments", REFUSED.values(), ids=REFUSED)
def test_the_operator_refuses(arguments):
    with pytest.raises((RuntimeError, TypeError, ValueError), match=r"fastseed\.dropout: \w+"):
        torch.ops.fastseed.dropout(*arguments)
