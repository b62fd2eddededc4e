"""Digests: every bit counts, nothing else counts, and parts add up to the whole."""

import hashlib
import itertools
import types

import numpy as np
import pytest
import torch
from helpers.operator_calls import CPU_PATHS
from helpers.simd import set_simd

from fastseed._backend import derive
from fastseed.digest import tensors
from fastseed.digest.tensors import MODULUS
from fastseed.digest.trees import Digest, compare, digest

M0, M1, W0, W1 = 0xD2511F53, 0xCD9E8D57, 0x9E3779B9, 0xBB67AE85


def block7(key: int, words: list[int]) -> int:
    """Philox4x32-7 in plain integers, as its paper states it."""
    k0, k1 = key & 0xFFFFFFFF, key >> 32
    a, b, c, d = words
    for _ in range(7):
        p, q = M0 * a, M1 * c
        a, b, c, d = (q >> 32) ^ b ^ k0, q & 0xFFFFFFFF, (p >> 32) ^ d ^ k1, p & 0xFFFFFFFF
        k0, k1 = (k0 + W0) & 0xFFFFFFFF, (k1 + W1) & 0xFFFFFFFF
    return a | b << 32 | c << 64 | d << 96


def by_hand(dtype: str, shape: tuple[int, ...], data: bytes) -> int:
    """The digest of a tensor as docs/spec/digests.md says it, byte by byte."""
    text = f"fastseed digest 1\0tensor\0{dtype}\0{','.join(map(str, shape))}"
    sha = hashlib.sha256(text.encode()).digest()
    total, key = int.from_bytes(sha[:16], "little"), int.from_bytes(sha[16:24], "little")
    rows = int(np.prod(shape[:-1])) if shape else 1
    length = len(data) // rows if rows else 0
    place = 0
    for row in range(rows):
        line = data[row * length : (row + 1) * length]
        for at in range(0, length, 16):
            group = line[at : at + 16].ljust(16, b"\0")
            words = [int.from_bytes(group[i : i + 4], "little") for i in (0, 4, 8, 12)]
            total += block7((key + place) % 2**64, words)
            place += 1
    return total % MODULUS


def value(obj) -> int:
    return digest(obj).table[""].value


SHAPES = [(), (0,), (7,), (3, 5), (2, 3, 4), (4, 0), (5, 1), (70, 33), (1000,)]
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int8, torch.bool, torch.complex64]


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_digest_is_the_documented_sum(shape, dtype, device):
    tensor = (torch.randn(shape, generator=torch.Generator().manual_seed(1)) * 50).to(dtype)
    data = tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes() if shape else (
        tensor.reshape(1).view(torch.uint8).numpy().tobytes()
    )  # fmt: skip
    assert value(tensor.to(device)) == by_hand(str(dtype).removeprefix("torch."), shape, data)


def test_digest_known_answers():
    """Frozen: files hold them."""
    assert digest(torch.arange(10)).hex == "74e14d1c0ffd6b21e5444a638076ce28"
    tree = {"a": torch.zeros(3), "b": [1, 2.5, "x", None]}
    assert digest(tree).hex == "a25bd628ae7cfb7685e66d19fdb5c86e"


@pytest.fixture(
    params=[pytest.param(path, marks=pytest.mark.cuda) for path in (*CPU_PATHS, "device")]
)
def place(request, monkeypatch, device):
    """Where the data lies, for each loop that there is on this CPU, NumPy's, and the device."""
    if request.param == "reference":
        monkeypatch.setattr(tensors, "native", types.SimpleNamespace(kernels=None))
    elif request.param in CPU_PATHS:
        set_simd(request.param)
    return device if request.param == "device" else "cpu"


@pytest.mark.parametrize("row", [1, 7, 8, 15, 16, 17, 47, 128, 500, 2048, 2049, 5000])
def test_digest_on_every_path(place, row):
    generator = np.random.default_rng(row)
    data = torch.from_numpy(generator.integers(0, 256, (11, row), dtype=np.uint8))
    assert value(data.to(place)) == by_hand("uint8", (11, row), data.numpy().tobytes())


@pytest.mark.parametrize("first", [0, 5, 2**32 - 20, 2**64 - 21, 2**33 - 3])
def test_places_carry_into_the_upper_word(place, first):
    data = np.random.default_rng(3).integers(0, 256, (1, 16 * 50), dtype=np.uint8)
    rows = tensors.Rows(torch.from_numpy(data).to(place), first, 50)
    words = data.view("<u4").reshape(-1, 4).tolist()
    key = 0xFFFFFFFF_00000007
    expected = sum(block7((key + first + i) % 2**64, w) for i, w in enumerate(words)) % MODULUS
    assert tensors.sum_rows([key], [rows]) == [expected]


@pytest.mark.parametrize("shape", [(8, 1), (1, 8), (2, 3)])
def test_strides_that_are_never_used_do_not_matter(place, shape):
    """A transposed matrix of one row is contiguous, whatever its last stride."""
    tensor = torch.arange(float(shape[0] * shape[1])).reshape(shape[::-1]).t()
    assert value(tensor.to(place)) == by_hand("float32", shape, tensor.clone().numpy().tobytes())


@pytest.mark.proof
@pytest.mark.skipif(derive.simd() != "avx512", reason="64 GiB take too long otherwise")
def test_more_groups_than_32_bits_count():
    """One row read again and again: all of it in one call is the sum of its parts."""
    row = torch.arange(1 << 19, dtype=torch.int32).view(torch.uint8)
    many, groups = (1 << 15) // 16 + 1, (1 << 21) // 16
    rows = tensors.Rows(row.expand(16 * many, -1), 0, groups)
    assert 16 * many * groups > 2**32
    whole = tensors.sum_rows([7], [rows])[0]
    parts = [tensors.Rows(row.expand(many, -1), i * many * groups, groups) for i in range(16)]
    assert whole == sum(tensors.sum_rows([7] * 16, parts)) % MODULUS


# ---------------------------------------------------------------- bits, order, layout


@pytest.mark.cuda
def test_every_bit_counts(device):
    tensor = torch.zeros(37, dtype=torch.uint8, device=device)
    seen = {value(tensor)}
    for byte, bit in itertools.product(range(37), range(8)):
        tensor[byte] = 1 << bit
        seen.add(value(tensor))
        tensor[byte] = 0
    assert len(seen) == 1 + 37 * 8


def test_order_shape_and_dtype_count():
    base = torch.arange(12, dtype=torch.int32)
    others = [
        base.flip(0), base.roll(4), base.reshape(3, 4), base.reshape(4, 3), base.reshape(1, 12),
        base.to(torch.int64), base.view(torch.float32), base.view(torch.uint8), base[:-1],
    ]  # fmt: skip
    assert len({value(t) for t in (base, *others)}) == 1 + len(others)


def test_bits_that_comparison_ignores_count():
    nans = np.array([0x7FC00000, 0x7FC00001, 0xFFC00000], np.uint32).view(np.float32)
    assert len({value(torch.tensor([x])) for x in (0.0, -0.0)}) == 2
    assert len({value(torch.from_numpy(nans[i : i + 1])) for i in range(3)}) == 3


@pytest.mark.cuda
def test_layout_in_memory_does_not_count(device):
    here = torch.randn(6, 8, 10, generator=torch.Generator().manual_seed(2))
    base, wide = here.to(device), torch.zeros(6, 8, 23, device=device)
    wide[:, :, 3:13] = base
    views = [
        base.permute(2, 0, 1).contiguous().permute(1, 2, 0),
        base.transpose(0, 1).contiguous().transpose(0, 1),
        wide[:, :, 3:13],
        base.to(memory_format=torch.contiguous_format).clone().requires_grad_(),
        base.neg()._neg_view(),
        torch.nn.Parameter(base),
    ]
    assert {value(v) for v in views} == {value(here)}
    assert digest([here, base, here]).value == digest([here] * 3).value
    flat = base.view(-1).view(torch.uint8)  # at any address
    assert all(value(flat[i:]) == value(here.view(-1).view(torch.uint8)[i:]) for i in range(17))
    one = torch.randn(5, 1)
    assert value(one.expand(5, 4)) == value(one.repeat(1, 4))
    z = torch.randn(4, dtype=torch.complex64)
    assert value(z.conj()) == value(z.conj().resolve_conj()) != value(z)
    column = torch.arange(12).reshape(6, 2)[:, 1:]
    assert value(column) == value(column.clone())


def test_digest_changes_nothing_and_draws_nothing():
    module = torch.nn.Linear(3, 3)
    before = torch.get_rng_state(), {k: v.clone() for k, v in module.state_dict().items()}
    digest(module)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert all(torch.equal(v, before[1][k]) for k, v in module.state_dict().items())


@pytest.mark.parametrize("shape", [(11,), (10, 7), (4, 5, 33), (64,), (3, 48)], ids=str)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.int8], ids=str)
def test_parts_add_up_however_they_are_cut(shape, dtype):
    """Along the last dimension between groups of 16 bytes, along the others anywhere."""
    whole = (torch.randn(shape, generator=torch.Generator().manual_seed(3)) * 99).to(dtype)
    *_, key, header, _ = tensors.header_of(whole.dtype, shape)
    for dim, size in itertools.product(range(len(shape)), (1, 2, 3)):
        total, at = header, 0
        width = size * (16 // whole.element_size() if dim == len(shape) - 1 else 1)
        for part in whole.split(width, dim):
            boxes = [[(0, n)] for n in shape]
            boxes[dim] = [(at, part.shape[dim])]
            rows = tensors.rows_of_shard(part, boxes, shape)
            total += sum(tensors.sum_rows([key] * len(rows), rows))
            at += part.shape[dim]
        assert total % MODULUS == value(whole)


# ---------------------------------------------------------------- trees


def test_trees_name_their_leaves():
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    found = digest(model)
    assert list(found.table) == [
        "0.weight", "0.bias", "1.weight", "1.bias",
        "1.running_mean", "1.running_var", "1.num_batches_tracked",
    ]  # fmt: skip
    assert found.table["0.weight"].shape == (3, 2) and found.table["0.weight"].dtype == "float32"
    assert digest(model.state_dict()).value == found.value


def test_order_of_keys_does_not_count_but_names_do():
    a, b = torch.ones(2), torch.zeros(2)
    assert digest({"a": a, "b": b}).value == digest({"b": b, "a": a}).value
    assert digest({"a": a, "b": b}).value != digest({"a": b, "b": a}).value
    assert digest([a, b]).value != digest([b, a]).value


def test_duplicate_names_are_refused():
    for tree in ({"a.b": 1, "a": {"b": 2}}, {1: 0, "1": 0}):
        with pytest.raises(ValueError, match=r"must have one leaf of each name, got two at '"):
            digest(tree)


def test_dtypes_of_all_kinds():
    """Each of one byte an element has its own digest of the same bytes."""
    data = torch.arange(40, dtype=torch.uint8).view(5, 8)
    kinds = ["int8", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "float4_e2m1fn_x2", "bits8"]
    found = {value(data.view(getattr(torch, kind))) for kind in kinds if hasattr(torch, kind)}
    assert len(found) >= 4
    for kind in kinds[:2]:
        assert value(data.view(getattr(torch, kind))) == by_hand(
            kind, (5, 8), data.numpy().tobytes()
        )


def test_plain_values_all_differ():
    plain = [None, True, False, 0, 1, -1, 2**200, 0.0, -0.0, 1.0, 1j, "", "1", b"", b"1"]
    plain += [[], (), {}, "an empty list", torch.float32, torch.device("cpu")]
    assert len({digest([x]).value for x in plain}) == len(plain)


def test_arrays_of_numpy():
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    frozen = array.copy()
    frozen.flags.writeable = False
    big_endian, reverse = array.astype(">f4"), array[::-1]
    assert value(array) == value(frozen) == value(big_endian) == value(torch.from_numpy(array))
    assert value(reverse) == value(torch.from_numpy(reverse.copy()))
    assert value(np.float32(1.5)) == value(torch.tensor(1.5))
    large = np.array([2**63], np.ulonglong)  # which torch does not take
    assert value(large) == value(large.astype(np.uint64))


def test_compare_names_what_differs():
    one = {"w": torch.ones(4), "b": torch.zeros(2), "gone": 1}
    two = {"w": torch.ones(4), "b": torch.tensor([0.0, -0.0]), "new": 1}
    found = compare(one, two)
    assert [d.name for d in found] == ["b", "gone", "new"]
    assert found[1].b is None and found[2].a is None
    assert "absent" in str(found[1]) and "float32[2]" in str(found[0])
    assert compare(one, digest(one)) == []
    assert isinstance(digest(one), Digest) and len(str(digest(one))) == 32


@pytest.mark.parametrize(
    ("obj", "message"),
    [
        (object(), r"fastseed.debug.digest: the leaf at '' must be a tensor.* of type object"),
        ({"x": {1, 2}}, r"the leaf at 'x' must be .* of type set"),
        (torch.nn.Linear, r"the leaf at '' must be a tensor.* of type type"),
        (torch.empty(2, device="meta"), r"the tensor at '' must be one with memory of its own"),
        ([torch.eye(2).to_mkldnn()], r"the tensor at '0' must be dense and strided"),
        (np.array([np.longdouble(1)]), r"the leaf at '' must be an array of numbers, got"),
        (np.array(["a"]), r"must be an array of numbers, got '<U1'"),
        (np.array([object()]), r"must be an array of numbers, got 'object'"),
    ],
)
def test_digest_refuses_other_objects(obj, message):
    with pytest.raises(TypeError, match=message):
        digest(obj)


def test_a_circle_and_a_tree_too_deep_for_python_are_refused():
    tree: list = []
    tree.append(tree)
    with pytest.raises(TypeError, match="holds itself"):
        digest(tree)
    for _ in range(2000):
        tree = [tree]
    for refused in (digest, lambda obj: compare(obj, obj)):
        with pytest.raises(ValueError, match=r"^fastseed.debug.digest: obj must be .* recursion"):
            refused(tree)


def test_a_tree_of_one_leaf_without_a_name_is_not_the_leaf():
    x = torch.ones(3)
    trees = [x, {"": x}, {"": {"": x}}, {"": {"a": x}}, {"a": x}, {"a": {"": x}}, [x], [[x]]]
    assert len({digest(tree).value for tree in trees}) == len(trees)
    assert list(digest({"": x}).table) == ["."] and list(digest(x).table) == [""]


def test_whole_numbers_of_any_length_have_digests():
    """Python converts at most 4300 digits to text by default."""
    numbers = [10**5000, -(10**5000), 10**5000 + 1, 10**4299]
    assert len({value(number) for number in numbers}) == 4
    text = "1" + "0" * 5000
    sha = hashlib.sha256(b"fastseed digest 1\0value\0int\0" + text.encode()).digest()
    assert digest({"n": 10**5000}).table["n"].value == int.from_bytes(sha[:16], "little")
