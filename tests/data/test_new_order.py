"""What a new sampler needs: an order with its inverse, its specification, and the class."""

import itertools
from dataclasses import dataclass

import pytest
import torch
from helpers.inside import OrderSpec, Permutation
from torch.utils.data import DataLoader

import fastseed
from fastseed.data import Lineage, ShuffleSampler, steps

N = 10


@dataclass(frozen=True)
class Strided(Permutation):
    stride: int

    def index(self, i):
        return i * self.stride % self.n

    def _fill(self, out, start, stride):
        torch.arange(start, start + len(out) * stride, stride, out=out)
        return out.mul_(self.stride).remainder_(self.n)

    def positions(self, samples):
        inside = (samples >= 0) & (samples < self.n)
        return torch.where(inside, samples * pow(self.stride, -1, self.n) % self.n, -1)


@dataclass(frozen=True)
class StridedSpec(OrderSpec):
    kind, is_keyed = "strided", False
    name: str
    n: int
    stride: int

    def at(self, master_seed, task, epoch):
        return Strided(self.n, None, self.stride)

    def describe(self):
        return f"stride {self.stride}"


class StridedSampler(ShuffleSampler):
    def __init__(self, n, stride):
        super().__init__(n)
        self.spec = StridedSpec("strided", n, stride)


def make(stride=7):
    fastseed.init(42, rank=0, world_size=1)
    return steps(DataLoader(range(N), 4, sampler=StridedSampler(N, stride)), epochs=2, task=1)


def batches(loop, stop=None):
    return [(epoch, step, b.tolist()) for epoch, step, b in itertools.islice(loop, stop)]


def test_a_new_order_resumes_and_has_a_lineage():
    whole = batches(make())
    assert whole[0] == (0, 0, [0, 7, 4, 1])
    loop = make()
    first, state = batches(loop, 4), loop.state_dict()
    again = make()
    again.load_state_dict(state)
    assert first + batches(again) == whole
    lineage = Lineage.load(state)
    for epoch, step, batch in whole:
        assert lineage.at(epoch, step).sample.tolist() == batch
    for i in range(N):
        found = [(v.epoch, v.step) for v in lineage.where(i, epochs=range(2))]
        assert found == [(epoch, step) for epoch, step, batch in whole if i in batch]


def test_a_new_order_is_part_of_the_state():
    loop = make()
    batches(loop, 1)
    with pytest.raises(ValueError, match="'stride 3', as here"):
        make(3).load_state_dict(loop.state_dict())


def test_a_new_order_leaves_out_what_is_in_quarantine():
    loop = make()
    loop.quarantine([7])
    assert 7 not in [i for _, _, batch in batches(loop) for i in batch]
