"""Iterable datasets that can be entered anywhere."""

import itertools

import pytest
from helpers import worker_cases
from helpers.inside import warn_once
from helpers.loaders import Indexed, Seeking, draw, flat, position_of, same, start
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

import fastseed
from fastseed.data import Loader, Seekable, per_sample, steps


def numbers(position):
    """A source: 0 … 36 from a position on."""
    return iter(range(position, 37))


def test_torchs_own_loader_is_told_what_to_use():
    with pytest.raises(RuntimeError, match=r"use fastseed\.data\.Loader"):
        worker_cases.flat(DataLoader(Seekable(numbers), num_workers=1))
    assert flat(DataLoader(Seekable(numbers), batch_size=4, collate_fn=same)) == list(range(37))


def test_what_was_seen_is_not_read_again():
    start()
    source = Seeking(37)
    batches = Loader(source, batch_size=4, collate_fn=same)
    assert batches.dataset.source is source
    for _ in itertools.islice(batches, 6):
        pass
    state = batches.state_dict()
    (order,) = fastseed.data.Lineage.load(state).history.orders
    assert (position_of(state), order.n, order.name) == (24, 37, "Seekable")
    source.read = 0
    batches.load_state_dict(state)
    list(batches)
    assert source.read == 37 - 24


def test_each_rank_reads_on_without_a_seek_for_each_batch():
    """Runs of its own would cost seeks, and leave the last ranks without a batch at the end."""
    for rank in range(3):
        start(rank=rank, world_size=3)
        source = Seeking(29)
        seeks, seek = [], source.seek
        source.seek = lambda position, seek=seek, seeks=seeks: (
            seeks.append(position),
            seek(position),
        )
        batches = list(Loader(source, batch_size=4, collate_fn=same))
        assert flat(batches) == list(range(rank, 29, 3)) and len(batches) == 3
        assert (source.read, seeks) == (29, [0])


def test_augmentation_that_belongs_to_the_sample():
    """A dataset of per_sample as the source: neither workers nor resuming change a bit."""
    start(5)
    samples = per_sample(Indexed(24))
    source = Seekable(lambda position: (samples[i] for i in range(position, 24)))
    whole = flat(Loader(source, batch_size=4, collate_fn=same))
    assert len({number for sample in whole for number in sample[1:]}) == 72
    for workers in (0, 1, 2):
        batches = Loader(source, batch_size=3, num_workers=workers, collate_fn=same)
        assert flat(batches) == whole
        for stop in (1, 5):
            for _ in itertools.islice(batches, stop):
                pass
            batches.load_state_dict(batches.state_dict())
            assert flat(batches) == whole[3 * stop :]


class Drawing(IterableDataset):
    """Draws for each sample; a worker's streams decide what."""

    def __init__(self, n):
        self.n, self.at = n, 0

    def seek(self, position):
        self.at = position

    def __iter__(self):
        first, self.at = self.at, 0
        return ((i, *draw()) for i in range(first, self.n))


@pytest.mark.parametrize("persistent", [False, True])
def test_streams_of_workers_in_iterable_data_sets(persistent):
    start()
    batches = Loader(
        Seekable(Drawing(12)),
        batch_size=2,
        num_workers=2,
        persistent_workers=persistent,
        collate_fn=same,
    )
    epochs = []
    for epoch in (0, 1, 0):
        fastseed.reseed(1, epoch)
        for _ in itertools.islice(batches, 2):
            pass
        epochs.append(flat(batches))
    assert epochs[0] == epochs[2]
    assert len({n for epoch in epochs[:2] for sample in epoch for n in sample[1:]}) == 72


@pytest.mark.parametrize("n", [33, 37, 40])
@pytest.mark.parametrize("drop_last", [False, True])
def test_len_is_that_of_each_rank(n, drop_last, caplog):
    """Where ranks have unequal numbers of batches, a model that communicates would wait."""
    warn_once.cache_clear()
    counts = []
    for rank in range(2):
        fastseed.init(42, rank=rank, world_size=2)
        fastseed.reseed(1, 0)
        batches = Loader(Seekable(range_from(n)), 4, drop_last=drop_last, collate_fn=same)
        counts.append(len(list(batches)))
        assert len(batches) == len(steps(batches).in_epoch(0)) == counts[-1]
    assert (
        ("one batch less" in caplog.text) == (counts[0] != counts[1]) == (n == 33 and not drop_last)
    )


def test_ranks_of_an_unknown_length_may_be_unequal(caplog):
    warn_once.cache_clear()
    start(world_size=2)
    list(Loader(Seekable(lambda position: iter(range(position, 16))), 4, drop_last=True))
    assert "one batch less" not in caplog.text
    list(Loader(Seekable(lambda position: iter(range(position, 16))), 4))
    assert "one batch less" in caplog.text


def range_from(n):
    """A source of known length."""

    class Source:
        def __len__(self):
            return n

        def seek(self, position):
            self.position = position

        def __iter__(self):
            return iter(range(self.position, n))

    return Source()


class Divided(IterableDataset):
    """Worker w of W has the numbers from w on, every W-th, and says where it is."""

    def __init__(self, n):
        self.n, self.at = n, 0

    def __iter__(self):
        info = get_worker_info()
        own = range(self.n)[info.id :: info.num_workers] if info else range(self.n)
        own = own[: len(own) // (info.id + 1)] if info else own  # the first one has more
        while self.at < len(own):
            self.at += 1
            yield own[self.at - 1]
        self.at = 0

    def state_dict(self):
        return {"at": self.at}

    def load_state_dict(self, state):
        self.at = state["at"]


def cut(worker):
    get_worker_info().dataset.n = 21


@pytest.mark.parametrize(("workers", "kept", "warns"), [(1, True, True), (1, False, False)])
def test_a_state_between_epochs_lacks_the_place_of_kept_workers(workers, kept, warns, caplog):
    warn_once.cache_clear()
    fastseed.init(42, rank=0, world_size=1)
    loop = steps(DataLoader(Divided(9), 3, num_workers=workers, persistent_workers=kept), 2)
    for _ in loop.in_epoch(0):
        loop.state_dict()
    assert "keep their copies" not in caplog.text
    loop.state_dict()
    assert ("Divided has a state, and persistent workers keep their copies" in caplog.text) is warns


@pytest.mark.parametrize(
    ("batch", "more"),
    [
        *((batch, more) for batch in (3, None) for more in ({}, {"persistent_workers": True})),
        (3, {"drop_last": True}),
    ],
)
def test_a_dataset_with_a_state_resumes_in_workers(batch, more):
    fastseed.init(42, rank=0, world_size=1)

    def make():
        more["worker_init_fn"] = cut  # the script's own
        return steps(DataLoader(Divided(23), batch, num_workers=3, **more), 2)

    whole, states = [], []
    loop = make()
    for epoch, step, given in loop:
        whole.append((epoch, step, given.tolist() if batch else given))
        states.append(loop.state_dict())
    numbers = [i for *_, given in whole for i in (given if batch else [given])]
    assert max(numbers) == (15 if "drop_last" in more else 18)
    for i in range(0, len(states), 4 if batch is None else 2):
        loop = make()
        loop.load_state_dict(states[i])
        assert loop.state_dict() == states[i]
        rest = [(e, s, g.tolist() if batch else g) for e, s, g in loop]
        assert rest == whole[i + 1 :], i
    fastseed.init(42, rank=1, world_size=2)
    with pytest.raises(ValueError, match="must be of rank 1, as here: a stream resumes with the s"):
        loop = make()
        loop.load_state_dict(states[0])
        next(iter(loop))
