"""Known answers of perturbations, by the reference and by the operator on the tests' device."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from helpers.paths import VECTORS

from fastseed._backend.ops import perturb as op
from fastseed._backend.ops.draws import REALS
from fastseed._backend.ops.register import REFERENCES

DTYPES = {str(dtype).removeprefix("torch."): dtype for dtype in REALS}


def signed(bits: int, width: int = 64) -> int:
    return bits - (1 << width) if bits >> (width - 1) else bits


def numbers(text: str, dtype: torch.dtype) -> torch.Tensor:
    words = text.split(",")
    width = 4 * len(words[0])
    integer = {16: torch.int16, 32: torch.int32, 64: torch.int64}[width]
    return torch.tensor([signed(int(word, 16), width) for word in words], dtype=integer).view(dtype)


def rows() -> Iterator[tuple[str, torch.dtype, bool, int, list[list[str]], list[str]]]:
    """Yield kind, dtype, noise, first element, (lo, hi, scale) of each entry, and the rest."""
    for line in (VECTORS / "perturb.txt").read_text("utf-8").splitlines():
        if line.startswith("#"):
            continue
        kind, dtype, noise, first, *rest = line.split(" ")
        entries = [entry.split(":") for entry in rest.pop(0).split(",")]
        if kind == "undo":
            entries = [[*entries[0], rest.pop(0), rest.pop(0)]]
        assert kind in ("add", "undo") and noise in ("normal", "rademacher"), line
        yield kind, DTYPES[dtype], noise == "rademacher", int(first), entries, rest


@pytest.mark.cuda
@pytest.mark.parametrize("by", ["reference", "operator"])
def test_known_answers(by, device):
    place = "cpu" if by == "reference" else device
    perturb = REFERENCES["perturb"] if by == "reference" else torch.ops.fastseed.perturb
    count = 0
    for kind, dtype, rademacher, first, entries, rest in rows():
        before, after = numbers(rest[0], dtype), numbers(rest[1], dtype)
        words = [[signed(int(lo, 16)), signed(int(hi, 16))] for lo, hi, _ in entries]
        keys = torch.tensor(words).view(torch.uint64).to(place)
        scales = numbers(",".join(scale for _, _, scale in entries), torch.float64).to(place)
        moved, steps = before.to(place, copy=True), torch.zeros(len(before), dtype=torch.int8)
        where, steps = (keys, scales, [first, 0], rademacher), steps.to(place)
        if kind == "add":
            perturb([moved], [], [], *where, op.ADD)
        else:
            places = torch.zeros(len(before) + 1, 2, dtype=torch.int64, device=place)
            perturb([moved], [steps], [places], *where, op.RECORD)
            assert steps.tolist() == list(map(int, rest[2].split(",")))
        assert torch.equal(op.pattern(moved.cpu()), op.pattern(after)), rest
        if kind == "undo":
            perturb([moved], [steps], [], *where, op.UNDO)
            listed = steps.cpu() == op.LISTED
            undone = torch.where(listed, before, moved.cpu())
            assert torch.equal(op.pattern(undone), op.pattern(before))
            assert int(listed.sum()) == int(places[0, 0])
        count += 1
    assert count == 448
