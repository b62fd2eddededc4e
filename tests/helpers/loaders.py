"""Datasets and runs for the tests of loaders: module level, so that spawned workers find them."""

import hashlib
import itertools
import random
from typing import NamedTuple

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset, Sampler

import fastseed


def draw() -> tuple[int, int, int]:
    """A number of each global generator."""
    return (
        random.getrandbits(62),
        int(np.random.randint(2**62)),
        int(torch.randint(2**62, ()).item()),
    )


class Indexed(Dataset):
    """Sample i is i and what the three generators gave: its augmentation, as it were."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int):
        return (int(i), *draw())


class Plain(Indexed):
    """Sample i is i: nothing is drawn."""

    def __getitem__(self, i: int):
        return int(i)


class Failing(Indexed):
    """A few samples cannot be read."""

    def __init__(self, n: int, bad: tuple[int, ...]) -> None:
        super().__init__(n)
        self.bad = bad

    def __getitem__(self, i: int):
        if i in self.bad:
            raise KeyError(f"sample {i} cannot be read")
        return int(i)


class Numbers(IterableDataset):
    """0 … n-1, the same in every worker: it can not seek."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __iter__(self):
        return iter(range(self.n))

    def __len__(self) -> int:
        return self.n


class Seeking(Numbers):
    """One that can be entered anywhere; it counts the samples that were read, in this process."""

    def __init__(self, n: int) -> None:
        super().__init__(n)
        self.at = 0
        self.read = 0

    def seek(self, position: int) -> None:
        self.at = position

    def __iter__(self):
        first, self.at = self.at, 0
        for i in range(first, self.n):
            self.read += 1
            yield i


class Stateful(Numbers):
    """One that keeps its own state."""

    def __init__(self, n: int) -> None:
        super().__init__(n)
        self.next = 0

    def __iter__(self):
        while self.next < self.n:
            self.next += 1
            yield self.next - 1
        self.next = 0

    def state_dict(self):
        return {"next": self.next}

    def load_state_dict(self, state) -> None:
        self.next = state["next"]


def same(batch):
    """A collate function that changes nothing; not a lambda, so that spawned workers get it."""
    return batch


def start(epoch: int = 0, master_seed: int = 42, rank: int = 0, world_size: int = 1) -> None:
    """A job at the beginning of an epoch."""
    fastseed.init(master_seed, rank=rank, world_size=world_size)
    fastseed.reseed(1, epoch)


def on_ranks(make, world, *, epoch=3, state=None, stop=None):
    """Iterate ``make(rank)`` on each rank in turn; return the batches of each, and one's state."""
    shares, states = [], []
    for rank in range(world):
        start(epoch, rank=rank, world_size=world)
        batches = make(rank)
        if state is not None:
            batches.load_state_dict(state)
        shares.append(list(itertools.islice(batches, stop)))
        states.append(batches.state_dict())
    is_over = all(each["over"] for each in states)  # some may have had a batch more
    known = [{**each, "read": ""} for each in states]  # each rank of a sampler read its own
    assert is_over or all(each == known[0] for each in known), "any rank's state serves all"
    return shares, states[0]


def point(state):
    """The next step of a state of steps."""
    return fastseed.data.Lineage.load(state).history.point


def position_of(state):
    """The position in the order of a state of a loader, or of steps."""
    history = fastseed.data.Lineage.load(state).history
    return history.position_at(*history.point)


def flat(batches):
    """The samples of batches, one after another."""
    return [sample for batch in batches for sample in batch]


def dealt(batches_of_ranks):
    """The samples in their global order, of ranks that took turns."""
    order = []
    for batches in zip(*batches_of_ranks, strict=True):
        for turn in range(max(map(len, batches))):
            order += [batch[turn] for batch in batches if turn < len(batch)]
    return order


def users_worker_init(worker_id: int) -> None:
    """A worker_init_fn that does nothing."""


class Continuing(Sampler):
    """A sampler with a generator that continues from epoch to epoch, as TRL's RepeatSampler."""

    def __init__(self, n: int) -> None:
        self.n, self.generator = n, torch.Generator().manual_seed(7)

    def __len__(self) -> int:
        return self.n

    def __iter__(self):
        return iter(torch.randperm(self.n, generator=self.generator).tolist())


def digest(model: torch.nn.Module) -> str:
    """Return the SHA-256 of a model's parameters."""
    held = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
    return hashlib.sha256(held).hexdigest()


class Given:
    """A sampler of a user: what ``make`` returns, with any length."""

    def __init__(self, make, length=20, sampler=None):
        self.make, self.length = make, length
        if sampler is not None:
            self.sampler = sampler

    def __len__(self):
        return self.length

    def __iter__(self):
        return iter(self.make())


class Balanced(Sampler):
    """A sampler as users write it: the order is drawn from the global generators, bit by bit."""

    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __iter__(self):
        left = list(np.random.permutation(self.n))
        while left:
            yield left.pop(random.randrange(len(left)) ^ int(torch.randint(1, ())))


def occurrences(index):
    """An index, and how often it came before."""
    times = getattr(index, "occurrence", 0)
    return (int(index), times) if times else int(index)


class Items(Dataset):
    """Sample i is i, and how often it came before; of a list that of each. It counts its reads."""

    read = 0

    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        self.read += 1
        is_list = isinstance(i, (list, torch.Tensor))
        return [occurrences(k) for k in i] if is_list else occurrences(i)


class ByHand:
    """A loop over a Loader by hand, which looks like steps."""

    first = 0

    def __init__(self, loader, epochs=2):
        self.loader, self.epochs = loader, epochs
        self.dataset, self.state_dict = loader.dataset, loader.state_dict

    def load_state_dict(self, state):
        self.loader.load_state_dict(state)
        self.first = point(state)[0]

    def __iter__(self):
        for epoch in range(self.first, self.epochs):
            fastseed.reseed(1, epoch)
            yield from ((epoch, None, batch) for batch in self.loader)


class Slots(NamedTuple):
    """A cut into slots, in place of ``SlotGradients``."""

    slots: int
    assignment: str
