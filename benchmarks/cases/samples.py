"""The cost of random numbers for each sample, in a worker's loop over a batch, and for a batch."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

import fastseed
from fastseed._backend import derive
from fastseed._backend.reference import scalar
from fastseed.data import per_batch, per_sample
from fastseed.data.worker.scope import Fetched, IterationScope, fetched, thread_scope
from fastseed.data.worker.seeding import WorkerSeeder

from ..case import Case, Contest, Side, expect

MASTER, BATCH = 42, 64
AT = IterationScope(1, 7, 0, 1)
INDICES = list(range(1000, 1000 + BATCH))

BY_HAND = """\
for i in indices:
    random.seed(i); np.random.seed(i); torch.manual_seed(i)
    dataset[i]
"""
BATCH_BY_HAND = """\
kept = random.getstate(), np.random.get_state(), torch.get_rng_state()
random.seed(1000); np.random.seed(1000); torch.manual_seed(1000)
collate(indices)
random.setstate(kept[0]); np.random.set_state(kept[1]); torch.set_rng_state(kept[2])
"""
NEW_TORCH = "for i in indices: torch.Generator().manual_seed(i)"
LABEL = "three seed calls a sample by hand"
BATCH_LABEL, NEW_LABEL = "save, three seed calls, restore", "torch.Generator().manual_seed"


class Nothing:
    """Draws nothing: what is left is the cost of seeding."""

    def __getitem__(self, index: int) -> int:
        return index


class Given:
    """Takes a generator, and does nothing with it."""

    def __getitem__(self, index: int, rng: Any) -> Any:
        return rng


def _key(name: str, index: int) -> int:
    scope = scalar.scope_key(MASTER, AT.task, AT.epoch, 0)
    name_key = scalar.name_key(scope, scalar.name_words(name))
    return scalar.stream_key(name_key, 0, 0, index, scalar.DOMAIN_SAMPLE)


@contextmanager
def _in_a_worker() -> Iterator[None]:
    """As a worker of our loader: nothing is put back after a batch."""
    info = torch.utils.data._utils.worker
    before, token = info._worker_info, thread_scope.set(AT)
    info._worker_info = info.WorkerInfo(id=0, num_workers=1, seed=0, dataset=None)
    try:
        yield
    finally:
        info._worker_info = before
        thread_scope.reset(token)


class _Check(Nothing):
    """Looks at the three generators when the sample is fetched."""

    def __getitem__(self, index: int) -> int:
        expect(random.getstate() == random.Random(_key("python", index)).getstate(), "Python's")
        words = np.random.get_state()[1]
        expect(np.array_equal(words, derive.mt19937_state(_key("numpy", index))), "NumPy's")
        expect(torch.initial_seed() == _key("torch.cpu", index) & (2**64 - 1), "torch's")
        return index


def _check_globals(side: Side) -> None:
    expect(side.run(data=per_sample(_Check())) == INDICES, "the samples")


def _names() -> dict[str, Any]:
    return {"random": random, "np": np, "torch": torch, "indices": INDICES, "dataset": Nothing()}


def against_by_hand(_: str) -> Contest:
    """The three global generators, in a worker."""
    fastseed.init(MASTER, 1, 0)
    names = {"data": per_sample(Nothing()), "indices": INDICES}
    side = Side("fastseed.data.per_sample", "data.__getitems__(indices)", names)
    theirs = Side("by hand", BY_HAND, _names())
    return Contest(side, _check_globals, {LABEL: lambda: [theirs]}, context=_in_a_worker)


def batch_against_by_hand(_: str) -> Contest:
    """The generators of one batch: set before ``collate_fn``, which draws nothing, and back."""
    fastseed.init(MASTER, 1, 0)
    data = per_sample(Nothing())
    where = WorkerSeeder(MASTER, 0, ()), AT.task, AT.epoch, None
    note = Fetched(where, lambda: data, INDICES, INDICES)
    names = {"fetched": fetched, "note": note, "collate": per_batch(len), "indices": INDICES}
    side = Side("fastseed.data.per_batch", "fetched.set(note); collate(indices)", names)
    theirs = Side("by hand", BATCH_BY_HAND, {**_names(), "collate": len})

    def look(samples: list[int]) -> None:
        key = _key("batch", samples[0])
        name = scalar.name_key((key & 2**64 - 1, key >> 64), scalar.name_words("python"))
        key = scalar.stream_key(name, 0, 0, 0, scalar.DOMAIN_SAMPLE)
        expect(random.getstate() == random.Random(key).getstate(), "Python's")

    def restores(each: Side) -> None:
        before = random.getstate(), torch.get_rng_state().tolist()
        each.run()
        expect((random.getstate(), torch.get_rng_state().tolist()) == before, "the states after")

    def check(each: Side) -> None:
        each.run(collate=per_batch(look))
        restores(each)

    return Contest(side, check, {BATCH_LABEL: lambda: [theirs]}, restores)


def own_generator(_: str) -> Contest:
    """A torch.Generator of the sample's own, against one that the dataset makes for itself."""
    fastseed.init(MASTER, 1, 0)
    names = {"data": per_sample(Given(), generator="torch"), "indices": INDICES}
    side = Side("per_sample(generator='torch')", "data.__getitems__(indices)", names)
    theirs = Side("a new generator by hand", NEW_TORCH, _names())

    def check(each: Side) -> None:
        for index, rng in zip(INDICES, each.run(), strict=True):
            expect(rng.initial_seed() == _key("sample", index) & (2**64 - 1), "torch's seed")

    return Contest(side, check, {NEW_LABEL: lambda: [theirs]}, context=_in_a_worker)


def cases() -> list[Case]:
    """The rows of this module: each for a batch of 64 samples."""
    return [
        Case("per_sample", f"{BATCH}-worker", {LABEL: 5}, against_by_hand, headline=True),
        Case("per_sample", f"{BATCH}-torch-generator", {NEW_LABEL: None}, own_generator),
        Case("per_batch", "1", {BATCH_LABEL: 0.667}, batch_against_by_hand),
    ]
