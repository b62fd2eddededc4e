"""Stop after any batch, of any kind of loader, and continue: the same batches follow."""

from __future__ import annotations

import pytest
from helpers.loaders import Indexed, Plain, dealt, flat, on_ranks, same, start
from torch.utils.data import (
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    WeightedRandomSampler,
)

import fastseed
from fastseed.data import Loader, count_occurrences, per_sample


class Halves:
    """A sampler of batches that takes turns in batches of 3 and of 5, of a sampler's indices."""

    def __init__(self, sampler):
        self.sampler = sampler

    def __iter__(self):
        indices, size = list(self.sampler), 3
        while indices:
            yield indices[:size]
            indices, size = indices[size:], 8 - size

    def __len__(self):
        return -(-len(list(self.sampler)) // 4)


REGULAR = {
    "in order": lambda: {},
    "random": lambda: {"sampler": RandomSampler(range(30))},
    "counted": lambda: {"sampler": count_occurrences(WeightedRandomSampler([1.0] * 30, 30))},
}


@pytest.mark.parametrize("kind", REGULAR)
def test_another_batch_size(kind):
    def make(batch_size):
        return Loader(Plain(30), batch_size, collate_fn=same, **REGULAR[kind]())

    start(2)
    whole, batches, other = flat(make(4)), make(4), make(7)
    iterator = iter(batches)
    next(iterator), next(iterator)
    other.load_state_dict(batches.state_dict())
    sizes = [len(batch) for batch in other]
    assert sizes == [7, 7, 7, 1]
    other.load_state_dict(batches.state_dict())
    assert flat(other) == whole[8:]


def test_batches_of_any_size_are_counted_so_ranks_may_have_other_sizes():
    start(2)
    batches = Loader(Plain(30), batch_sampler=Halves(RandomSampler(range(30))), collate_fn=same)
    whole = list(batches)
    iterator = iter(batches)
    next(iterator), next(iterator)
    other = Loader(Plain(30), batch_sampler=Halves(RandomSampler(range(30))), collate_fn=same)
    other.load_state_dict(batches.state_dict())
    assert list(other) == whole[2:]
    state = batches.state_dict()
    start(2, world_size=2)
    other.load_state_dict(state)
    with pytest.raises(RuntimeError, match="there must be 1 ranks, as when the state was saved"):
        iter(other)


def distributed(world, batch, state=None, stop=None):
    def make(rank):
        sampler = DistributedSampler(range(48), num_replicas=world, rank=rank)
        return Loader(Plain(48), batch, sampler=sampler, collate_fn=same)

    shares, saved = on_ranks(make, world, state=state, stop=stop)
    return dealt(shares), saved


def test_distributed_sampler_goes_on_where_its_ranks_can():
    whole, _ = distributed(1, 1)
    before, state = distributed(2, 3, stop=2)
    assert state["position"] == 12 and before == whole[:12]
    for world, batch in ((1, 5), (2, 4), (3, 1), (4, 3)):
        assert distributed(world, batch, state)[0] == whole[12:]
    with pytest.raises(RuntimeError, match=r"must be a multiple of the 5 ranks, got 12"):
        distributed(5, 1, state)


def test_every_rank_that_reads_everything_counts_for_itself():
    for rank, world in ((0, 2), (1, 2), (0, 3)):
        start(rank=rank, world_size=world)
        batches = Loader(Plain(9), 2, sampler=SequentialSampler(range(9)), collate_fn=same)
        next(iter(batches))
        assert batches.state_dict()["position"] == 2 * world
        batches.load_state_dict(batches.state_dict())
        assert flat(batches) == list(range(2, 9))


@pytest.mark.parametrize("workers", [0, 2])
def test_epochs_after_a_resumed_one_are_whole(workers):
    def make():
        kept = {"num_workers": workers, "persistent_workers": workers > 0}
        return Loader(per_sample(Indexed(24)), 4, True, collate_fn=same, **kept)

    start(3)
    whole, state = make(), make().state_dict()
    expected = {}
    for epoch in (3, 4, 5):
        fastseed.reseed(1, epoch)
        expected[epoch] = list(whole)
    batches = make()
    batches.load_state_dict({**state, "task": 1, "epoch": 3, "position": 8})
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
