"""The order of an epoch as a function: known answers on every backend, laws, arguments."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
import pytest
import torch
from helpers import vectors
from helpers.inside import Permutation, derive, scalar, shuffle
from helpers.sampled import sampler_at
from helpers.simd import set_simd
from helpers.support import needs_native, run_python

LARGE = (65536, 65537, 10**6 + 3, 10**9, 2**32 + 1, 2**48 - 1, 2**48)
RELEASES = [
    (165, "1d55118b2fe0a4465b4cead38ecd13e6d13b36aa1f182268546a47e5fed79036"),
    (300, "c00099c90c47354cbc5297075325b1b53b05156d7cd2917b6f775c5876081f95"),
    (306, "9f59446deb98a2ee21cff19d999c09452b4d0e80020910a4724c25fa8afeb8d8"),
]
WHERE = {"task": 1, "epoch": 7, "master_seed": 42}


# ---------------------------------------------------------------- known answers


def texts() -> list[str]:
    lines = (vectors.DATA / "shuffle.txt").read_text("utf-8").splitlines()
    return [line for line in lines if not line.startswith("#")]


def parse(text: str) -> tuple[str, dict, list[int], list[str]]:
    """Kind of row, arguments, (n, start, stride, count), what has to come out."""
    kind, master, task, epoch, name, *rest = text.split(" ")
    where = {"master_seed": int(master), "task": int(task), "epoch": int(epoch), "name": name}
    return kind, where, [int(field) for field in rest[:4]], rest[4:]


def expect(kind: str, found: list[int], answers: list[str]) -> None:
    if kind == "digest":
        data = np.array(found, "<i8").tobytes()
        assert [hashlib.sha256(data).hexdigest()] == answers
    else:
        assert kind in ("order", "inverse") and list(map(str, found)) == answers


def key_at(where: dict, n: int) -> int:
    scope = scalar.scope_key(where["master_seed"], where["task"], where["epoch"], 0)
    name = scalar.name_key(scope, scalar.name_words(where["name"]))
    return scalar.stream_key(name, 0, 0, n, scalar.DOMAIN_SHUFFLE)


def test_known_answers_are_frozen():
    assert vectors.frozen("shuffle") == RELEASES
    assert vectors.changed(texts(), RELEASES) == []


def test_known_answers_of_the_reference():
    for text in texts():
        kind, where, (n, start, stride, count), answers = parse(text)
        key = key_at(where, n)
        at = np.arange(start, start + count * stride, stride)
        if kind == "inverse":
            found = shuffle.positions(key, n, at)
            expect(kind, found.tolist(), answers)
            continue
        found = shuffle.indices(key, n, start, stride, count).tolist()
        expect(kind, found, answers)
        assert np.array_equal(shuffle.positions(key, n, np.array(found)), at)
        for k in range(0, count, 40):
            i = start + k * stride
            assert shuffle.indices(key, n, i, 1, 1) == found[k]


def test_known_answers_of_the_functions():
    for text in texts():
        kind, where, (n, start, stride, count), answers = parse(text)
        if kind == "inverse":
            order = Permutation(n, key_at(where, n))
            at = torch.arange(start, start + count * stride, stride)
            expect(kind, order.positions(at).tolist(), answers)
        elif stride == 1:
            found = sampler_at(n, **where).indices(start, start + count)
            assert found.dtype == torch.int64 and found.shape == (count,)
            expect(kind, found.tolist(), answers)
        if kind == "order":
            i, j = start + (count - 1) * stride, int(answers[-1])
            assert sampler_at(n, **where).index(i) == j


@needs_native
@pytest.mark.parametrize("path", derive.simd_paths())
def test_known_answers_of_every_instruction_set(path):
    set_simd(path)
    try:
        for text in texts():
            kind, where, (n, start, stride, count), answers = parse(text)
            key, at = key_at(where, n), torch.arange(start, start + count * stride, stride)
            if kind == "inverse":
                expect(kind, derive.shuffle_positions(key, n, at).tolist(), answers)
                continue
            out = torch.empty(count, dtype=torch.int64)
            derive.fill_shuffle(out, key, n, start, stride)
            expect(kind, out.tolist(), answers)
            assert torch.equal(derive.shuffle_positions(key, n, out), at)
    finally:
        set_simd(None)


WITHOUT_NATIVE = """
import fastseed, torch
from fastseed.data import ShuffleSampler
fastseed.init(42, 1, 0)
print(fastseed.build_info()["backend"], ShuffleSampler(16).indices(task=1, epoch=7).tolist())
out = torch.empty(3, dtype=torch.int64)
torch.ops.fastseed.shuffle(out, -5, 2**62, 2**48, 10, 2)
print(out.tolist())
torch.ops.fastseed.shuffle_positions(out, torch.tensor([10, -1, 2**48]), -5, 2**62, 2**48)
print(out.tolist())
fastseed.reseed(1, 7)
print(list(ShuffleSampler(17)), ShuffleSampler(17).index(3))
"""


@needs_native
def test_without_native_code_everything_is_the_same():
    found = run_python("-c", WITHOUT_NATIVE, FASTSEED_BACKEND="reference").splitlines()
    out = torch.empty(3, dtype=torch.int64)
    torch.ops.fastseed.shuffle(out, -5, 2**62, 2**48, 10, 2)
    back = torch.empty(3, dtype=torch.int64)
    torch.ops.fastseed.shuffle_positions(back, torch.tensor([10, -1, 2**48]), -5, 2**62, 2**48)
    seventeen = sampler_at(17, **WHERE)
    assert found == [
        f"reference {sampler_at(16, **WHERE).indices().tolist()}",
        f"{out.tolist()}",
        f"{back.tolist()}",
        f"{list(seventeen)} {seventeen.index(3)}",
    ]
    assert back[0] >= 0 and back[1] == back[2] == -1


# ---------------------------------------------------------------- laws


def test_every_order_is_a_bijection():
    for n in range(1, 301):
        found = sampler_at(n, **WHERE).indices()
        assert torch.equal(found.sort().values, torch.arange(n)), n


@pytest.mark.parametrize("n", [4096, 4097, 65536, 65537, 99_999, 10**6 + 3])
def test_large_orders_are_bijections(n):
    seen = torch.zeros(n, dtype=torch.bool)
    seen[sampler_at(n, **WHERE).indices()] = True
    assert seen.all()


def check_inverse(sizes: Iterable[int]) -> None:
    """The inverse of forward is the identity; of a finite set, so is forward of the inverse."""
    for n in sizes:
        order, everything = Permutation(n, 17 * n << 60), torch.arange(n)
        assert torch.equal(order.positions(order.part(0, n)), everything), n


def test_inverse_of_every_position():
    check_inverse((*range(1, 301), 65536, 65537))


@pytest.mark.proof
@needs_native
def test_inverse_of_every_position_of_every_size():
    check_inverse(range(301, 10_001))


def test_inverse_of_random_positions():
    random = np.random.default_rng(5)
    for bits in range(1, 49):
        n = int(random.integers(2 ** (bits - 1), 2**bits, endpoint=True))
        key = int(random.integers(0, 2**63)) << 60 | bits
        at = torch.from_numpy(random.integers(0, n, 4000))
        found = derive.shuffle_positions(key, n, at)
        forward = [derive.shuffle_index(key, n, i) for i in found[:50].tolist()]
        assert forward == at[:50].tolist()
        there = shuffle.positions(key, n, at.numpy())
        assert np.array_equal(found.numpy(), there)
        some = np.concatenate([shuffle.indices(key, n, int(i), 1, 1) for i in there[:9]])
        assert np.array_equal(some, at.numpy()[:9])


def test_samples_outside_have_no_position():
    outside = torch.tensor([-1, 10, 2**62, -(2**63)])
    for order in (Permutation(10, 5), Permutation(10, None), Permutation(1, 5)):
        assert order.positions(outside).tolist() == [-1] * 4
    assert Permutation(10, None).positions(torch.arange(10)).tolist() == list(range(10))


@pytest.mark.parametrize("n", LARGE)
def test_parts_are_parts_of_one_order(n):
    start, sampler = n - 5000, sampler_at(n, **WHERE)
    whole = sampler.indices(start, n)
    for a, b in ((0, 1), (0, 5000), (17, 17), (1, 4999), (4999, 5000), (700, 803)):
        assert torch.equal(sampler.indices(start + a, start + b), whole[a:b])
    assert int(whole.min()) >= 0 and int(whole.max()) < n


@needs_native
def test_threads_do_not_matter():
    before = torch.get_num_threads()
    found = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(sampler_at(123_457, **WHERE).indices(7, 100_000))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])


def test_each_coordinate_matters():
    changes = ({}, {"task": 2}, {"epoch": 8}, {"master_seed": 43}, {"name": "validation"})
    found = [sampler_at(10**6, **{**WHERE, **change}).indices(0, 1000) for change in changes]
    orders = [part.tolist() for part in found]
    orders.append(sampler_at(10**6 + 1, **WHERE).indices(0, 1000).tolist())
    for a in range(len(orders)):
        for b in range(a):
            assert sum(x == y for x, y in zip(orders[a], orders[b], strict=True)) < 5


# ---------------------------------------------------------------- where it is written


def test_out_is_written_and_returned():
    sampler = sampler_at(1000, **WHERE)
    right = sampler.indices(3, 103)
    out = torch.zeros(100, dtype=torch.int64)
    assert sampler.indices(3, 103, out=out) is out
    assert torch.equal(out, right)
    strided = torch.zeros(100, 3, dtype=torch.int64)
    assert sampler.indices(3, 103, out=strided[:, 1]).stride() == (3,)
    assert torch.equal(strided[:, 1], right) and not strided[:, 0].any() and not strided[:, 2].any()
    meta = torch.empty(100, dtype=torch.int64, device="meta")
    assert sampler.indices(3, 103, out=meta) is meta


# ---------------------------------------------------------------- the operator


def test_opcheck():
    for count, n, start, stride in ((0, 5, 5, 1), (1, 1, 0, 1), (7, 100, 3, 9), (64, 2**48, 5, 3)):
        out = torch.empty(count, dtype=torch.int64)
        torch.library.opcheck(
            torch.ops.fastseed.shuffle.default, (out, -3, 2**63 - 1, n, start, stride)
        )
        torch.library.opcheck(
            torch.ops.fastseed.shuffle_positions.default,
            (out, torch.arange(count) - 1, -3, 2**63 - 1, n),
        )


@needs_native
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"out": torch.empty(3)}, r"out must be of dtype torch.int64"),
        ({"out": torch.empty(6, dtype=torch.int64)[::2]}, "out must be contiguous"),
        ({"out": torch.empty(3, 1, dtype=torch.int64)}, "out must be of shape"),
        ({"n": 0}, "n must be in"),
        ({"n": 2**48 + 1}, "n must be in"),
        ({"start": -1}, "start must be in"),
        ({"start": 11}, "start must be in"),
        ({"stride": 0}, "stride must be in"),
        ({"stride": 2**48 + 1}, "stride must be in"),
        ({"start": 8}, "out must be of no more elements than there are positions"),
        ({"start": 0, "stride": 5}, "out must be of no more elements than there are positions"),
    ],
)
def test_the_operator_checks(change, message):
    given = {"out": torch.empty(3, dtype=torch.int64), "n": 10, "start": 2, "stride": 3, **change}
    out, n, start, stride = given.values()
    with pytest.raises(RuntimeError, match=f"fastseed.shuffle: {message}"):
        torch.ops.fastseed.shuffle(out, 1, 2, n, start, stride)
