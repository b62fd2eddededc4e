"""Digests on a CUDA device are those of the CPU: every layout, many tensors at once, any stream."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fastseed._backend import native
from fastseed.debug import tensor_digest
from fastseed.debug.bisection import bisect
from fastseed.debug.tree_digest import compare, digest
from fastseed.debug.watch import Watch

pytestmark = pytest.mark.cuda

SHAPES = [(), (0,), (1,), (3,), (4,), (17, 3), (5, 1), (64, 64), (1000,), (7, 50257), (2, 3, 4, 5)]
DTYPES = [torch.float32, torch.bfloat16, torch.int8, torch.float64, torch.bool, torch.complex128]


def tensor_of(shape, dtype):
    return (torch.randn(shape, generator=torch.Generator().manual_seed(3)) * 60).to(dtype)


@pytest.mark.needs_cuda
def test_the_kernel_is_there():
    assert native.has_cuda


def test_a_tree_in_one_launch(device):
    here = {f"{s} {d}": tensor_of(s, d) for s in SHAPES for d in DTYPES}
    there = {name: tensor.to(device) for name, tensor in here.items()}
    assert compare(here, there) == []


def test_layouts_and_addresses(device):
    base = tensor_of((40, 37, 24), torch.bfloat16)
    there = base.to(device)

    def views(x):
        flat = x.reshape(-1)
        return [
            x.transpose(0, 1), x[:, :, 3:20], x[1:, ::2], x.permute(2, 0, 1), x[:, :, ::3],
            *(flat[shift : shift + 30001] for shift in range(9)),
            *(flat[shift : shift + 7 * 1001].view(7, 1001) for shift in range(9)),
            flat[:1].expand(5000), x[:1, :1].expand(3, 900, 24), flat.view(torch.int8)[3:-1],
        ]  # fmt: skip

    assert compare(views(base), views(there)) == []


@pytest.mark.parametrize("place", [2**32 - 20, 2**64 - 21])
def test_places_carry_into_the_upper_word(place, device):
    data = tensor_of((3, 160_000), torch.int8).view(torch.uint8)
    here = tensor_digest.Rows(data, place, 10_000)
    there = tensor_digest.Rows(data.to(device), place, 10_000)
    key = 0xFFFFFFFF_00000007
    assert tensor_digest.sum_rows([key], [there]) == tensor_digest.sum_rows([key], [here])


def test_every_bit_counts(device):
    tensor = torch.zeros(4097, dtype=torch.uint8, device=device)
    seen = {digest(tensor).value}
    for at in (0, 15, 16, 4095, 4096):
        for bit in range(8):
            tensor[at] = 1 << bit
            seen.add(digest(tensor).value)
            tensor[at] = 0
    assert len(seen) == 1 + 5 * 8


@pytest.mark.needs_cuda
def test_large_tensors(device):
    """More bytes than 2**32, and a sum that does not depend on how blocks share them."""
    there = torch.arange(2**29 + 12345, dtype=torch.int64, device=device)
    assert digest(there).value == digest(there.cpu()).value


@pytest.mark.needs_cuda
def test_another_stream(device):
    x = torch.zeros(1 << 24, device=device)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(100):
            x += 1
        found = digest(x)
    assert found.value == digest(torch.full((1 << 24,), 100.0)).value


def test_both_devices_in_one_tree(device):
    x = tensor_of((50, 3), torch.float32)
    assert digest([x, x.to(device), x]).value == digest([x, x, x]).value


def test_watching_a_model_on_the_device(tmp_path, device):
    def run(path, planted):
        torch.manual_seed(1)
        model = nn.Linear(33, 9).to(device)
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)
        with Watch(model, optimizer, path=path) as watch:
            for step in range(4):
                optimizer.zero_grad()
                x = torch.randn(8, 33, generator=torch.Generator().manual_seed(step))
                model(x.to(device)).sum().backward()
                optimizer.step()
                if planted and step == 2:
                    model.weight.detach().view(torch.int32)[4, 4] ^= 1
                watch.record()

    run(tmp_path / "a", False)
    run(tmp_path / "b", True)
    found = bisect(tmp_path / "a", tmp_path / "b")
    assert (found.step, found.first.name) == (2, "parameter weight")
