"""Stop on some ranks, go on with others: every sample once, in one order, with one augmentation."""

import pytest
import torch
from helpers.loaders import Indexed, Plain, flat, same, start
from helpers.support import run_script
from torch.utils.data import DistributedSampler

import fastseed
from fastseed.data import Loader, per_sample


def make(n, batch, workers=0):
    return Loader(per_sample(Indexed(n)), batch, True, num_workers=workers, collate_fn=same)


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


def test_where_batches_of_any_size_are_counted_the_ranks_stay():
    start(2)
    batches = Loader(Plain(30), batch_sampler=[[0, 1, 2], [3]], collate_fn=same)
    next(iter(batches))
    batches.load_state_dict(batches.state_dict())
    start(2, world_size=2)
    with pytest.raises(RuntimeError, match="there must be 1 ranks, as when the state was saved"):
        iter(batches)


def test_a_distributed_sampler_goes_on_only_where_its_ranks_can():
    def make(world):
        start(2, world_size=world)
        sampler = DistributedSampler(range(48), num_replicas=world, rank=0)
        return Loader(Plain(48), 6, sampler=sampler, collate_fn=same)

    batches, other = make(2), make(5)
    start(2, world_size=2)
    next(iter(batches))
    start(2, world_size=5)
    other.load_state_dict(batches.state_dict())
    with pytest.raises(RuntimeError, match=r"must be a multiple of the 5 ranks, got 12"):
        iter(other)


@pytest.mark.parametrize("workers", [0, 2])
def test_epochs_after_a_resumed_one_are_whole(workers):
    def make():
        kept = {"num_workers": workers, "persistent_workers": workers > 0}
        return Loader(per_sample(Indexed(24)), 4, True, collate_fn=same, **kept)

    start(3)
    whole, expected = make(), {}
    batches = iter(whole)
    next(batches), next(batches)
    state = whole.state_dict()
    for epoch in (3, 4, 5):
        fastseed.reseed(1, epoch)
        expected[epoch] = list(whole)
    batches = make()
    batches.load_state_dict(state)
    for epoch in (3, 4, 5):
        fastseed.reseed(1, epoch)
        assert list(batches) == expected[epoch][2 * (epoch == 3) :]


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
