"""Datasets that draw, and runs over them: module level, so that spawned workers find them."""

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

import fastseed
from helpers.inside import context, plan_of

N, WORKERS, EPOCHS = 32, 2, 3
TOP = 2**62


def draw_from(generator: Any) -> int:
    """An integer of [0, 2**62) from a generator of any kind, or from a global one."""
    if isinstance(generator, torch.Generator):
        return int(torch.randint(TOP, (), generator=generator))
    if isinstance(generator, np.random.Generator):
        return int(generator.integers(TOP))
    if isinstance(generator, np.random.RandomState):
        return int(generator.randint(TOP))
    if isinstance(generator, random.Random):
        return generator.getrandbits(62)
    if isinstance(generator, fastseed.random.StreamBank):
        return int(fastseed.random.randint(generator[torch.tensor([1])], (), 0, TOP))
    if isinstance(generator, fastseed.GeneratorPool):
        return draw_from(generator[1])
    return {
        "python": lambda: random.getrandbits(62),
        "numpy": lambda: int(np.random.randint(TOP)),
        "torch": lambda: int(torch.randint(TOP, ())),
    }[generator]()


KINDS = {
    "numpy.random.Generator": lambda: np.random.default_rng(7),
    "RandomState": lambda: np.random.RandomState(7),
    "random.Random": lambda: random.Random(7),
    "torch.Generator": lambda: torch.Generator().manual_seed(7),
}


class Draws(Dataset):
    """Sample i is what one generator gives: an attribute, or a global one by name."""

    def __init__(self, rng: Any, n: int = N) -> None:
        self.rng, self.n = rng, n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int) -> int:
        return draw_from(self.rng)


class DrawsAll(Draws):
    """Sample i is a number of each generator, several being one tuple."""

    def __getitem__(self, i: int) -> Any:
        return (int(i), *(draw_from(rng) for rng in self.rng))


class Batched(DrawsAll):
    """Fetched a batch at a time, and says so."""

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [("batch", *self[i]) for i in indices]


class Stream(IterableDataset):
    """Each worker yields its share."""

    def __init__(self, rng: Any, n: int = N) -> None:
        self.rng, self.n = rng, n

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        k, step = (0, 1) if info is None else (info.id, info.num_workers)
        for _ in range(k, self.n, step):
            yield draw_from(self.rng)


class Transform:
    """Holds a generator, as transforms do."""

    def __init__(self, rng: Any) -> None:
        self.rng = rng

    def __call__(self, x: Any) -> int:
        return draw_from(self.rng)


class Transformed(Dataset):
    """Draws through the last of its transforms."""

    def __init__(self, *transforms: Transform, n: int = N) -> None:
        self.transforms, self.n = list(transforms), n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int) -> int:
        return self.transforms[-1](i)


def as_list(batch: list[Any]) -> list[Any]:
    """A collate function that changes nothing."""
    return batch


def flat(loader: Any) -> list[Any]:
    """All samples of an iteration.

    After an error the workers are shut down: torch leaves that to the garbage collector, which
    closes their queues first, and then waits for them for five seconds each.
    """
    iterator = iter(loader)
    try:
        return [sample for batch in iterator for sample in batch]
    except BaseException:
        batches = getattr(iterator, "_batches", iterator)  # torch's behind fastseed's
        getattr(batches, "_shutdown_workers", lambda: None)()
        raise


def options(method: str = "fork", workers: int = WORKERS, **more: Any) -> dict[str, Any]:
    """Arguments of a DataLoader."""
    context = method if workers else None
    return {
        **{"batch_size": 4, "num_workers": workers, "collate_fn": as_list},
        **{"multiprocessing_context": context, "timeout": 60 if workers else 0},
        **more,
    }


class Epochs:
    """A fastseed loader that is iterated in given scopes, without a reseed of this process."""

    def __init__(self, dataset: Any, method: str = "fork", user_init: Any = None, **more: Any):
        self.loader = fastseed.data.Loader(
            dataset, worker_init_fn=user_init, **options(method, **more)
        )

    def run(self, epoch: int, task: int = 1, start: int = 0) -> list[Any]:
        """The samples of an epoch."""
        plan = plan_of(self.loader, context.current("test"))._replace(start=start)
        return flat(self.loader._iterate(task, epoch, plan, False, {}))


def epochs_of(
    dataset: Any, method: str = "fork", epochs: int = EPOCHS, **more: Any
) -> list[list[Any]]:
    """The samples of so many epochs, in one list each."""
    runs = Epochs(dataset, method, **more)
    return [runs.run(epoch) for epoch in range(epochs)]
