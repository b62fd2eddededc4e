"""The well-known trap of random numbers in DataLoader workers, with torch alone and with fastseed.

Each case is one that circulates. torch's own behaviour is asserted as far as it is the same from
2.10 to 2.13. Those versions do seed NumPy's global generator in workers (older ones did not), so
what is left of the trap is:

- generators that a dataset holds are copied with it: every worker draws the same numbers, and each
  epoch starts over;
- what the global generators draw depends on everything that the main process drew before, on how
  many workers there are, and, in persistent workers, on how far earlier epochs were read;
- a ``worker_init_fn`` that seeds with the worker's id alone gives every epoch the same numbers.
"""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from helpers.worker_cases import (
    EPOCHS,
    KINDS,
    WORKERS,
    Draws,
    DrawsAll,
    Epochs,
    N,
    Stream,
    Transform,
    Transformed,
    epochs_of,
    flat,
    options,
    plain_epochs,
)
from torch.utils.data import DataLoader

import fastseed

GLOBALS = ("python", "numpy", "torch")
ALL = N * EPOCHS


@pytest.fixture(autouse=True)
def job():
    fastseed.init(42, rank=0, world_size=1)


def distinct(epochs):
    return len({value for epoch in epochs for value in epoch})


# ---------------------------------------------------------------- held by the dataset


@pytest.mark.parametrize("dataset", [Draws, Stream])
@pytest.mark.parametrize("kind", KINDS)
def test_held_generators_repeat_in_torch_and_not_in_fastseed(kind, dataset):
    theirs = plain_epochs(dataset(KINDS[kind]()))
    assert all(len(epoch) == N and len(set(epoch)) == N // WORKERS for epoch in theirs)
    assert distinct(theirs) == N // WORKERS  # 16 of 32, and the same again in every epoch
    first = epochs_of(dataset(KINDS[kind]()))
    assert distinct(first) == ALL  # 96 of 96
    assert epochs_of(dataset(KINDS[kind]()), persistent_workers=True) == first


def every_kind():
    return DrawsAll([*(make() for make in KINDS.values()), *GLOBALS])


def columns(epochs):
    """Return the numbers of each generator, over all epochs."""
    return list(zip(*(sample[1:] for epoch in epochs for sample in epoch), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("persistent", [False, True])
def test_all_of_them_under_spawn(persistent):
    epochs = EPOCHS if persistent else 2  # otherwise each has new workers, which take long to start
    found = epochs_of(every_kind(), "spawn", epochs, persistent_workers=persistent)
    assert [len(set(column)) for column in columns(found)] == [epochs * N] * 7
    assert epochs_of(every_kind(), "fork", epochs) == found


@pytest.mark.slow
def test_held_generators_repeat_under_spawn_in_torch():
    (found, *_) = plain_epochs(every_kind(), "spawn", epochs=1)
    expected = [N // WORKERS] * len(KINDS) + [N] * len(GLOBALS)
    assert [len(set(column)) for column in columns([found])] == expected


# ---------------------------------------------------------------- the global generators


@pytest.mark.parametrize("name", GLOBALS)
def test_global_generators_depend_on_the_main_process_in_torch_alone(name):
    """Distinct, but one number more or less in the main process changes them all."""
    theirs = []
    for draws in (0, 0, 1):  # say, a model with one more layer
        torch.manual_seed(0)
        torch.rand(draws)
        theirs.append(plain_epochs(Draws(name)))
    assert distinct(theirs[0]) == ALL and theirs[0] == theirs[1]
    assert distinct([*theirs[0], *theirs[2]]) == 2 * ALL
    first = epochs_of(Draws(name))
    assert distinct(first) == ALL
    torch.rand(()), random.random(), np.random.random()
    assert epochs_of(Draws(name), persistent_workers=True) == first


def test_an_epoch_that_was_left_early_moves_the_next_one_in_torch_alone():
    def second(reads):
        torch.manual_seed(0)
        loader = DataLoader(Draws("python"), **options(persistent_workers=True))
        for _, _ in zip(range(reads), loader, strict=False):
            pass
        return flat(loader)

    assert second(reads=8) != second(reads=1)
    epochs = Epochs(Draws("python"), persistent_workers=True)
    epochs.run(0)
    assert epochs.run(1) == epochs.run(1) == Epochs(Draws("python")).run(1)


def test_a_loader_of_torch_draws_from_the_main_process():
    before = torch.get_rng_state()
    flat(DataLoader(Draws("python"), **options()))
    assert not torch.equal(torch.get_rng_state(), before)


# ---------------------------------------------------------------- the usual cures


def seed_by_id(worker_id):
    np.random.seed(worker_id)


def seed_by_torch(worker_id):
    np.random.seed(torch.initial_seed() % 2**32)


def reseed_held(worker_id):
    """The advice of torch's documentation, with held generators."""
    info = torch.utils.data.get_worker_info()
    info.dataset.rng = np.random.default_rng(info.seed)


def test_seeding_by_the_worker_repeats_every_epoch():
    epochs = plain_epochs(Draws("numpy"), worker_init_fn=seed_by_id)
    assert distinct(epochs) == N and epochs[0] == epochs[1] == epochs[2]


def test_seeding_from_torch_works_and_is_reproducible_in_fastseed():
    torch.manual_seed(0)
    assert distinct(plain_epochs(Draws("numpy"), worker_init_fn=seed_by_torch)) == ALL
    first = epochs_of(Draws("numpy"), user_init=seed_by_torch)
    torch.rand(())
    assert distinct(first) == ALL
    assert epochs_of(Draws("numpy"), user_init=seed_by_torch) == first


def test_reseeding_a_held_generator_by_hand_still_works():
    data = Draws(np.random.default_rng(7))
    assert distinct(plain_epochs(data, worker_init_fn=reseed_held)) == ALL
    assert len(set(Epochs(data, user_init=reseed_held).run(0))) == N


def test_worker_init_fn_in_a_loader_of_torch():
    def dataset():
        return Transformed(*(Transform(make()) for make in KINDS.values()))

    def epochs():
        loader = DataLoader(dataset(), worker_init_fn=fastseed.data.worker_init_fn, **options())
        found = []
        for epoch in range(EPOCHS):
            fastseed.reseed(1, epoch)
            found.append(flat(loader))
        return found

    first = epochs()
    assert distinct(first) == ALL
    assert epochs() == first == epochs_of(dataset())
