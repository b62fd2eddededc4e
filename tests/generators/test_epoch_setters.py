"""Samplers and datasets whose epoch or scope reseed sets."""

import logging

import numpy as np
import pytest
import torch
from helpers.support import seeder
from torch.utils.data import DistributedSampler

import fastseed
from fastseed import SHARED


class Epochs:
    def __init__(self):
        self.received = []

    def set_epoch(self, epoch):
        self.received.append(epoch)


class Scopes(Epochs):
    def set_scope(self, task, epoch):
        self.received.append((task, epoch))


def sampler(rank=0, n=2):
    return DistributedSampler(range(100), num_replicas=n, rank=rank, shuffle=True)


def test_distributed_sampler_gets_a_seed_and_an_epoch():
    s, ours = seeder(), sampler()
    s.register_generator(ours, name="order")
    s.reseed(1, 7, 3)
    assert ours.epoch == 7
    assert ours.seed == s.derive_seed("order", task=1, epoch=7, rank=SHARED) % 2**31
    first = list(ours)
    s.reseed(1, 7, 99)  # in mid-epoch: the order is the epoch's
    assert list(ours) == first
    s.reseed(1, 8)
    assert list(ours) != first
    s.reseed(2, 7)
    assert list(ours) != first


def test_distributed_samplers_of_all_ranks_cut_one_order():
    """Also where the mesh gives each rank streams of its own."""
    orders = []
    for rank in range(4):
        where = {"dp": (rank // 2, 2), "tp": (rank % 2, 2)}
        s, ours = seeder(rank=rank, world_size=4, mesh=where), sampler(rank // 2)
        s.register_generator(ours)
        s.reseed(1, 7)
        orders.append(list(ours))
    assert orders[0] == orders[1] and orders[2] == orders[3]
    assert sorted(orders[0] + orders[2]) == list(range(100))


def test_distributed_sampler_needs_ranks_that_agree():
    s = seeder(None, rank=0, world_size=2)
    with pytest.raises(RuntimeError, match=r"fastseed\.register_generator: ranks cannot share"):
        s.register_generator(sampler())
    s.register_generator(Epochs())  # takes no seed


@pytest.mark.parametrize(("kind", "received"), [(Epochs, [7]), (Scopes, [(1, 7)])])
def test_others_receive_scope_or_epoch(kind, received):
    s, setter = seeder(), kind()
    s.register_generator(setter)
    s.reseed(1, 7, 5)
    assert setter.received == received
    s.unregister_generator(setter)
    s.reseed(1, 8)
    assert setter.received == received


def test_shuffle_samplers_follow():
    fastseed.init(42, rank=0, world_size=1)
    ours = fastseed.data.ShuffleSampler(50)
    fastseed.register_generator(ours)
    fastseed.reseed(1, 7)
    first = list(ours)
    fastseed.reseed(1, 8)
    assert sorted(first) == list(range(50)) and list(ours) != first
    fastseed.reseed(1, 7)
    assert list(ours) == first


def test_followers_draw_nothing_and_have_no_state(caplog):
    s, ours = seeder(), sampler()
    s.reseed(1, 7)
    alone = torch.rand(3), np.random.random(3)
    s.register_generator(ours, name="order")
    s.move(1, 7, 0)
    assert torch.rand(3).equal(alone[0]) and (np.random.random(3) == alone[1]).all()
    caplog.clear()
    with caplog.at_level(logging.INFO):
        held = s.state_dict(rng=True)
    assert "order" not in caplog.text
    assert not any(key.endswith(".order") for key in held)
    ours.seed, ours.epoch = 1, 1
    s.load_state_dict(held)
    assert ours.epoch == 7 and ours.seed == s.derive_seed("order", task=1, epoch=7) % 2**31
    held["rng.0.order"] = torch.zeros(4, dtype=torch.uint8)
    with pytest.raises(ValueError, match="belongs to a generator that must be registered"):
        s.load_state_dict(held)


def test_a_follower_that_fails_is_named():
    class Broken:
        def set_epoch(self, epoch):
            raise OSError("no such epoch")

    s, after = seeder(), Epochs()
    s.register_generator(Broken(), name="broken")
    s.register_generator(after)
    with pytest.raises(fastseed.ReseedError, match="broken: OSError") as caught:
        s.reseed(1, 7)
    assert list(caught.value.failures) == ["broken"] and after.received == [7]
    assert caught.value.failures["broken"].__traceback__ is None  # it would hold the follower
