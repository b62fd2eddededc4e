"""Loaders over datasets of Hugging Face, stopped and resumed; the Trainer's are in integrations."""

import itertools

import pytest
import torch
from helpers.loaders import start
from torch.utils.data import DataLoader

from fastseed.data import Loader, per_sample, steps

datasets = pytest.importorskip("datasets")

N = 40


def augment(batch):
    return {**batch, "noise": [float(torch.rand(())) for _ in batch["index"]]}


def run(data, batch=4, *, state=None, stop=None, **more):
    """The samples of an epoch or of a part of it, and the loader's state."""
    start(3)
    batches = Loader(data, batch, **more)
    if state is not None:
        batches.load_state_dict(state)
    found = []
    for part in itertools.islice(batches, stop):
        columns = [column.tolist() for column in part.values()]
        found += zip(*columns, strict=True)
    return found, batches.state_dict()


def test_a_map_style_dataset_resumes_with_other_workers():
    plain = datasets.Dataset.from_dict({"index": list(range(N))})
    for data in (plain, per_sample(plain.with_transform(augment))):
        whole, _ = run(data, shuffle=True)
        before, state = run(data, shuffle=True, stop=3, num_workers=1)
        after, _ = run(data, 7, shuffle=True, state=state)
        assert before + after == whole and len(set(whole)) == N


def test_an_iterable_dataset_resumes_by_its_own_state():
    def make():
        return datasets.Dataset.from_dict({"index": list(range(N))}).to_iterable_dataset(3)

    whole, _ = run(make())
    before, state = run(make(), stop=3)
    after, _ = run(make(), 7, state=state)
    assert before + after == whole and sorted(whole) == [(i,) for i in range(N)]


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("stop", [1, 2, 5, 9, 10, 11, 14])
def test_a_stream_resumes_in_workers(stop, persistent):
    """Of five shards, worker 0 has three: it gives batches when worker 1 has ended."""

    def loop(state=None, workers=2):
        start(3)
        data = datasets.Dataset.from_dict({"index": list(range(N))}).to_iterable_dataset(5)
        more = {"num_workers": workers, "persistent_workers": persistent and workers > 0}
        found = steps(DataLoader(data, 4, **more), 2)
        if state is not None:
            found.load_state_dict(state)
        return found

    def run(loop, stop=None):
        return [(e, s, b["index"].tolist()) for e, s, b in itertools.islice(loop, stop)]

    whole = run(loop())
    first = loop()
    seen = run(first, stop)
    state = first.state_dict()
    assert seen + run(loop(state)) == whole
    for workers in (3, 0):
        with pytest.raises(ValueError, match=r"must be of workers \d, as here"):
            run(loop(state, workers))
