"""A loader's iterations follow the job, and draw nothing from it."""

import gc

import pytest
import torch
from helpers.loaders import Numbers, Plain, flat, same, start
from helpers.support import scramble, snapshot, without_scope
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, WeightedRandomSampler

import fastseed
from fastseed.data import Loader, ShuffleSampler


def epoch_of(batches, epoch=0, task=1):
    fastseed.reseed(task, epoch)
    return list(batches)


def test_iterating_needs_init():
    batches = Loader(Plain(4))
    with pytest.raises(RuntimeError, match=r"call fastseed\.init"):
        iter(batches)
    fastseed.init(42, rank=0, world_size=1)
    assert len(list(batches)) == 4
    without_scope()
    with pytest.raises(RuntimeError, match=r"data\.Loader: call fastseed\.reseed"):
        iter(batches)


def test_shuffle_follows_the_scope_and_nothing_else():
    start()
    batches = Loader(Plain(50), batch_size=7, shuffle=True, collate_fn=same)
    orders = {
        (task, epoch): tuple(flat(epoch_of(batches, epoch, task)))
        for task in (1, 2)
        for epoch in range(4)
    }
    assert len(set(orders.values())) == 8
    assert all(sorted(order) == list(range(50)) for order in orders.values())
    scramble()
    assert tuple(flat(epoch_of(batches, 2))) == orders[1, 2]
    fastseed.reseed(1, 3, step=17)
    assert tuple(flat(batches)) == orders[1, 3], "the step does not matter"
    start()
    again = Loader(Plain(50), batch_size=9, shuffle=True, collate_fn=same, num_workers=2)
    assert tuple(flat(epoch_of(again, 3, 2))) == orders[2, 3]
    start(master_seed=43)
    assert tuple(flat(epoch_of(again, 3, 2))) != orders[2, 3]


def test_a_generator_that_the_user_gave_is_used():
    start()
    mine = torch.Generator().manual_seed(7)
    sampler = RandomSampler(range(40), generator=mine)
    order = flat(Loader(Plain(40), sampler=sampler, collate_fn=same))
    mine.manual_seed(7)
    assert order == list(sampler)
    theirs = Loader(Plain(4), num_workers=1, generator=mine)
    mine.manual_seed(7)
    list(theirs)
    expected = torch.Generator().manual_seed(7)
    torch.empty((), dtype=torch.int64).random_(generator=expected)
    assert torch.equal(mine.get_state(), expected.get_state()), "one base seed was drawn from it"


def test_set_epoch_of_a_shuffle_sampler_counts_without_reseed():
    start(0)
    batches = Loader(Plain(24), shuffle=True, collate_fn=same)
    by_reseed = [flat(epoch_of(batches, epoch)) for epoch in range(4)]
    fastseed.reseed(1, 0)
    for epoch in (1, 2, 3, 2, 1):
        batches.sampler.set_epoch(epoch)
        for _ in range(2):
            assert flat(batches) == by_reseed[epoch], epoch


def test_wrapped_samplers_are_reached():
    class Sorted:
        """A sampler around a sampler, as batching by length does it."""

        def __init__(self, sampler):
            self.sampler = sampler

        def __iter__(self):
            return iter(sorted(self.sampler, key=lambda i: i % 5))

        def __len__(self):
            return len(self.sampler)

    start()
    inner = ShuffleSampler(30)
    batches = Loader(
        Plain(30), batch_sampler=BatchSampler(Sorted(inner), 4, False), collate_fn=same
    )
    first, second = epoch_of(batches, 0), epoch_of(batches, 1)
    assert first != second and epoch_of(batches, 0) == first


CASES = {
    "shuffle": lambda: (Plain(9), {"shuffle": True}),
    "in order": lambda: (Plain(9), {}),
    "random": lambda: (Plain(9), {"sampler": RandomSampler(range(9))}),
    "weighted": lambda: (Plain(9), {"sampler": WeightedRandomSampler([1.0] * 9, 9)}),
    "no batches": lambda: (Plain(9), {"batch_size": None, "sampler": RandomSampler(range(9))}),
    "iterable": lambda: (Numbers(9), {}),
    "dict": lambda: (Plain(9), {"batch_sampler": [[0, 1], [2]]}),
}


@pytest.mark.parametrize("kind", CASES)
def test_no_draw_of_the_main_process_is_consumed(kind):
    start()
    for workers in (0, 1, 2):
        for persistent in (False, True) if workers else (False,):
            dataset, settings = CASES[kind]()
            batches = Loader(
                dataset, num_workers=workers, persistent_workers=persistent, **settings
            )
            scramble()
            before = snapshot()
            for _ in range(2):
                iterator = iter(batches)
                assert snapshot() == before, "iter"
                for _ in iterator:
                    assert snapshot() == before, "next"
            assert snapshot() == before, (workers, persistent)


@pytest.fixture
def quick_shutdown(monkeypatch):
    """torch waits so long for each worker whose iteration ended in an error."""
    monkeypatch.setattr(torch.utils.data._utils, "MP_STATUS_CHECK_INTERVAL", 0.2)
    yield
    gc.collect()  # the iterators that the errors held


class Stopping(Plain):
    """A dataset that raises StopIteration, as `next` without a default does."""

    def __getitem__(self, i):
        return next(iter([])) if i == 6 else int(i)


@pytest.mark.parametrize("workers", [0, 2])
def test_stop_iteration_of_a_dataset_is_an_error(workers, quick_shutdown):
    start()
    batches = Loader(Stopping(10), batch_size=2, num_workers=workers, collate_fn=same)
    seen = []
    with pytest.raises(RuntimeError, match="must not raise StopIteration, got it for index 6"):
        seen += batches
    iterator = iter(batches)
    assert [next(iterator) for _ in range(3)] == [[0, 1], [2, 3], [4, 5]]
    with pytest.raises(RuntimeError, match="must not raise StopIteration, got it for index 6"):
        next(iterator)


def stop_at_six(batch):
    """A collate function that raises StopIteration."""
    return next(iter([])) if 6 in batch else batch


@pytest.mark.parametrize("workers", [0, 2])
def test_stop_iteration_of_a_collate_function_is_an_error(workers, quick_shutdown):
    start()
    batches = Loader(Plain(10), batch_size=2, num_workers=workers, collate_fn=stop_at_six)
    seen = []
    with pytest.raises(RuntimeError, match="collate_fn must not raise StopIteration"):
        seen += batches
    batches.collate_fn = same
    assert flat(batches) == list(range(10))


def test_settings_that_are_wrong_together_are_refused():
    for make in (DataLoader, Loader):
        with pytest.raises(ValueError, match="mutually exclusive with shuffle"):
            make(Plain(4), shuffle=True, sampler=[1])
    with pytest.raises(TypeError, match="batch_sise"):
        Loader(Plain(4), batch_sise=3)
    with pytest.raises(ValueError, match=r"len\(data\) must be in"):
        Loader(Plain(0), shuffle=True)
    with pytest.raises(ValueError, match="expected unspecified shuffle option"):
        Loader(Numbers(4), shuffle=True)
