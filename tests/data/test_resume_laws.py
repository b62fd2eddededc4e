"""Resumed after each step = whole: loops of all kinds, and one body."""

import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from helpers.loaders import Balanced, ByHand, Given, Indexed, Items, Stateful, draw, same
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

import fastseed
from fastseed.data import Loader, Seekable, ShuffleSampler, count_occurrences, per_sample, steps

N = 20


class Filtered(ShuffleSampler):
    def __iter__(self):
        return (i for i in super().__iter__() if i % 3)


class Twice(ShuffleSampler):
    def __iter__(self):
        return (i for i in super().__iter__() for _ in range(2))


class Chunks(IterableDataset):
    """Its length counts documents of two chunks; it can seek."""

    at = 0

    def __len__(self):
        return N // 2

    def __iter__(self):
        first, self.at = self.at, 0
        return iter(range(first, N))

    def seek(self, position):
        self.at = position


class Documents(Stateful):
    def __len__(self):
        return 7


class Endless(Stateful):
    """It goes on where it ended from epoch to epoch."""

    def __iter__(self):
        while True:
            self.next += 1
            yield self.next - 1
            if self.next % self.n == 0:
                return


class Ended(Stateful):
    """After an epoch its state is the end, and each iteration begins at the beginning."""

    at = 0

    def __iter__(self):
        first, self.at = self.at, 0
        for i in range(first, self.n):
            self.next = i + 1
            yield i

    def load_state_dict(self, state):
        self.at = self.next = state["next"]


class Unsized(Given):
    __len__ = None


def permuted():
    return torch.randperm(N).tolist()


def buckets():
    order = permuted()
    return [order[:6], order[6:9], order[9:16], order[16:]]


def around(sampler, times):
    return Given(lambda: (i for i in sampler for _ in range(times)), N * times, sampler)


def in_threes(sampler):
    def batches():
        order = list(sampler)
        return [order[i : i + 3] for i in range(0, N, 3)]

    return Given(batches, 7, sampler)


def numbers(position):
    return iter(range(position, N))


# Loops whose workers may change, by what is iterated.
MAPS = {
    "shuffle": lambda: {"batch_size": 6, "shuffle": True},
    "no batches": lambda: {"batch_size": None, "sampler": ShuffleSampler(N)},
    "lists of ours": lambda: {
        "batch_size": None,
        "sampler": BatchSampler(ShuffleSampler(N), 6, False),
    },
    "lists of torch's": lambda: {
        "batch_size": None,
        "sampler": BatchSampler(RandomSampler(range(N)), 6, False),
    },
    "lists of a user": lambda: {"batch_size": None, "sampler": Given(buckets, 4)},
    "tensors": lambda: {
        "batch_size": None,
        "sampler": Given(lambda: map(torch.tensor, buckets()), 4),
    },
    "a user's": lambda: {"batch_size": 6, "sampler": Given(permuted)},
    "repeated around ours": lambda: {"batch_size": 6, "sampler": around(ShuffleSampler(N), 3)},
    "no length": lambda: {"batch_size": 6, "sampler": Unsized(permuted)},
    "too small a length": lambda: {"batch_size": 6, "sampler": Given(lambda: permuted() * 2, 9)},
    "too large a length": lambda: {"batch_size": 6, "sampler": Given(permuted, 99)},
    "a filter by subclass": lambda: {"batch_size": 4, "sampler": Filtered(N)},
    "twice by subclass": lambda: {"batch_size": 4, "sampler": Twice(N)},
    "buckets": lambda: {"batch_sampler": Given(buckets, 4)},
    "buckets around ours": lambda: {"batch_sampler": in_threes(ShuffleSampler(N))},
    "lists of lists": lambda: {"batch_sampler": [[0, 1, 2], [3], [4, 5], [1, 2, 3, 4], [19]]},
    "in order": lambda: {"batch_size": 4},
    "subset": lambda: {"batch_size": 4, "sampler": SubsetRandomSampler(range(0, N, 2))},
    "weighted": lambda: {"batch_size": 4, "sampler": WeightedRandomSampler([1.0] * N, N)},
    "dropping": lambda: {"batch_size": 3, "sampler": RandomSampler(range(N)), "drop_last": True},
    "counted": lambda: {
        "batch_size": 4,
        "sampler": count_occurrences(WeightedRandomSampler([1.0] * N, N)),
    },
    "counted, ours": lambda: {"batch_size": 4, "sampler": count_occurrences(ShuffleSampler(N))},
    "balanced": lambda: {"batch_size": 4, "sampler": Balanced(N)},
    "samples": lambda: {"dataset": per_sample(Indexed(N)), "batch_size": 4, "shuffle": True},
    "one sample": lambda: {"dataset": per_sample(Indexed(N)), "shuffle": True},
    "seekable": lambda: {"dataset": Seekable(numbers), "batch_size": 3},
    "seekable, no batches": lambda: {"dataset": Seekable(numbers), "batch_size": None},
    "empty batches": lambda: {"batch_sampler": Given(lambda: [[0, 1], [], [2], [], [3, 4]], 5)},
}
OTHERS = {
    "length of documents": lambda: {"dataset": Chunks(), "batch_size": 3},
    "its own state": lambda: {"dataset": Stateful(N), "batch_size": 5},
    "its own state, incomplete": lambda: {"dataset": Stateful(N), "batch_size": 3},
    "its own state, drop_last": lambda: {
        "dataset": Stateful(N),
        "batch_size": 3,
        "drop_last": True,
    },
    "its own state, no batches": lambda: {"dataset": Stateful(N), "batch_size": None},
    "its own state, documents": lambda: {"dataset": Documents(N), "batch_size": 3},
    "from epoch to epoch": lambda: {"dataset": Endless(N), "batch_size": 3},
    "it says its end": lambda: {"dataset": Ended(N), "batch_size": 3},
}


def make(kind, workers=0, form=steps):
    fastseed.init(42, rank=0, world_size=1)
    settings = {"dataset": Items(N), **{**MAPS, **OTHERS}[kind]()}
    more = {"num_workers": workers, "persistent_workers": workers > 0}
    loader = DataLoader(**settings, **more, collate_fn=same)
    return steps(loader, 2) if form is steps else ByHand(Loader(loader))


def run(loop):
    """Each step, what the loop draws in it, and the state after it."""
    seen, states = [], []
    for epoch, step, batch in loop:
        # Without steps, the loop would have to reseed in the step that resumes.
        drawn = None if isinstance(loop, ByHand) else draw()
        seen.append((epoch, step, batch, drawn))
        states.append(pickle.dumps(loop.state_dict()))
    return seen, states


@pytest.mark.parametrize("form", [steps, Loader])
@pytest.mark.parametrize("kind", [*MAPS, *OTHERS])
def test_resumed_after_each_step_is_the_whole_run(kind, form):
    whole, states = run(make(kind, form=form))
    assert {epoch for epoch, *_ in whole} == {0, 1} and len(whole) >= 6
    for done, state in enumerate(states, 1):
        loop = make(kind, form=form)
        loop.load_state_dict(pickle.loads(state))
        assert loop.state_dict() == pickle.loads(state)
        assert run(loop) == (whole[done:], states[done:])
        if isinstance(loop.dataset, Items):
            is_whole = loop.loader.batch_sampler is None
            read = sum(1 if is_whole else len(batch) for _, _, batch, _ in whole[done:])
            assert loop.dataset.read == read, "what was seen is not read again"


@pytest.mark.parametrize("kind", MAPS)
def test_with_workers_it_is_the_same_run(kind):
    whole, states = run(make(kind))
    loop = make(kind, workers=2)
    loop.load_state_dict(pickle.loads(states[1]))
    assert run(loop) == (whole[2:], states[2:])


@pytest.mark.parametrize("kind", OTHERS)
def test_resumed_between_epochs_is_the_whole_run(kind):
    whole, _ = run(make(kind))
    first = make(kind)
    seen = [(0, step, batch, draw()) for _, step, batch in first.in_epoch(0)]
    loop = make(kind)
    loop.load_state_dict(pickle.loads(pickle.dumps(first.state_dict())))
    assert seen + run(loop)[0] == whole


def test_a_dataset_goes_on_in_the_epoch_after_that_of_the_state_of_a_loader():
    whole, _ = run(make("from epoch to epoch", form=Loader))
    before, after = (make("from epoch to epoch", form=Loader).loader for _ in "ab")
    fastseed.reseed(1, 0)
    seen = list(before)
    after.load_state_dict(before.state_dict())
    fastseed.reseed(1, 1)
    assert seen + list(after) == [batch for _, _, batch, _ in whole]


def with_last(items):
    """Is this the last one? As in many training loops."""
    items = iter(items)
    before = next(items)
    for item in items:
        yield before
        before = item
    yield before


@pytest.mark.parametrize("kind", MAPS)
def test_a_wrapper_that_looks_ahead_says_which_step_is_done(kind):
    whole, _ = run(make(kind))
    loop = make(kind)
    states = [(loop.state_dict(after=(e, s))) for e, s, _ in with_last(loop)]
    for done, state in enumerate(states, 1):
        resumed = make(kind)
        resumed.load_state_dict(state)
        assert run(resumed)[0] == whole[done:]


def test_another_thread_that_takes_the_steps_says_which_is_done():
    whole, _ = run(make("a user's"))
    loop, states = make("a user's"), []
    items = iter(loop)
    with ThreadPoolExecutor(1) as pool:
        for *_, drawn in whole:
            epoch, step, _ = pool.submit(next, items).result()
            assert draw() == drawn
            with pytest.raises(
                RuntimeError, match=r"pass after=\(epoch, step\), the step that was"
            ):
                loop.state_dict()
            states.append(loop.state_dict(after=(epoch, step)))
    for done, state in enumerate(states, 1):
        loop.load_state_dict(state)
        loop.state_dict()  # without a step since
        assert run(loop)[0] == whole[done:]


def test_a_state_that_counts_samples_is_none_of_one_that_counts_batches():
    _, states = run(make("a user's"))
    loop = make("buckets")
    with pytest.raises(ValueError, match="must be of order 'batches of Given', as here"):
        loop.load_state_dict(pickle.loads(states[0]))
