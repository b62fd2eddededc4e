"""The operator of perturbations: every path gives the bits of the reference."""

from __future__ import annotations

import itertools

import pytest
import torch
from helpers.simd import set_simd
from helpers.support import needs_native

from fastseed._backend import derive
from fastseed._backend.ops import perturb as op
from fastseed._backend.ops.draws import REALS
from fastseed._backend.ops.register import REFERENCES

LAYOUTS = (
    ((0,), [0, 0]),
    ((1,), [0, 0]),
    ((77,), [5, 0]),
    ((5001,), [2**40 + 3, 0]),
    ((6, 50), [11, 2, 6, 50, 100, 1]),
    ((40, 7), [3, 2, 40, 7, 1, 40]),
)


def same(a, b):
    return torch.equal(a.view(-1).view(torch.uint8), b.view(-1).view(torch.uint8))


def patterns(shape, dtype):
    """Numbers of the size of weights, and any patterns of bits between."""
    numbers = (torch.randn(shape) * 0.02).to(dtype)
    words = torch.randint(-(2**63), 2**63 - 1, shape).view(-1)
    op.pattern(numbers)[::3] = words[::3].to(op.pattern(numbers).dtype)
    return numbers


def arguments(dtype, shape, layout, rademacher, mode, room=64):
    tensors = [patterns(shape, dtype), patterns((3,), dtype)]
    entries = 1 if mode in (op.RECORD, op.UNDO) else 3
    keys = torch.randint(-(2**62), 2**62, (2 * entries, 2)).view(torch.uint64)
    scales = torch.rand(entries, dtype=torch.float64) * 1e-3
    steps = [torch.randint(-128, 128, t.shape).to(torch.int8) for t in tensors]
    lists = [torch.zeros(2 + t.numel() // room, 2, dtype=torch.int64) for t in tensors]
    return (
        tensors, steps if entries == 1 else [], lists if mode == op.RECORD else [],
        keys, scales, [*layout, 0, 0], rademacher, mode,
    )  # fmt: skip


def clones(given):
    return [[t.clone() for t in a] if isinstance(a, list) and a and torch.is_tensor(a[0]) else a
            for a in given]  # fmt: skip


@needs_native
@pytest.mark.parametrize("dtype", REALS, ids=str)
@pytest.mark.parametrize("path", derive.simd_paths())
def test_every_path_gives_the_bits_of_the_reference(path, dtype, request):
    request.addfinalizer(lambda: set_simd(None))
    set_simd(path)
    for (shape, layout), rademacher, mode in itertools.product(LAYOUTS, (False, True), range(4)):
        given = arguments(dtype, shape, layout, rademacher, mode, room=1)
        found, expected = clones(given), clones(given)
        torch.ops.fastseed.perturb(*found)
        REFERENCES["perturb"](*expected)
        for a, b in zip(found[0] + found[1], expected[0] + expected[1], strict=True):
            assert same(a, b), (shape, rademacher, mode)
        for a, b in zip(found[2], expected[2], strict=True):
            assert sorted(a.tolist()) == sorted(b.tolist())


@needs_native
def test_numbers_stay_where_the_list_is_full():
    given = arguments(torch.float32, (5001,), [0, 0], False, op.RECORD)
    given[4].fill_(1e3)  # farther than a byte nearly everywhere
    found = clones(given)
    torch.ops.fastseed.perturb(*found)
    count, room = int(found[2][0][0, 0]), len(found[2][0]) - 1
    stays = found[1][0] == op.UNMOVED
    assert count > room and int(stays.sum()) == count - room
    assert same(found[0][0][stays], given[0][0][stays])
    assert int((found[1][0] == op.LISTED).sum()) == room


@pytest.mark.parametrize("mode", [op.EACH, op.RECORD])
def test_opcheck(mode):
    given = arguments(torch.bfloat16, (77,), [5, 0], True, mode)
    found = torch.library.opcheck(torch.ops.fastseed.perturb.default, given)
    assert set(found.values()) == {"SUCCESS"}


def changed(index, value):
    def change(given):
        given = list(given)
        given[index] = value(given[index])
        return given

    return change


WRONG = {
    "fewer bytes": changed(1, lambda steps: steps[:1]),
    "short bytes": changed(1, lambda steps: [steps[0][:-1].clone(), steps[1]]),
    "other bytes": changed(1, lambda steps: [steps[0].short(), steps[1]]),
    "no lists": changed(2, lambda lists: []),
    "empty list": changed(2, lambda lists: [lists[0][:0], lists[1]]),
    "list of float": changed(2, lambda lists: [lists[0].double(), lists[1]]),
    "fewer keys": changed(3, lambda keys: keys[:1].clone()),
    "flat keys": changed(3, lambda keys: keys.view(-1)),
    "two scales": changed(4, lambda scales: scales.repeat(2)),
    "float scales": changed(4, lambda scales: scales.float()),
    "no layouts": changed(5, lambda layouts: []),
    "long layouts": changed(5, lambda layouts: [*layouts, 0]),
    "cut layout": changed(5, lambda layouts: [5, 2**62, 1]),
    "negative dimensions": changed(5, lambda layouts: [5, -1, 0, 0]),
    "another size": changed(5, lambda layouts: [5, 1, 78, 1, 0, 0]),
    "far elements": changed(5, lambda layouts: [2**55, 0, 0, 0]),
    "another mode": changed(7, lambda mode: 4),
    "integers": changed(0, lambda tensors: [tensors[0].int(), tensors[1]]),
    "gaps": changed(0, lambda tensors: [tensors[0].repeat(2)[::2], tensors[1]]),
    "bytes in the same memory": lambda given: [
        given[0], [given[0][0].view(torch.int8)[:77], given[1][1]], *given[2:]
    ],
}  # fmt: skip


@needs_native
@pytest.mark.parametrize("name", WRONG)
def test_operator_refuses_what_it_cannot_write(name):
    given = arguments(torch.float32, (77,), [5, 0], False, op.RECORD)
    before = clones(given)
    with pytest.raises(RuntimeError, match=r"fastseed\.perturb: "):
        torch.ops.fastseed.perturb(*WRONG[name](given))
    assert all(same(a, b) for a, b in zip(given[0], before[0], strict=True))
