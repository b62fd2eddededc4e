"""Collators that draw, and what their batches are under any workers; for ``per_batch``."""

import itertools
from collections.abc import Iterator

from torch.utils.data import DataLoader

from fastseed.data import Loader, steps

from .loaders import draw, start

N, BATCH = 24, 4


def noisy(samples):
    """The samples, with a number of each generator of the process for the batch."""
    return samples, draw()


def loop(data, collate, workers=0):
    start(0)
    loader = DataLoader(data, BATCH, shuffle=True, num_workers=workers, collate_fn=collate)
    return steps(loader, epochs=2)


def leaves(batch) -> Iterator[object]:
    """The values of a batch, as lists."""
    for part in batch.values() if hasattr(batch, "values") else batch:
        yield part.tolist()


def run(data, collate, workers=0, *, stop=None, state=None):
    """The batches of a loop, and its state."""
    of = loop(data, collate, workers)
    if state is not None:
        of.load_state_dict(state)
    found = []
    for _, _, each in itertools.islice(of, stop):
        found.append([*leaves(each)])
        state = of.state_dict()
    return found, state


def check(data, collate):
    """The batches are the same by any workers, and after a resume; return the batches."""
    whole, _ = run(data, collate)
    for workers in (1, 2):
        assert run(data, collate, workers)[0] == whole
        begun, state = run(data, collate, workers, stop=4)
        assert begun + run(data, collate, 2 - workers, state=state)[0] == whole
    start(0)
    plain = DataLoader(data, BATCH, num_workers=2, collate_fn=collate)
    data.set_epoch(0)
    ours = [[*leaves(batch)] for batch in Loader(data, BATCH, collate_fn=collate)]
    assert [[*leaves(batch)] for batch in plain] == ours
    return whole
