"""The order of an epoch as a function: known answers, laws, arguments."""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

import pytest
import torch
from helpers import vectors
from helpers.inside import OrderSpec, Permutation
from helpers.sampled import sampler_at
from helpers.support import needs_native
from torch.utils.data import DataLoader

import fastseed
from fastseed.data import Lineage, ShuffleSampler, steps

LARGE = (65536, 65537, 10**6 + 3, 10**9, 2**32 + 1, 2**48 - 1, 2**48)
WHERE = {"task": 1, "epoch": 7, "master_seed": 42}


def test_the_sampler_gives_the_known_answers():
    for text in vectors.data_lines("shuffle"):
        kind, master, task, epoch, name, *rest = text.split(" ")
        (n, start, stride, count), answers = map(int, rest[:4]), rest[4:]
        at = {"master_seed": int(master), "task": int(task), "epoch": int(epoch), "name": name}
        if kind == "order":
            sampler = sampler_at(n, **at)
            assert sampler.index(start + (count - 1) * stride) == int(answers[-1])
            if stride == 1:
                found = sampler.indices(start, start + count)
                assert found.dtype == torch.int64 and list(map(str, found.tolist())) == answers


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


@pytest.mark.slow
@needs_native
def test_inverse_of_every_position_of_every_size():
    check_inverse(range(301, 10_001))


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


def test_each_coordinate_matters():
    changes = ({}, {"task": 2}, {"epoch": 8}, {"master_seed": 43}, {"name": "validation"})
    found = [sampler_at(10**6, **{**WHERE, **change}).indices(0, 1000) for change in changes]
    orders = [part.tolist() for part in found]
    orders.append(sampler_at(10**6 + 1, **WHERE).indices(0, 1000).tolist())
    for a in range(len(orders)):
        for b in range(a):
            assert sum(x == y for x, y in zip(orders[a], orders[b], strict=True)) < 5


@pytest.mark.cuda
def test_out_is_written_and_returned(device):
    sampler = sampler_at(1000, **WHERE)
    right = sampler.indices(3, 103)
    out = torch.zeros(100, dtype=torch.int64, device=device)
    assert sampler.indices(3, 103, out=out) is out
    assert torch.equal(out.cpu(), right)
    strided = torch.zeros(100, 3, dtype=torch.int64, device=device)
    assert sampler.indices(3, 103, out=strided[:, 1]).stride() == (3,)
    assert torch.equal(strided[:, 1].cpu(), right) and not strided[:, ::2].any()
    meta = torch.empty(100, dtype=torch.int64, device="meta")
    assert sampler.indices(3, 103, out=meta) is meta


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
