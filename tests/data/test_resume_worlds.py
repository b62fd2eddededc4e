"""Stop on some ranks, go on with others: every sample once, in one order, with one augmentation."""

from __future__ import annotations

import itertools

import pytest
import torch
from helpers.loaders import Indexed, dealt, flat, on_ranks, position_of, same
from helpers.support import run_script

import fastseed
from fastseed.data import Loader, per_sample


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


def test_any_world_and_batch_after_any_other():
    n = 7
    expected = order(n)
    for world, batch, new_world, new_batch in itertools.product(
        (1, 2, 3, 4), (1, 3), (1, 2, 3, 4), (2, 5)
    ):
        for stop in (1, 4):
            before, state = run(n, world, batch, stop=stop)
            done = dealt(before)
            assert position_of(state) == min(len(done), n)
            after, _ = run(n, new_world, new_batch, state=state)
            done, rest = done[:n], dealt(after)
            left = n - len(done)
            assert (done + rest)[:n] == expected
            assert len(rest) == -(-left // new_world) * new_world, "only the end is filled up"
            sizes = {tuple(map(len, batches)) for batches in after}
            assert len(sizes) == 1, "ranks do the same number of steps"


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
