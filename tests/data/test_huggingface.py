"""Loaders over datasets of Hugging Face, stopped and resumed; the Trainer's are in integrations."""

from __future__ import annotations

import itertools

import pytest
import torch
from helpers.loaders import start

from fastseed.data import Loader, per_sample

datasets = pytest.importorskip("datasets")
pytestmark = pytest.mark.integrations

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
    with pytest.raises(ValueError, match="num_workers must be 0 for an iterable dataset without"):
        Loader(make(), num_workers=2).state_dict()
