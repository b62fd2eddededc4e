"""The operator of perturbations on a CUDA device: the bits of the CPU."""

from __future__ import annotations

import itertools

import pytest
import torch

import fastseed
from fastseed._backend.ops import perturb as op
from fastseed._backend.ops.draws import REALS

pytestmark = pytest.mark.cuda

LAYOUTS = (
    ((1,), [0, 0]),
    ((5001,), [2**40 + 3, 0]),
    ((6, 50), [11, 2, 6, 50, 100, 1]),
    ((1 << 20,), [0, 0]),
)


def moved(device, tensor, steps, rows, layout, rademacher, mode):
    """Return what the operator writes on a device, with its list sorted."""
    entries = 1 if mode in (op.RECORD, op.UNDO) else 3
    keys = torch.arange(2 * entries).view(entries, 2).to(torch.uint64)
    scales = torch.arange(1, entries + 1, dtype=torch.float64) * 1e-3
    tensor, steps, rows = (t.clone().to(device) for t in (tensor, steps, rows))
    torch.ops.fastseed.perturb(
        [tensor], [steps] if entries == 1 else [], [rows] if mode == op.RECORD else [],
        keys.to(device), scales.to(device), layout, rademacher, mode,
    )  # fmt: skip
    return op.pattern(tensor).cpu(), steps.cpu(), sorted(rows.tolist())


@pytest.mark.parametrize("dtype", REALS, ids=str)
def test_a_device_gives_the_bits_of_the_cpu(dtype, device):
    for (shape, layout), rademacher, mode in itertools.product(LAYOUTS, (False, True), range(4)):
        given = (
            (torch.randn(shape) * 0.02).to(dtype),
            torch.randint(-128, 128, shape).to(torch.int8),
            torch.zeros(2 + torch.Size(shape).numel(), 2, dtype=torch.int64),
            layout, rademacher, mode,
        )  # fmt: skip
        here, there = (moved(place, *given) for place in ("cpu", device))
        assert torch.equal(here[0], there[0]) and torch.equal(here[1], there[1])
        assert here[2] == there[2]


def test_a_block_leaves_the_bits_and_keeps_less_than_a_copy(device):
    model = torch.nn.Linear(512, 512, device=device, dtype=torch.bfloat16)
    before = [op.pattern(p.detach()).clone() for p in model.parameters()]
    with fastseed.nn.perturbed(model, seed=7, scale=1e-3) as block:
        block.flip()
    assert all(
        torch.equal(op.pattern(p), b) for p, b in zip(model.parameters(), before, strict=True)
    )
