"""Random loops, killed and resumed on other ranks and workers, against lists and their slices."""

import itertools
import pickle
import random

import pytest
from helpers.loaders import (
    Balanced,
    ByHand,
    Given,
    Items,
    Seeking,
    Slots,
    Stateful,
    draw,
    same,
    start,
)
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

import fastseed
from fastseed.data import Loader, MixtureSampler, Seekable, ShuffleSampler, count_occurrences, steps

EPOCHS = 2
FORMS = {  # by how ranks share them
    "ours": ["shuffle", "sampler", "in order", "renamed", "mixture", "lists", "single"],
    "slots": ["shuffle", "sampler", "in order", "mixture", "plain"],
    "replicas": ["shuffled", "in order", "drawn"],
    "each": [
        *("plain", "random", "subset", "weighted", "balanced", "by epoch", "twice", "lists"),
        *("filtered", "around ours", "counted"),
    ],
    "batches": ["buckets", "around ours", "around torch's", "given", "lists"],
    "seekable": ["function", "seeking", "documents"],
    "own": ["its own state"],
}


class ByEpoch(Sampler):
    """A sampler of a user: its list is known, its length wrong, and it draws between samples."""

    epoch = -1

    def __init__(self, n, twice=False):
        self.n, self.twice = n, twice

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return self.n // 2

    def __iter__(self):
        for i in random.Random(self.epoch).sample(range(self.n), self.n):
            draw()
            yield from [i, i] if self.twice and i % 3 == 0 else [i]


class Buckets(ByEpoch):
    """Batches of any size, of which some are empty."""

    def __init__(self, n, inner=None):
        super().__init__(n)
        self.inner = super().__iter__ if inner is None else inner.__iter__
        if inner is not None:
            self.sampler = inner

    def __iter__(self):
        sizes, order = random.Random(self.n), list(self.inner())
        while order:
            size = sizes.randrange(6)
            yield order[:size]
            del order[:size]


class Drawn(Balanced):
    """Of a user, who divides an order that is drawn from the global generators."""

    def __init__(self, n, ranks, rank):
        super().__init__(n)
        self.num_replicas, self.rank = ranks, rank

    def __iter__(self):
        return itertools.islice(super().__iter__(), self.rank, None, self.num_replicas)


class Renamed(ShuffleSampler):
    """One of ours by its method."""


class Filtered(ShuffleSampler):
    def __iter__(self):
        return (i for i in super().__iter__() if i % 3)


class Documents(Seeking):
    def __len__(self):
        return self.n // 2


def chunks(order, size, drop_last=False):
    cut = [order[i : i + size] for i in range(0, len(order), size)]
    return [batch for batch in cut if len(batch) == size or not drop_last]


class Case:
    """A random loop: what is iterated, and what lists say of it."""

    def __init__(self, seed):
        self.seed, self.choose, self.known = seed, random.Random(seed), {}
        self.kind = self.choose.choice([*FORMS, "ours", "ours", "each", "each"])
        self.of = self.choose.choice(FORMS[self.kind])
        self.form = "steps" if self.kind == "slots" else self.choose.choice(["steps", "Loader"])
        self.n = self.choose.choice([*range(1, 20), 30, 60])
        if self.kind in ("each", "own", "seekable"):
            self.n = self.choose.choice([0, self.n, self.n])
        self.drop_last = self.of != "single" and self.choose.random() < 0.3
        self.ranks_drop = self.choose.random() < 0.3
        self.slots = self.choose.randint(1, 5)
        self.ranks, self.size, self.is_dealt = 1, 1, False

    def __repr__(self):
        flags = f"drop_last={self.drop_last}, ranks_drop={self.ranks_drop}, slots={self.slots}"
        ranks = f"{self.ranks} ranks of {self.size}"
        return f"{self.seed}: {self.form}, {self.kind} ({self.of}), n={self.n}, {flags}, {ranks}"

    # ------------------------------------------------------------ what is iterated

    def sampler(self, rank, ranks):
        n, drop = self.n, {"drop_last": self.ranks_drop}
        if self.of == "drawn":
            return Drawn(n, ranks, rank)
        if self.kind == "replicas":
            shuffle = self.of == "shuffled"
            return DistributedSampler(range(n), ranks, rank, shuffle=shuffle, **drop)
        if self.kind == "each" and self.of == "lists":
            return ByEpoch(n)
        return {
            "sampler": lambda: ShuffleSampler(n, **drop),
            "lists": lambda: ShuffleSampler(n, **drop),
            "single": lambda: ShuffleSampler(n, **drop),
            "renamed": lambda: Renamed(n, **drop),
            "in order": lambda: ShuffleSampler(n, shuffle=False, **drop),
            "mixture": lambda: self.mixture(n, **drop),
            "random": lambda: RandomSampler(range(n)) if n else SequentialSampler(range(n)),
            "subset": lambda: SubsetRandomSampler(range(0, n, 2)),
            "weighted": lambda: WeightedRandomSampler([1.0] * (n + 1), n + 2),
            "counted": lambda: count_occurrences(WeightedRandomSampler([1.0] * (n + 1), n + 2)),
            "balanced": lambda: Balanced(n),
            "by epoch": lambda: ByEpoch(n),
            "twice": lambda: ByEpoch(n, True),
            "filtered": lambda: Filtered(n + 2),
            "around ours": lambda: self.around(ShuffleSampler(n + 1)),
        }[self.of]()

    def around(self, inner):
        return Given(lambda: (i for i in inner for _ in "ab"), 1, inner)

    def mixture(self, positions, **drop):
        return MixtureSampler({"a": self.n, "b": 3}, {"a": 2, "b": 1}, n=positions, **drop)

    def batch_sampler(self, rank):
        n = self.n
        return {
            "buckets": lambda: Buckets(n),
            "around ours": lambda: Buckets(n, ShuffleSampler(n)),
            "around torch's": lambda: Buckets(n, RandomSampler(range(n))),
            "given": lambda: Given(Buckets(n).__iter__, 3),
            "lists": lambda: [*Buckets(n + rank % 2)],
        }[self.of]()

    def settings(self, size, rank, ranks):
        n, of = self.n, self.of
        batches = {"batch_size": size, "drop_last": self.drop_last}
        if self.kind in ("seekable", "own"):
            data = {"seeking": Seeking(n), "documents": Documents(n), "its own state": Stateful(n)}
            numbers = Seekable(lambda position: iter(range(position, n)))
            return {"dataset": data.get(of, numbers), **batches}
        data = {"dataset": Items(n)}
        if of in ("shuffle", "plain"):
            return {**data, **batches, "shuffle": of == "shuffle"}
        if self.kind == "batches":
            return {**data, "batch_sampler": self.batch_sampler(rank)}
        sampler = self.sampler(rank, ranks)
        if of == "single":
            return {**data, "batch_size": None, "sampler": sampler}
        if of == "lists":  # the dataset gets each whole
            lists = BatchSampler(sampler, size, self.drop_last)
            return {**data, "batch_size": None, "sampler": lists}
        if self.seed % 5 == 0 and self.kind != "slots":
            return {**data, "batch_sampler": BatchSampler(sampler, size, self.drop_last)}
        return {**data, **batches, "sampler": sampler}

    def loop(self, rank, workers):
        start(rank=rank, world_size=self.ranks)
        settings = self.settings(self.size, rank, self.ranks)
        loader = DataLoader(**settings, num_workers=workers, collate_fn=same)
        if self.form == "Loader":
            return ByHand(Loader(loader), EPOCHS)
        slots = Slots(self.slots, ("blocks", "deal")[self.is_dealt])
        return steps(loader, EPOCHS, slots=slots if self.kind == "slots" else None)

    # ------------------------------------------------------------ what lists say

    def order(self, epoch, rank=0):
        """The list of a rank; of ours that of the job, and what comes after its end."""
        key = epoch, rank, self.ranks
        if key not in self.known:
            self.known[key] = self.make_order(epoch, rank)
        return self.known[key]

    def make_order(self, epoch, rank):
        n, of = self.n, self.of
        if self.kind in ("seekable", "own") or (of == "plain" and self.kind == "each"):
            return list(range(n))
        if self.kind in ("ours", "slots"):
            start(epoch)
            if of == "mixture":
                known = [(int(i), getattr(i, "occurrence", 0)) for i in self.mixture(n + 99)]
            else:
                one = ShuffleSampler(n, shuffle=of not in ("in order", "plain")).indices().tolist()
                known = [(i, times) for times in range(99 // n + 2) for i in one]
            return [(i, times) if times else i for i, times in known]
        if of != "drawn" and (self.kind == "replicas" or of in ("by epoch", "twice")):
            sampler = self.sampler(rank, self.ranks)
            sampler.set_epoch(epoch)
            return list(sampler)
        # What draws from generators: as a loader reads it one by one, from the beginning.
        start(epoch, rank=rank, world_size=self.ranks)
        settings = self.settings(1, rank, self.ranks)
        batches = list(Loader(**settings, collate_fn=same))
        return batches if self.kind == "batches" else list(itertools.chain(*batches))

    def rest(self, epoch, position, rank):
        """The steps of a rank from a position on, and the position after each."""
        n, size, ranks, drop = self.n, self.size, self.ranks, self.drop_last
        order, passed = self.order(epoch, rank), -(-position // ranks)
        size = 1 if self.of == "single" or self.kind == "batches" else size
        block, most = size * ranks, 10**9
        if self.kind == "ours":
            ranks_drop = drop if self.of == "shuffle" else self.ranks_drop
            left, most = max(0, n - position), n
            own = order[position + rank :: ranks][
                : (left if ranks_drop else left + ranks - 1) // ranks
            ]
            own = chunks(own, size, drop)
        elif self.kind == "slots":
            block, most = size * self.slots, n
            drop = drop or (self.ranks_drop and self.of not in ("shuffle", "plain"))
            edges = [r * self.slots // ranks for r in (rank, rank + 1)]
            mine = slice(rank, None, ranks) if self.is_dealt else slice(*edges)
            begins = chunks(range(position, n), block, drop)
            own = [chunks(order[first[0] : first[0] + block], size)[mine] for first in begins]
        elif self.kind == "seekable":
            own = [part[rank::ranks] for part in chunks(order[position:], block, drop)]
            own = [batch for batch in own if batch]
        elif self.kind == "own":
            own, block = chunks(order[position:], size, drop), size
        else:
            own = order[passed:] if self.kind == "batches" else chunks(order[passed:], size, drop)
        if self.of == "single":
            own = [sample for (sample,) in own]
        return [(batch, min(position + block * k, most)) for k, batch in enumerate(own, 1)]

    def is_refused(self):
        """Is a whole epoch without a step, of a length that is known?"""
        is_torchs = self.of in ("plain", "random", "subset", "weighted")
        is_known = self.kind in ("ours", "slots") or (is_torchs and self.order(0))
        is_known = is_known or (self.kind == "replicas" and self.of != "drawn")
        return self.form == "steps" and is_known and not self.rest(0, 0, 0)

    # ------------------------------------------------------------ attempts

    def attempt(self, at, position, state, workers, is_last):
        """Run from a state on all ranks, one after another, up to a step; return where it ended."""
        choose, is_first = self.choose, state is None
        if self.kind == "replicas":
            self.ranks = choose.choice([w for w in (1, 2, 3) if position % w == 0])
        elif position == 0 or self.kind in ("ours", "slots", "seekable"):
            self.ranks = choose.randint(1, 3)
        if is_first or self.kind != "slots":
            self.size = choose.randint(1, 6)
        self.is_dealt, found = choose.random() < 0.5, []
        for rank in range(self.ranks):
            rest = self.rest(at[0], position, rank) if at[0] < EPOCHS else []
            rest = [(*at, batch, end) for batch, end in rest]
            rest = [(e, s + k, batch, end) for k, (e, s, batch, end) in enumerate(rest)]
            for epoch in range(at[0] + 1, EPOCHS):
                later = enumerate(self.rest(epoch, 0, rank))
                rest += [(epoch, step, batch, end) for step, (batch, end) in later]
            found.append(rest)
        of_all = [s for s in found[0] if all(s[:2] in [o[:2] for o in own] for own in found)]
        stop = None if is_last else choose.choice([*of_all, None])
        is_refused, states = at[0] < EPOCHS and self.is_refused(), []
        for rank, expected in enumerate(found):
            loop = self.loop(rank, 0 if self.kind == "own" else choose.choice(workers))
            if not is_first:
                loop.load_state_dict(pickle.loads(state))
            if is_refused:
                with pytest.raises(ValueError, match="which drop_last gives"):
                    list(loop)
                return None
            expected = [s[:3] for s in expected if stop is None or s[:2] <= stop[:2]]
            seen = []
            for epoch, step, batch in itertools.islice(loop, len(expected) if stop else None):
                batch = list(batch) if self.kind == "slots" else batch
                seen.append(
                    (epoch, expected[len(seen)][1] if step is None else step, batch, draw())
                )
            states.append(pickle.dumps(loop.state_dict()))
            assert [s[:3] for s in seen] == expected, self
            for epoch, step, _, numbers in seen if self.form == "steps" else ():
                fastseed.reseed(1, epoch, step)
                assert numbers == draw(), self
        end = (EPOCHS, 0, None, 0) if stop is None else (stop[0], stop[1] + 1, None, stop[3])
        return end[:2], end[3], choose.choice(states)

    def run(self, workers=(0,)):
        at, kills = ((0, 0), 0, None), self.choose.randint(0, 3)
        while at is not None and kills >= 0:
            at = self.attempt(*at, workers, kills == 0)
            kills -= 1


def test_random_loops_read_what_lists_say():
    for seed in range(60):
        Case(seed).run()


@pytest.mark.slow
def test_many_random_loops_read_what_lists_say():
    for seed in range(60, 2060):
        Case(seed).run((0,) if seed % 40 else (0, 2))
