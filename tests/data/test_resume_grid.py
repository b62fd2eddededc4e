"""An epoch of samples and its states are the same with any workers, and after it was resumed."""

from __future__ import annotations

from functools import cache

import pytest
from helpers.loaders import Indexed, draw, same, start

import fastseed
from fastseed.data import Loader, per_sample


def make(workers: int, batch: int, prefetch: int, persistent: bool) -> Loader:
    return Loader(
        per_sample(Indexed(32 * batch)),
        batch_size=batch,
        shuffle=True,
        num_workers=workers,
        prefetch_factor=prefetch if workers else None,
        persistent_workers=persistent and workers > 0,
        collate_fn=same,
    )


def train(batches):
    """Return the batch, random numbers and two states of each step."""
    log = []
    for batch in batches:
        log.append((batch, draw(), fastseed.state_dict(rng=True), batches.state_dict()))
    return log


@cache
def uninterrupted(batch: int):
    """The whole epoch without workers, and the states at its beginning."""
    start(3)
    batches = make(0, batch, 2, False)
    first = fastseed.state_dict(rng=True), batches.state_dict()
    return first, train(batches)


def states(batch, stop):
    first, whole = uninterrupted(batch)
    return whole[stop - 1][2:] if stop else first


@pytest.mark.parametrize("batch", [1, 4])
def test_the_samples_are_those_of_one_epoch(batch):
    _, whole = uninterrupted(batch)
    samples = [sample for step in whole for sample in step[0]]
    assert sorted(sample[0] for sample in samples) == list(range(32 * batch))
    assert len({number for sample in samples for number in sample[1:]}) == 3 * 32 * batch
    assert len({number for step in whole for number in step[1]}) == 3 * 32
    assert len(whole) == 32


@pytest.mark.parametrize(
    ("workers", "batch", "prefetch", "persistent"),
    [(1, 1, 2, False), (2, 4, 8, False), (4, 1, 8, True), (2, 1, 2, True), (1, 4, 2, True)],
)
@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_states_do_not_depend_on_workers(workers, batch, prefetch, persistent):
    """The uninterrupted run with workers: all of it, states included, is that without."""
    _, whole = uninterrupted(batch)
    start(3)
    log = train(make(workers, batch, prefetch, persistent))
    assert [(*step[:2], step[3]) for step in log] == [(*step[:2], step[3]) for step in whole]
    for mine, other in zip(log, whole, strict=True):
        assert mine[2].keys() == other[2].keys()
        assert all(str(mine[2][name]) == str(other[2][name]) for name in other[2])


@pytest.mark.parametrize("workers", [0, 2])
def test_epochs_after_the_resumed_one_are_whole(workers):
    start(3)
    batches = make(workers, 4, 2, True)
    expected = {}
    for epoch in (4, 5):
        fastseed.reseed(1, epoch)
        expected[epoch] = list(batches)
    job, position = states(4, 7)
    batches = make(workers, 4, 2, True)
    fastseed.load_state_dict(job)
    batches.load_state_dict(position)
    assert len(list(batches)) == 25
    for epoch in (4, 5):
        fastseed.reseed(1, epoch)
        assert list(batches) == expected[epoch]


def test_streams_of_workers_draw_nothing_again():
    """Without per_sample the augmentation after a resume is new: that of the stop's position."""
    for workers in (1, 2):
        start(3)
        batches = Loader(
            Indexed(24), batch_size=2, shuffle=True, num_workers=workers, collate_fn=same
        )
        log, position = [], None
        for k, batch in enumerate(batches):
            log.append(batch)
            if k == 5:
                position = batches.state_dict()
        batches.load_state_dict(position)
        rest = list(batches)
        flat = [[s for batch in part for s in batch] for part in (log[:6], log[6:], rest)]
        assert [s[0] for s in flat[1]] == [s[0] for s in flat[2]]
        assert not {n for s in flat[0] for n in s[1:]} & {n for s in flat[2] for n in s[1:]}
        batches.load_state_dict(position)
        assert list(batches) == rest, "and it is reproducible"
