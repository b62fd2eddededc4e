"""Collators that draw, and what their batches are under any workers; for ``per_batch``."""

from __future__ import annotations

import itertools
from collections import namedtuple
from collections.abc import Iterator

import numpy as np
import torch
from torch.utils.data import DataLoader

from fastseed.data import Loader, steps

from .loaders import draw, start

N, BATCH = 24, 4
Fields = namedtuple("Fields", "index noise")


def noisy(samples):
    """The samples, with a number of each generator of the process for the batch."""
    return samples, draw()


def noisy_rows(samples):
    """A number of torch's generator and one of NumPy's for each sample."""
    rows = torch.tensor([float(s) for s in samples])
    return {"fields": Fields(rows, torch.rand(len(samples), 2)), "np": np.random.rand(len(samples))}


def loop(data, collate, workers=0, batch=BATCH):
    start(0)
    loader = DataLoader(data, batch, shuffle=True, num_workers=workers, collate_fn=collate)
    return steps(loader, epochs=2)


def leaves(batch) -> Iterator[object]:
    """The values of a batch, as lists."""
    for part in batch.values() if hasattr(batch, "values") else batch:
        yield part.tolist()


def run(data, collate, workers=0, *, stop=None, state=None, batch=BATCH):
    """The batches of a loop, and its state."""
    of = loop(data, collate, workers, batch)
    if state is not None:
        of.load_state_dict(state)
    found = []
    for _, _, each in itertools.islice(of, stop):
        found.append([*leaves(each)])
        state = of.state_dict()
    return found, state


def check(data, collate, sizes=(BATCH,)):
    """The batches are the same by any workers, and after a resume; return the rows of an epoch."""
    whole, _ = run(data, collate)
    for workers in (1, 2):
        assert run(data, collate, workers)[0] == whole
        begun, state = run(data, collate, workers, stop=4)
        assert begun + run(data, collate, 2 - workers, state=state)[0] == whole
    rows = [row for batch in whole for row in zip(*batch, strict=True)]
    for size in sizes:
        other, _ = run(data, collate, 1, batch=size)
        assert [row for batch in other for row in zip(*batch, strict=True)] == rows
    start(0)
    plain = DataLoader(data, BATCH, num_workers=2, collate_fn=collate)
    data.set_epoch(0)
    ours = [[*leaves(batch)] for batch in Loader(data, BATCH, collate_fn=collate)]
    assert [[*leaves(batch)] for batch in plain] == ours
    return whole
