"""The well-known trap of random numbers in DataLoader workers: what torch does, and what ours do.

Each snippet below is one that circulates. torch's own behaviour is asserted as far as it is the
same from 2.10 to 2.13. Those versions do seed NumPy's global generator in workers (older ones did
not, which is how the trap got its fame), so what is left of it is:

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
from helpers.support import snapshot
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
import fastseed.data

GLOBALS = ("python", "numpy", "torch")
ALL = N * EPOCHS


@pytest.fixture(autouse=True)
def job():
    fastseed.init(42, rank=0, world_size=1)


def distinct(epochs):
    return len({value for epoch in epochs for value in epoch})


# ---------------------------------------------------------------- held by the dataset


@pytest.mark.parametrize("kind", KINDS)
def test_held_generators_are_duplicates_today(kind):
    epochs = plain_epochs(Draws(KINDS[kind]()))
    for epoch in epochs:
        assert len(epoch) == N and len(set(epoch)) == N // WORKERS  # 16 of 32
    assert distinct(epochs) == N // WORKERS  # and the same again in every epoch


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_held_generators_are_distinct_with_ours(kind, persistent):
    first = epochs_of(Draws(KINDS[kind]()), persistent_workers=persistent)
    assert distinct(first) == ALL  # 96 of 96
    assert epochs_of(Draws(KINDS[kind]()), persistent_workers=not persistent) == first


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
    # Reproducible, whatever starts the workers.
    assert epochs_of(every_kind(), "fork", epochs) == found


@pytest.mark.slow
def test_held_generators_are_duplicates_under_spawn_today():
    (found, *_) = plain_epochs(every_kind(), "spawn", epochs=1)
    expected = [N // WORKERS] * len(KINDS) + [N] * len(GLOBALS)
    assert [len(set(column)) for column in columns([found])] == expected


def test_generators_in_an_iterable_data_set():
    kind = KINDS["numpy.random.Generator"]
    assert distinct(plain_epochs(Stream(kind()))) == N // WORKERS
    first = epochs_of(Stream(kind()))
    assert distinct(first) == ALL
    assert epochs_of(Stream(kind()), persistent_workers=True) == first


# ---------------------------------------------------------------- the global generators


@pytest.mark.parametrize("name", GLOBALS)
def test_global_generators_hang_on_the_main_process_today(name):
    """Distinct, but one number more or less in the main process changes them all."""
    torch.manual_seed(0)
    first = plain_epochs(Draws(name))
    assert distinct(first) == ALL
    torch.manual_seed(0)
    assert plain_epochs(Draws(name)) == first
    torch.manual_seed(0)
    torch.rand(())  # say, a model with one more layer
    assert distinct([*first, *plain_epochs(Draws(name))]) == 2 * ALL


@pytest.mark.parametrize("name", GLOBALS)
def test_global_generators_hang_on_nothing_with_ours(name):
    first = epochs_of(Draws(name))
    assert distinct(first) == ALL
    torch.rand(())
    random.random()
    np.random.random()
    assert epochs_of(Draws(name), persistent_workers=True) == first


def test_an_epoch_that_was_left_early_moves_the_next_one_today():
    def second(reads):
        torch.manual_seed(0)
        loader = DataLoader(Draws("python"), **options(persistent_workers=True))
        for _, _ in zip(range(reads), loader, strict=False):
            pass
        return flat(loader)

    assert second(reads=8) != second(reads=1)


def test_an_epoch_that_was_left_early_moves_nothing_with_ours():
    epochs = Epochs(Draws("python"), persistent_workers=True)
    whole = [epochs.run(0), epochs.run(1)]
    assert epochs.run(1) == whole[1]
    other = Epochs(Draws("python"), persistent_workers=True)
    assert other.run(1) == whole[1]  # entered right there


def test_a_loader_draws_from_the_main_process_today():
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


def test_seeding_by_the_worker_repeats_every_epoch_today():
    epochs = plain_epochs(Draws("numpy"), worker_init_fn=seed_by_id)
    assert distinct(epochs) == N
    assert epochs[0] == epochs[1] == epochs[2]


def test_nobody_has_to_seed_by_the_worker_with_ours():
    assert distinct(epochs_of(Draws("numpy"))) == ALL


def test_seeding_from_torch_works_today_and_is_reproducible_with_ours():
    torch.manual_seed(0)
    assert distinct(plain_epochs(Draws("numpy"), worker_init_fn=seed_by_torch)) == ALL
    first = epochs_of(Draws("numpy"), user_init=seed_by_torch)
    torch.rand(())
    assert distinct(first) == ALL
    assert epochs_of(Draws("numpy"), user_init=seed_by_torch) == first


def test_reseeding_a_held_generator_by_hand_still_works_with_ours():
    data = Draws(np.random.default_rng(7))
    assert distinct(plain_epochs(data, worker_init_fn=reseed_held)) == ALL
    assert len(set(Epochs(data, user_init=reseed_held).run(0))) == N


# ---------------------------------------------------------------- without a fastseed loader


def test_worker_init_fn_in_a_loader_of_torch():
    def epochs(*kinds):
        data = Transformed(*(Transform(KINDS[k]()) for k in kinds))
        loader = DataLoader(data, worker_init_fn=fastseed.data.worker_init_fn, **options())
        found = []
        for epoch in range(EPOCHS):
            fastseed.reseed(1, epoch)
            found.append(flat(loader))
        return found

    first = epochs(*KINDS)
    assert distinct(first) == ALL
    assert (
        epochs(*KINDS) == first == epochs_of(Transformed(*(Transform(m()) for m in KINDS.values())))
    )


def test_iterating_with_ours_leaves_the_main_process_alone():
    generator = torch.Generator()
    before = snapshot()
    epochs_of(Draws("torch"), generator=generator)
    assert snapshot() == before
