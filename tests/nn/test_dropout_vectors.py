"""Known answers of dropout, on the NumPy reference and every SIMD path."""

from __future__ import annotations

import struct
import subprocess
import sys

import pytest
import torch
from helpers import vectors

import fastseed
from fastseed._backend import derive_ops, dropout_ops
from fastseed.nn import functional, layer_scope

KINDS = {"mask": 60, "value": 300, "layer": 100, "p": 10}
DTYPES = {
    "float16": (torch.float16, torch.uint16),
    "bfloat16": (torch.bfloat16, torch.uint16),
    "float32": (torch.float32, torch.uint32),
    "float64": (torch.float64, torch.uint64),
}
LINES = (vectors.DATA / "dropout.txt").read_text("utf-8").splitlines()
ROWS = [line.split(" ") for line in LINES if not line.startswith("#")]


def rows(kind):
    return [row[1:] for row in ROWS if row[0] == kind]


@pytest.fixture(params=("reference", *derive_ops.simd_paths()))
def ops(request):
    """The operators of a backend."""
    if request.param == "reference":
        return dropout_ops.dropout_in_numpy, dropout_ops.layer_key
    derive_ops.set_simd(request.param)
    return torch.ops.fastseed.dropout.default, torch.ops.fastseed.layer_key.default


def key_tensor(*words: int) -> torch.Tensor:
    return torch.tensor([words], dtype=torch.uint64)


def test_vectors_are_frozen():
    texts = [" ".join(row) for row in ROWS]
    releases = vectors.frozen("dropout")
    assert vectors.changed(texts, releases) == []
    assert releases[-1][0] == len(texts), "appended rows belong into dropout.sha256 as well"


def test_vectors_are_what_their_program_makes():
    program = vectors.DATA / "make_dropout_vectors.py"
    done = subprocess.run([sys.executable, "-I", program, "--check"], capture_output=True)
    assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()


def test_vectors_have_rows_of_each_kind():
    assert {row[0] for row in ROWS} == set(KINDS)
    for kind, least in KINDS.items():
        assert len(rows(kind)) >= least, kind


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
        scope = torch.tensor(derive_ops.scope_key(master, task, epoch, step), dtype=torch.uint64)
        words = layer_scope.LayerName(name).words
        index = 0 if label == "-" else layer_scope.label(label).index
        out = torch.empty(3, dtype=torch.uint64)
        layer_key(out, scope, torch.tensor([int(row)]), *words, index, int(elements))
        assert out.tolist() == [int(lo, 16), int(hi, 16), int(first, 16)], (name, label, row)
        fastseed.init(master, rank=0, world_size=1)
        key = fastseed.derive_key(
            f"dropout/{name}", task=task, epoch=epoch, step=step, rank=fastseed.SHARED, index=index
        )
        assert key == int(lo, 16) | int(hi, 16) << 64


def test_thresholds():
    for bits, threshold in rows("p"):
        p = struct.unpack(">d", bytes.fromhex(bits))[0]
        assert functional.threshold_of(p) == int(threshold), p
