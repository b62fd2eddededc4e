"""The cost of random numbers for each sample, in a worker's loop over a batch, and for a batch."""

from __future__ import annotations

import functools
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
AND_BACK = f"""\
kept = random.getstate(), np.random.get_state(), torch.get_rng_state()
{BY_HAND}
random.setstate(kept[0]); np.random.set_state(kept[1]); torch.set_rng_state(kept[2])
"""
BATCH_BY_HAND = """\
kept = random.getstate(), np.random.get_state(), torch.get_rng_state()
random.seed(1000); np.random.seed(1000); torch.manual_seed(1000)
collate(indices)
random.setstate(kept[0]); np.random.set_state(kept[1]); torch.set_rng_state(kept[2])
"""
NEW_TORCH = "for i in indices: torch.Generator().manual_seed(i)"
NEW_NUMPY = "for i in indices: np.random.default_rng((42, 1, 7, i))"


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
    before = info._worker_info
    info._worker_info = info.WorkerInfo(id=0, num_workers=1, seed=0, dataset=None)
    try:
        with _in_the_main_process():
            yield
    finally:
        info._worker_info = before


@contextmanager
def _in_the_main_process() -> Iterator[None]:
    token = thread_scope.set(AT)
    try:
        yield
    finally:
        thread_scope.reset(token)


class _Check(Nothing):
    """Looks at the three generators when the sample is fetched."""

    def __getitem__(self, index: int) -> int:
        expect(random.getstate() == random.Random(_key("python", index)).getstate(), "Python's")
        words = np.random.get_state()[1]
        expect(np.array_equal(words, derive.mt19937_state(_key("numpy", index))), "NumPy's")
        expect(torch.initial_seed() == _key("torch.cpu", index) & (2**64 - 1), "torch's")
        return index


def _check_globals(contest: Contest) -> None:
    fetched = contest.fastseed.run(data=per_sample(_Check()))
    expect(fetched == INDICES, "the samples")
    for side in contest.baselines:
        side.run()


def _names() -> dict[str, Any]:
    return {"random": random, "np": np, "torch": torch, "indices": INDICES, "dataset": Nothing()}


def globals_against_by_hand(main: bool) -> Contest:
    """The three global generators; in the main process they also come back after a batch."""
    fastseed.init(MASTER, 1, 0)
    names = {"data": per_sample(Nothing()), "indices": INDICES}
    side = Side("fastseed.data.per_sample", "data.__getitems__(indices)", names)
    baseline = Side("by hand", AND_BACK if main else BY_HAND, _names())
    context = _in_the_main_process if main else _in_a_worker
    return Contest(side, (baseline,), _check_globals, context=context)


def batch_against_by_hand() -> Contest:
    """The generators of one batch: set before ``collate_fn``, which draws nothing, and back."""
    fastseed.init(MASTER, 1, 0)
    data = per_sample(Nothing())
    where = WorkerSeeder(MASTER, 0, ()), AT.task, AT.epoch, None
    note = Fetched(where, lambda: data, INDICES, INDICES)
    names = {"fetched": fetched, "note": note, "collate": per_batch(len), "indices": INDICES}
    side = Side("fastseed.data.per_batch", "fetched.set(note); collate(indices)", names)
    baseline = Side("by hand", BATCH_BY_HAND, {**_names(), "collate": len})

    def look(samples: list[int]) -> None:
        key = _key("batch", samples[0])
        name = scalar.name_key((key & 2**64 - 1, key >> 64), scalar.name_words("python"))
        key = scalar.stream_key(name, 0, 0, 0, scalar.DOMAIN_SAMPLE)
        expect(random.getstate() == random.Random(key).getstate(), "Python's")

    def check(contest: Contest) -> None:
        before = random.getstate(), torch.get_rng_state().tolist()
        contest.fastseed.run(collate=per_batch(look))
        for each in (contest.fastseed, *contest.baselines):
            each.run()
        expect((random.getstate(), torch.get_rng_state().tolist()) == before, "the states after")

    return Contest(side, (baseline,), check)


def generator_against_new(kind: str) -> Contest:
    """A generator of the sample's own, against one that the dataset would make for itself."""
    fastseed.init(MASTER, 1, 0)
    data = per_sample(Given(), generator=kind)
    side = Side(
        f"per_sample(generator={kind!r})",
        "data.__getitems__(indices)",
        {"data": data, "indices": INDICES},
    )
    statement = {"torch": NEW_TORCH, "numpy": NEW_NUMPY}[kind]
    baseline = Side("a new generator by hand", statement, _names())

    def check(contest: Contest) -> None:
        for index, rng in zip(INDICES, contest.fastseed.run(), strict=True):
            key = _key("sample", index)
            if kind == "torch":
                expect(rng.initial_seed() == key & (2**64 - 1), "torch's seed")
            else:
                expected = np.random.default_rng(key).bit_generator.state
                expect(rng.bit_generator.state == expected, "NumPy's state")
        contest.baselines[0].run()

    return Contest(side, (baseline,), check, context=_in_a_worker)


def cases() -> list[Case]:
    """The rows of this module: each for a batch of 64 samples."""
    name = f"per_sample/cpu/{BATCH}"
    worker, main = (functools.partial(globals_against_by_hand, m) for m in (False, True))
    torch_own, numpy_own = (functools.partial(generator_against_new, k) for k in ("torch", "numpy"))
    return [
        Case(f"{name}-worker", "three seed calls a sample by hand", 5, worker),
        Case(f"{name}-main", "three seed calls a sample, and back", 5, main),
        Case("per_batch/cpu/1", "save, three seed calls, restore", 0.667, batch_against_by_hand),
        Case(f"{name}-torch-generator", "torch.Generator().manual_seed", None, torch_own),
        Case(f"{name}-numpy-generator", "numpy.random.default_rng", None, numpy_own),
    ]
