"""The order of an epoch made on a CUDA device: that of the CPU."""

from __future__ import annotations

import pytest
import torch

import fastseed
from fastseed.data import ShuffleSampler, shuffled_indices

pytestmark = pytest.mark.cuda

WHERE = {"task": 1, "epoch": 7, "master_seed": 42}


@pytest.mark.parametrize("n", [1, 2, 17, 1009, 65536, 65537, 10**6 + 3, 2**32 + 1, 2**48])
def test_cuda_shuffle_is_that_of_the_cpu(n):
    for count in (0, 1, 2, 511, 512, 513, 1025, 300_001):
        if count > n:
            continue
        here = shuffled_indices(n - count, n, n, **WHERE)
        there = shuffled_indices(n - count, n, n, device="cuda", **WHERE)
        assert there.device.type == "cuda" and torch.equal(there.cpu(), here)
        memory = torch.full((count + 3,), -1, dtype=torch.int64, device="cuda")
        shuffled_indices(n - count, n, n, out=memory[1 : count + 1], **WHERE)
        assert torch.equal(memory[1 : count + 1].cpu(), here)
        assert memory[0] == memory[count + 1] == memory[count + 2] == -1


def test_cuda_shuffle_of_strided_memory_and_strides():
    here = shuffled_indices(0, 900, 10**6, **WHERE)
    out = torch.zeros(900, 2, dtype=torch.int64, device="cuda")
    shuffled_indices(0, 900, 10**6, out=out[:, 1], **WHERE)
    assert torch.equal(out[:, 1].cpu(), here) and not out[:, 0].any()
    every = torch.empty(300, dtype=torch.int64)
    key = (5, -7, 10**6, 4, 1000)
    torch.ops.fastseed.shuffle(every, *key)
    there = every.cuda().zero_()
    torch.ops.fastseed.shuffle(there, *key)
    assert torch.equal(there.cpu(), every)


def test_cuda_shuffle_in_the_sampler():
    fastseed.init(42, 1, 0)
    fastseed.reseed(1, 7)
    sampler = ShuffleSampler(5000)
    assert sampler.indices(device="cuda").tolist() == list(sampler)


def test_cuda_shuffle_is_refused_in_a_capture():
    out = torch.empty(10, dtype=torch.int64, device="cuda")
    shuffled_indices(0, 10, 10, out=out, **WHERE)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        with pytest.raises(RuntimeError, match="while a CUDA graph is captured"):
            shuffled_indices(0, 10, 10, out=out, **WHERE)
        out.add_(1)
