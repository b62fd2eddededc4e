"""``per_batch``: what ``collate_fn`` draws follows the batch's samples, whoever collates them."""

import itertools
import random

import numpy as np
import pytest
import torch
from helpers.batches import noisy
from helpers.inside import derive, scalar, streams
from helpers.loaders import Indexed, Numbers, Plain, Seeking, draw, on_ranks, start
from helpers.support import snapshot
from helpers.worker_cases import flat
from torch.utils.data import BatchSampler, DataLoader

import fastseed
from fastseed.data import Loader, Repeat, Seekable, per_batch, per_sample, steps

N, BATCH, WORKERS = 20, 4, (0, 1, 2, 5)


def first(samples):
    return samples[0] if isinstance(samples, list) else samples


def numbers(loader):
    """What each batch drew, by its first sample."""
    return {first(samples): drawn for samples, drawn in loader}


@pytest.fixture(autouse=True)
def job():
    start(3)


def expected(index, occurrence=0, name=None, epoch=3):
    """The numbers of a batch by the specification: the key of its stream is a scope."""
    scope = scalar.scope_key(42, 1, epoch, 0)
    if name is not None:
        key = scalar.stream_key(scalar.name_key(scope, scalar.name_words(name)), 0, 0, 0, 1)
        scope = key & (2**64 - 1), key >> 64
    batch = scalar.name_key(scope, scalar.name_words("batch"))
    key = scalar.stream_key(batch, 0, occurrence, index, scalar.DOMAIN_SAMPLE)
    scope = key & (2**64 - 1), key >> 64
    keys = [
        scalar.stream_key(scalar.name_key(scope, scalar.name_words(name)), 0, 0, 0, 3)
        for name in ("python", "numpy", "torch.cpu")
    ]
    legacy = np.random.RandomState(np.random.MT19937())
    state = derive.mt19937_state(keys[1])
    legacy.set_state(("MT19937", state, 624))
    return (
        random.Random(keys[0]).getrandbits(62),
        int(legacy.randint(2**62)),
        int(torch.randint(2**62, (), generator=streams.torch_generator(keys[2]))),
    )


# ---------------------------------------------------------------- whose numbers


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", ["DataLoader", "Loader", "steps", "plain dataset", "named"])
def test_the_numbers_are_those_of_the_first_sample(kind, workers):
    data = Plain(N) if kind in ("plain dataset", "named") else per_sample(Plain(N))
    more = {"num_workers": workers, "collate_fn": per_batch(noisy)}
    name = "eval" if kind == "named" else None
    if kind == "DataLoader":
        data.set_epoch(3)
        batches = DataLoader(data, BATCH, **more)
    elif kind == "steps":
        loop = steps(DataLoader(data, BATCH, **more), epochs=4)
        batches = (batch for _, _, batch in loop.in_epoch(3))
    else:
        batches = Loader(data, BATCH, name=name, **more)
    assert numbers(batches) == {i: expected(i, name=name) for i in range(0, N, BATCH)}


def test_neither_epochs_tasks_seeds_nor_samples_have_the_same_numbers():
    data = per_sample(Indexed(N))
    seen = []
    for seed, task, epoch in ((42, 1, 3), (42, 1, 4), (42, 2, 3), (43, 1, 3)):
        fastseed.init(seed, rank=0, world_size=1)
        fastseed.reseed(task, epoch)
        for samples, drawn in Loader(data, BATCH, collate_fn=per_batch(noisy)):
            seen += [*drawn, *(x for sample in samples for x in sample[1:])]
    assert len(set(seen)) == len(seen) == 4 * 3 * (N // BATCH + N)


def test_a_sample_that_comes_again_begins_another_batch():
    for data in (per_sample(Plain(N)), Plain(N)):
        order = [[7, 1], [Repeat(7), 2], [-3, 5]]
        drawn = [
            drawn for _, drawn in Loader(data, batch_sampler=order, collate_fn=per_batch(noisy))
        ]
        assert drawn == [expected(7), expected(7, 1), expected(N - 3)]


@pytest.mark.parametrize("workers", [0, 1])
def test_requests_of_every_form(workers):
    more = {"num_workers": workers, "collate_fn": per_batch(noisy)}
    order = BatchSampler(range(0, N, 2), 3, False)
    starts = [0, 6, 12, 18]
    data = per_sample(Plain(N))
    for loader in (
        Loader(data, batch_sampler=order, **more),
        Loader(Lists(N), None, sampler=order, **more),
    ):
        assert list(numbers(loader).values()) == [expected(i) for i in starts]
    for dataset in (data, Plain(N)):
        assert numbers(Loader(dataset, batch_size=None, **more)) == {
            i: expected(i) for i in range(N)
        }


class Lists(Plain):
    """Returns a whole batch for a list of indices."""

    def __getitem__(self, indices):
        return list(indices)


def test_a_registered_generator_and_those_of_the_collator_have_their_streams():
    mine = np.random.default_rng(1)
    fastseed.register_generator(mine, name="mine")

    class Collator:
        def __init__(self):
            self.rng, self.generator = random.Random(5), torch.Generator()

        def collate(self, samples):
            own = self.rng.random(), float(torch.rand((), generator=self.generator))
            return samples, (mine.random(), *own)

        __call__ = collate

    found = [
        numbers(Loader(Plain(N), BATCH, num_workers=n, collate_fn=per_batch(collate)))
        for n, collate in ((0, Collator()), (2, Collator()), (1, Collator().collate))
    ]
    assert found[0] == found[1] == found[2]
    assert len({x for drawn in found[0].values() for x in drawn}) == 15


@pytest.mark.parametrize("fails", [False, True])
def test_the_generators_are_restored(fails):
    def collate(samples):
        draw()
        if fails and 8 in samples:
            raise KeyError(8)
        return samples

    before = snapshot()
    batches = iter(Loader(per_sample(Plain(N)), BATCH, collate_fn=per_batch(collate)))
    try:
        for _ in batches:
            assert snapshot() == before
        assert not fails
    except KeyError:
        assert fails
    assert snapshot() == before


def test_in_a_worker_the_dataset_goes_on_in_the_worker_s_own_stream():
    def epoch(collate):
        return [
            samples for samples, _ in Loader(Indexed(N), BATCH, num_workers=1, collate_fn=collate)
        ]

    assert epoch(per_batch(noisy)) == epoch(lambda samples: (samples, None))


EVERY_STEP = [(stop, WORKERS[stop % 4], WORKERS[(3 * stop + 1) % 4]) for stop in range(10)]


@pytest.mark.parametrize("dataset", [Plain, lambda n: per_sample(Indexed(n))])
@pytest.mark.parametrize(
    ("method", "stops"),
    [
        ("fork", [(2, 0, 1), (7, 1, 0)]),
        pytest.param("fork", EVERY_STEP, marks=pytest.mark.slow),
        pytest.param("forkserver", [(1, 1, 2), (4, 2, 5), (8, 5, 0)], marks=pytest.mark.slow),
    ],
)
def test_after_a_resume_the_numbers_are_the_same(dataset, method, stops):
    def loop(workers):
        kept = {"persistent_workers": True, "multiprocessing_context": method} if workers else {}
        loader = DataLoader(
            dataset(N),
            BATCH,
            shuffle=True,
            num_workers=workers,
            collate_fn=per_batch(noisy),
            **kept,
        )
        return steps(loader, epochs=2)

    whole = [batch for *_, batch in loop(0)]
    for stop, before, after in stops:
        begun, found = loop(before), []
        state = begun.state_dict()
        for _, _, batch in itertools.islice(begun, stop):
            found.append(batch)
            state = begun.state_dict()
        resumed = loop(after)
        resumed.load_state_dict(state)
        assert found + [batch for *_, batch in resumed] == whole


def test_a_job_with_slots_has_the_numbers_of_the_first_sample_of_each():
    loader = DataLoader(Plain(N), 2, shuffle=True, collate_fn=per_batch(noisy))
    for epoch, _, micro_batches in steps(loader, epochs=1, slots=5):
        for samples, drawn in micro_batches:
            assert drawn == expected(samples[0], epoch=epoch)


@pytest.mark.parametrize("workers", [0, 2])
def test_an_iterable_dataset_has_its_positions(workers):
    def make(rank):
        more = {"num_workers": workers, "collate_fn": per_batch(noisy)}
        return Loader(Seekable(Seeking(N)), 3, **more)

    whole, _ = on_ranks(make, 2)
    assert [[drawn for _, drawn in share] for share in whole] == [
        [expected(j * 6 + rank) for j in range(4)] for rank in range(2)
    ]
    begun, state = on_ranks(make, 2, stop=2)
    rest, _ = on_ranks(make, 2, state=state)
    assert [[*a, *b] for a, b in zip(begun, rest, strict=True)] == whole


def test_what_each_worker_or_rank_reads_for_itself_has_other_numbers():
    for rank in (0, 1):
        start(3, rank=rank, world_size=2)
        for workers in (0, 1, 2):
            loader = Loader(Numbers(10), 4, num_workers=workers, collate_fn=per_batch(noisy))
            drawn = [drawn for _, drawn in loader]
            count = 3 * max(workers, 1)
            assert drawn == [expected((rank << 40) + 4 * j) for j in range(count)]


# ---------------------------------------------------------------- errors


def collate_twice(samples):
    return TWICE(samples), TWICE(samples)


TWICE = per_batch(noisy)


@pytest.mark.parametrize("workers", [0, 1])
def test_samples_that_are_not_known_are_an_error(workers):
    data, collate = per_sample(Plain(N)), per_batch(noisy)
    data.set_epoch(3)
    next(iter(DataLoader(data, 2, collate_fn=len)))  # what it fetched is not what comes next
    for loader in (
        DataLoader(Plain(N), 2, num_workers=workers, collate_fn=collate),
        DataLoader(Numbers(N), 2, num_workers=workers, collate_fn=collate),
        DataLoader(data, 2, num_workers=workers, collate_fn=lambda samples: collate([*samples])),
        DataLoader(data, 2, num_workers=workers, collate_fn=collate_twice),
        Loader(data, 2, num_workers=workers, collate_fn=collate_twice),
    ):
        with pytest.raises(
            RuntimeError, match=r"per_batch: the samples of this batch are not known"
        ):
            flat(loader)
    with pytest.raises(RuntimeError, match=r"per_batch: the samples of this batch are not known"):
        collate([1, 2])


@pytest.mark.parametrize("workers", [0, 1])
def test_a_loader_of_fastseed_may_change_the_samples_first(workers):
    def without_odd(samples):
        return collate([s for s in samples if s % 2 == 0])

    collate = per_batch(noisy)
    for data in (per_sample(Plain(N)), Plain(N)):
        loader = Loader(data, BATCH, num_workers=workers, collate_fn=without_odd)
        assert numbers(loader) == {i: expected(i) for i in range(0, N, BATCH)}


def test_a_collator_that_makes_its_generator_when_it_is_called_is_an_error():
    class Lazy:
        rng = None

        def __call__(self, samples):
            self.rng = self.rng or random.Random(len(samples))
            return self.rng.random()

    loader = Loader(Plain(N), BATCH, collate_fn=per_batch(Lazy()))
    with pytest.raises(RuntimeError, match=r"its call made collate\.rng: pass it no seed"):
        next(iter(loader))


@pytest.mark.parametrize(
    ("call", "rule"),
    [
        (lambda: per_batch(5), r"per_batch: collate must be a function of samples, got 5"),
        (
            lambda: next(iter(Loader({"a": 1}, 1, sampler=["a"], collate_fn=per_batch(noisy)))),
            r"per_batch: index must be an integer, got 'a'",
        ),
    ],
)
def test_refused_arguments(call, rule):
    with pytest.raises(TypeError, match=rule):
        call()
