"""Stop on some ranks, go on with others: every sample once, in one order, with one augmentation."""

from __future__ import annotations

import itertools

import pytest
import torch
from helpers.loaders import Indexed, dealt, flat, on_ranks, same
from helpers.support import run_script

import fastseed
from fastseed.data import Loader, Seekable, per_sample


def make(n, batch, workers=0, **more):
    return Loader(
        per_sample(Indexed(n)),
        batch_size=batch,
        shuffle=True,
        num_workers=workers,
        collate_fn=same,
        **more,
    )


def run(n, world, batch, *, stop=None, state=None, workers=0, **more):
    """An epoch, or the rest of it, on each rank in turn; batches of each rank, and one's state."""
    return on_ranks(lambda rank: make(n, batch, workers, **more), world, state=state, stop=stop)


def order(n):
    """The epoch's samples, augmented, of one rank without stops."""
    return flat(run(n, 1, 1)[0][0])


@pytest.mark.parametrize("n", [pytest.param(50, marks=pytest.mark.slow), 7])
def test_any_world_and_batch_after_any_other(n):
    expected = order(n)
    for world, batch, new_world, new_batch in itertools.product(
        (1, 2, 3, 4), (1, 3), (1, 2, 3, 4), (2, 5)
    ):
        for stop in (1, 4):
            before, state = run(n, world, batch, stop=stop)
            done = dealt(before)
            assert state["position"] == min(len(done), n)
            after, _ = run(n, new_world, new_batch, state=state)
            done, rest = done[:n], dealt(after)
            left = n - len(done)
            assert (done + rest)[:n] == expected
            assert len(rest) == -(-left // new_world) * new_world, "only the end is filled up"
            sizes = {tuple(map(len, batches)) for batches in after}
            assert len(sizes) == 1, "ranks do the same number of steps"


def test_drop_last_drops_what_does_not_fill_a_batch_of_the_reader():
    expected = order(50)
    before, state = run(50, 2, 4, stop=3, drop_last=True)
    assert state["position"] == 24
    after, _ = run(50, 3, 2, state=state, drop_last=True)
    assert dealt(before) + dealt(after) == expected[: 24 + 4 * 6]
    assert all(len(batch) == 2 for batches in after for batch in batches)


def test_iterable_data_sets_change_worlds_too():
    def numbers_from(position):
        return range(100 + position, 145)

    def made(batch):
        return lambda rank: Loader(Seekable(numbers_from), batch, collate_fn=same)

    for world, batch, new_world, new_batch in itertools.product((1, 2, 3), (1, 4), (1, 2, 4), (3,)):
        before, state = on_ranks(made(batch), world, stop=2)
        after, _ = on_ranks(made(new_batch), new_world, state=state)
        done = dealt(before) + sorted(s for share in after for s in flat(share))
        assert done == list(range(100, 145))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_two_ranks_that_are_killed_then_one(tmp_path):
    path = tmp_path / "state.pt"
    stopped = run_script("killed_epoch.py", path, timeout=100)
    assert len(stopped) == 24
    saved = torch.load(path, weights_only=True)
    fastseed.init(7, rank=0, world_size=1)
    fastseed.load_state_dict(saved["job"])
    for workers in (0, 3):
        batches = make(48, 5, workers)
        batches.load_state_dict(saved["batches"])
        resumed = flat(batches)
        fastseed.reseed(1, 5)
        whole = flat(make(48, 4))
        assert [tuple(sample) for sample in stopped] + resumed == whole
