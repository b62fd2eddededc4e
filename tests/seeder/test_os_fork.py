"""Children of ``os.fork``: they draw what their parent draws, with a warning, until they reseed."""

import logging
import os
import random
import threading

import numpy as np
import pytest
import torch
from helpers import processes
from torch.utils.data import DataLoader, Dataset

import fastseed
from fastseed.data import Loader, ShuffleSampler, per_sample, worker_init_fn
from fastseed.random import keyed

pytestmark = pytest.mark.skipif(not hasattr(os, "forkpty"), reason="this system has no fork")


@pytest.fixture(autouse=True)
def _a_job():
    fastseed.init(42, rank=0, world_size=1)
    fastseed.reseed(1, 4)


def warnings():
    """The list to which the warnings of this process are added from now on."""
    said: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: said.append(record.getMessage())
    logging.getLogger("fastseed").addHandler(handler)
    return said


def in_child(work):
    """What ``work()`` returns in a forked child, and the warnings there."""

    def noted():
        said = warnings()
        return work(), said

    return processes.in_child(noted)


def block(make):
    with make:
        return torch.rand(2).tolist()


class Draws(Dataset):
    """Draws from torch's generator."""

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return torch.rand(()).item()


READERS = {
    "derive_key": lambda: fastseed.derive_key("x"),
    "derive_seeds": lambda: fastseed.derive_seeds("x", 2).tolist(),
    "random.keyed": lambda: block(keyed("x", 0)),
    "fork_rng": lambda: block(fastseed.fork_rng("x", index=0)),
    "nn.Dropout": lambda: fastseed.nn.Dropout(0.5, name="a")(torch.ones(64)).tolist(),
    "data.per_sample": lambda: per_sample(Draws())[1],
    "data.ShuffleSampler": lambda: list(ShuffleSampler(8)),
    "data.Loader": lambda: next(iter(Loader(range(4), 2))).tolist(),
    "data.worker_init_fn": lambda: worker_init_fn(0),
}


@pytest.mark.parametrize("name", READERS)
def test_a_child_that_reads_the_scope_of_its_parent_says_so_once(name):
    def read():
        first = READERS[name]()
        fastseed.derive_key("y"), fastseed.derive_key("z")
        return first

    found, said = in_child(read)
    assert in_child(read)[0] == found, "two children draw the same"
    (message,) = said
    assert message.startswith(f"fastseed.{name}: this process was forked and did not call reseed")
    assert "fastseed.reseed(task=1000 + i, epoch=...) in child i" in message


def test_four_children_with_the_line_of_the_warning_have_four_streams():
    def draw(i):
        fastseed.reseed(task=1000 + i, epoch=0)
        return [
            random.random(), np.random.random(), torch.rand(()).item(), fastseed.derive_key("x"),
            *block(keyed("x")), *block(fastseed.fork_rng("x")),
            fastseed.rollouts.seed(step=0, prompt=7, sample=i),
        ]  # fmt: skip

    found = [in_child(lambda i=i: draw(i)) for i in range(4)]
    assert all(said == [] for _, said in found)
    for column in zip(*(drawn for drawn, _ in found), strict=True):
        assert len(set(column)) == 4


def test_what_reads_no_scope_of_the_parent_says_nothing():
    def read():
        fastseed.derive_key("x", task=1, epoch=2)
        fastseed.init(7, rank=0, world_size=1)
        return fastseed.derive_key("x")

    assert in_child(read)[1] == []
    assert in_child(lambda: in_child(lambda: fastseed.derive_key("x"))[1])[0] != []  # a grandchild


def test_a_worker_of_a_loader_says_nothing():
    class Layer(Draws):
        def __getitem__(self, index):
            said = warnings()
            with fastseed.nn.label(str(index)):
                fastseed.nn.Dropout(0.5, name="a")(torch.ones(8))
            return len(said)

    assert [int(count) for count in DataLoader(Layer(), num_workers=1)] == [0] * 4


def test_a_child_of_another_thread_than_the_one_that_reseeds_reseeds():
    inside, forked = threading.Event(), threading.Event()

    def seed_slowly(seed):
        inside.set()
        assert forked.wait(60)

    fastseed.register_generator(seed_slowly)
    thread = threading.Thread(target=fastseed.reseed, args=(1,))
    thread.start()
    assert inside.wait(60)
    processes.in_child(lambda: (forked.set(), fastseed.reseed(2)))
    forked.set()
    thread.join()
