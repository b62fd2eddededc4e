"""The order of an epoch made on a CUDA device: that of the CPU."""

from __future__ import annotations

import pytest
import torch

import fastseed
from fastseed.data import ShuffleSampler

pytestmark = pytest.mark.cuda


@pytest.fixture(autouse=True)
def job():
    fastseed.init(42, 1, 0)
    fastseed.reseed(1, 7)


def empty_on(device, count):
    return torch.empty(count, dtype=torch.int64, device=device)


@pytest.mark.parametrize("n", [1, 2, 17, 1009, 65536, 65537, 10**6 + 3, 2**32 + 1, 2**48])
def test_cuda_shuffle_is_that_of_the_cpu(n, device):
    for count in (0, 1, 2, 511, 512, 513, 1025, 300_001):
        if count > n:
            continue
        sampler = ShuffleSampler(n)
        here = sampler.indices(n - count, n)
        there = sampler.indices(n - count, n, out=empty_on(device, count))
        assert there.device.type == device and torch.equal(there.cpu(), here)
        memory = torch.full((count + 3,), -1, dtype=torch.int64, device=device)
        sampler.indices(n - count, n, out=memory[1 : count + 1])
        assert torch.equal(memory[1 : count + 1].cpu(), here)
        assert memory[0] == memory[count + 1] == memory[count + 2] == -1


def test_cuda_shuffle_of_strided_memory_and_strides(device):
    sampler = ShuffleSampler(10**6)
    here = sampler.indices(0, 900)
    out = torch.zeros(900, 2, dtype=torch.int64, device=device)
    sampler.indices(0, 900, out=out[:, 1])
    assert torch.equal(out[:, 1].cpu(), here) and not out[:, 0].any()
    every = torch.empty(300, dtype=torch.int64)
    key = (5, -7, 10**6, 4, 1000)
    torch.ops.fastseed.shuffle(every, *key)
    there = every.to(device).zero_()
    torch.ops.fastseed.shuffle(there, *key)
    assert torch.equal(there.cpu(), every)


@pytest.mark.parametrize("n", [1, 17, 65537, 10**6 + 3, 2**48])
def test_cuda_inverse_is_that_of_the_cpu(n, device):
    for count in (0, 1, 511, 1025):
        samples = torch.arange(-3, count - 3) * max(1, n // 700)
        here = torch.empty(count, dtype=torch.int64)
        torch.ops.fastseed.shuffle_positions(here, samples, 5, -7, n)
        there = torch.empty(count + 1, dtype=torch.int64, device=device)
        for out in (there[1:], there[:-1]):
            torch.ops.fastseed.shuffle_positions(out, samples.to(device), 5, -7, n)
            assert torch.equal(out.cpu(), here)


def test_cuda_shuffle_in_the_sampler(device):
    sampler = ShuffleSampler(5000)
    assert sampler.indices(out=empty_on(device, 5000)).tolist() == list(sampler)


@pytest.mark.needs_cuda
def test_cuda_shuffle_is_refused_in_a_capture(device):
    sampler, out = ShuffleSampler(10), empty_on(device, 10)
    sampler.indices(out=out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        with pytest.raises(RuntimeError, match="while a CUDA graph is captured"):
            sampler.indices(out=out)
        out.add_(1)
