"""Arguments that fastseed.data refuses, each with its rule; nothing is drawn meanwhile."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers.loaders import Numbers, Plain, Stateful
from helpers.support import snapshot
from helpers.worker_cases import Stream
from torch.utils.data import DataLoader, RandomSampler, WeightedRandomSampler
from torch.utils.data.datapipes.iter import IterableWrapper
from torch.utils.data.datapipes.map import SequenceWrapper

import fastseed
from fastseed.data import (
    Loader,
    MixtureSampler,
    Repeat,
    Seekable,
    ShuffleSampler,
    count_occurrences,
    per_sample,
    steps,
    worker_init_fn,
)

NUMBERS = Numbers(9)
META = torch.ones(1, dtype=torch.int64, device="meta")
RANDOM = RandomSampler(range(9), generator=torch.Generator())
WEIGHTED = WeightedRandomSampler([1.0] * 9, 9, generator=torch.Generator())
SIZES = {"web": 700, "code": 90}


class Own(DataLoader):
    """Iterates in a way of its own."""

    def __iter__(self):
        return iter(())


@pytest.fixture(autouse=True)
def job():
    fastseed.init(42, rank=0, world_size=1)
    fastseed.reseed(1, 7)


def refused(call, error, rule):
    before = snapshot()
    with pytest.raises(error, match=rf"^fastseed\.data\.{rule}"):
        call()
    assert snapshot() == before


@pytest.mark.parametrize(
    ("call", "error", "rule"),
    [
        (lambda: Loader(DataLoader(Plain(4))), TypeError, "loader: dataset .* write fastseed.data"),
        (lambda: Loader(None), TypeError, "loader: dataset must be a dataset with __getitem__"),
        (lambda: Loader(iter([1])), TypeError, "loader: dataset must be a dataset with __getitem"),
        (lambda: Loader(IterableWrapper([1])), TypeError, "loader: .* torch has deprecated DataP"),
        (lambda: Loader(SequenceWrapper([1])), TypeError, "loader: .* torch has deprecated DataP"),
        (lambda: Loader(Plain(4), shuffle="no"), TypeError, "loader: shuffle must be a bool, got "),
        (lambda: Loader(Plain(4), drop_last="no"), TypeError, "loader: drop_last must be a bool"),
        (lambda: Loader(Plain(4), name=3), TypeError, "loader: name must be a string, got 3"),
        (lambda: Loader(DataLoader(Plain(4))), TypeError, "Loader: dataset .* not a D"),
        (lambda: Loader(NUMBERS), TypeError, "Loader: dataset must be map-style, a Se"),
        (lambda: Loader(Stateful(9), num_workers=2), ValueError, ".*num_workers must be 0.*got"),
        (lambda: Loader(Plain(4), in_order=False), ValueError, ".*: in_order must be True"),
        (lambda: Loader(Plain(9), sampler=RANDOM), ValueError, ".*: sampler must be without a"),
        (lambda: steps(DataLoader(Plain(9), sampler=WEIGHTED)), ValueError, ".*use shuffle=True,"),
        (lambda: Loader([1]), TypeError, r"prepare: loader must be a torch.utils.data.DataLoader"),
        (lambda: Loader(Own(Plain(4))), TypeError, "prepare: loader .* use AcceleratedJob.train"),
        (lambda: steps(Own(Plain(4))), TypeError, "steps: loader must be a DataLoader without its"),
        (lambda: steps([1, 2], 1), TypeError, "steps: loader must be a torch.utils.data.DataL"),
        (lambda: steps(Loader(Plain(3)), -1), ValueError, "steps: epochs must be in"),
        (lambda: steps(Loader(Plain(3)), 1, task=2**24), ValueError, "steps: task must be in"),
        (lambda: steps(Loader(Plain(3))).in_epoch(1.5), TypeError, r"steps\.in_epoch: epoch must"),
        (lambda: iter(steps(Loader(Plain(3)))), TypeError, "steps: epochs must be the .*in_epoch"),
        *(
            (lambda bad=bad: Seekable(bad), TypeError, "Seekable: source must be a function of a p")
            for bad in (3, None, NUMBERS, [1, 2], int)
        ),
    ],
)
def test_loaders(call, error, rule):
    refused(call, error, rule)


@pytest.mark.parametrize(
    ("call", "error", "rule"),
    [
        (lambda: per_sample(Stream(0)), TypeError, "per_sample: dataset .* have no index, got"),
        (lambda: per_sample(iter([1])), TypeError, "per_sample: dataset must be a map-style"),
        (lambda: per_sample(Plain(3), "numpy"), TypeError, r"per_sample: .* \(index, generator\)"),
        *(
            (lambda bad=bad: per_sample(Plain(3), bad), ValueError, "per_sample: generator must be")
            for bad in ("jax", "", 3, np.random)
        ),
        (lambda: per_sample(Plain(3), transform=3), TypeError, "per_sample: transform must be a f"),
        (lambda: per_sample(Plain(3), "torch", transform=id), TypeError, ".* takes .sample, gener"),
        (lambda: per_sample(Plain(3), name=3), TypeError, "per_sample: name must be"),
        (lambda: per_sample(Plain(3), name=""), ValueError, "per_sample: name must be"),
        *(
            (lambda bad=bad: per_sample(Plain(3))[bad], TypeError, "per_sample: index must be an i")
            for bad in ("3", 1.0, None, True, (1, 2), torch.tensor(1.0))
        ),
        (lambda: per_sample(Plain(3))[2**64], IndexError, r"per_sample: index must be in \[0, 184"),
        (lambda: per_sample(Plain(3))[-33], IndexError, "per_sample: index must be in .* got -30"),
        (lambda: per_sample(Plain(3)).set_epoch(-1), ValueError, r"PerSample\.set_scope: epoch mu"),
        (lambda: per_sample(Plain(3)).set_epoch("1"), TypeError, r"PerSample\.set_scope: epoch mu"),
        (lambda: per_sample(Plain(3)).set_scope(0, 2**32), ValueError, r"PerSample\.set_scope: ep"),
        (lambda: worker_init_fn("0"), TypeError, "worker_init_fn: worker_id must be"),
        (lambda: worker_init_fn(-1), ValueError, "worker_init_fn: worker_id must be"),
        (lambda: worker_init_fn(True), TypeError, "worker_init_fn: worker_id must be"),
        (lambda: Repeat(-1), ValueError, "Repeat: index must be in"),
        (lambda: Repeat(2**64), ValueError, "Repeat: index must be in"),
        (lambda: Repeat("3"), TypeError, "Repeat: index must be an integer"),
        (lambda: Repeat(0, 0), ValueError, "Repeat: occurrence must be in"),
        (lambda: Repeat(0, 2**32), ValueError, "Repeat: occurrence must be in"),
        (lambda: count_occurrences(3), TypeError, "count_occurrences: sampler must be iterable, "),
    ],
)
def test_samples(call, error, rule):
    refused(call, error, rule)


@pytest.mark.parametrize(
    ("arguments", "error", "rule"),
    [
        ({"data": 0}, ValueError, "data must be in"),
        ({"data": []}, ValueError, r"len\(data\) must be in"),
        ({"data": 2**48 + 1}, ValueError, "data must be in"),
        ({"data": 3.0}, TypeError, "data must be an integer, got 3.0"),
        ({"data": True}, TypeError, "data must be an integer"),
        ({"data": torch.tensor(5)}, TypeError, "data must be a dataset with a length, or a number"),
        ({"rank": 0}, TypeError, "world_size must be an integer, got None"),
        ({"world_size": 2}, TypeError, "rank must be an integer, got None"),
        ({"rank": 2, "world_size": 2}, ValueError, r"rank must be in \[0, 1\], got 2"),
        ({"rank": -1, "world_size": 2}, ValueError, "rank must be in"),
        ({"rank": 0, "world_size": 0}, ValueError, "world_size must be in"),
        ({"rank": 0, "world_size": 2**24}, ValueError, "world_size must be in"),
        ({"rank": "0", "world_size": 2}, TypeError, "rank must be an integer"),
        ({"drop_last": 1}, TypeError, "drop_last must be a bool, got 1 of type int"),
        ({"shuffle": None}, TypeError, "shuffle must be a bool"),
        ({"name": ""}, ValueError, "name must be a non-empty string"),
    ],
)
def test_shuffle_sampler(arguments, error, rule):
    refused(lambda: ShuffleSampler(**{"data": 10, **arguments}), error, f"ShuffleSampler: {rule}")


@pytest.mark.parametrize(
    ("changed", "error", "rule"),
    [
        ({"sources": [1]}, TypeError, "sources must be a dict of datasets"),
        ({"sources": {}}, ValueError, "sources must be between 1 and 65536 datasets"),
        ({"sources": {**SIZES, "web": 0}}, ValueError, r"sources\['web'\] must be in \[1"),
        ({"sources": {**SIZES, "web": torch.tensor(1)}}, TypeError, r"sources\['web'\] must be a"),
        ({"weights": {"web": 1}}, ValueError, "weights must be a number for each of 'web', 'code'"),
        (
            {"weights": {"web": 0, "code": 1}},
            ValueError,
            r"weights\['web'\] must be positive, and at least",
        ),
        ({"weights": {"web": "1", "code": 1}}, TypeError, r"weights\['web'\] must be a number"),
        ({"weights": {"web": float("inf"), "code": 1}}, ValueError, r"weights\['web'\] must be in"),
        (
            {"weights": {"web": 1e12, "code": 1}},
            ValueError,
            r"weights\['code'\] must be positive, and",
        ),
        ({"skip": {"other": 1}}, ValueError, "skip must be a number for each of"),
        ({"skip": {"web": -1}}, ValueError, r"skip\['web'\] must be in"),
        ({"skip": {"web": [1]}}, TypeError, r"skip\['web'\] must be an integer, got \[1\]"),
        ({"skip": 5}, TypeError, "skip must be a dict of numbers, got 5"),
        ({"skip": [("web", 1)]}, TypeError, "skip must be a dict of numbers"),
        ({"n": 0}, ValueError, "n must be in"),
        ({"n": [1, 2]}, TypeError, "n must be an integer"),
    ],
)
def test_mixture_sampler(changed, error, rule):
    arguments = {"sources": SIZES, "weights": {"web": 1.0, "code": 0.2}, **changed}
    refused(lambda: MixtureSampler(**arguments), error, f"MixtureSampler: {rule}")


@pytest.mark.parametrize(
    ("arguments", "error", "rule"),
    [
        ({"dataset": 5}, TypeError, "dataset must be a map-style dataset"),
        ({"dataset": {"a": [1]}}, TypeError, "dataset must be a map-style dataset of known length"),
        ({"dataset": torch.tensor(3)}, TypeError, "dataset must be a map-style dataset"),
        ({"dataset": META[None]}, ValueError, "dataset must have data"),
        ({"dataset": [[1], 2]}, TypeError, r"dataset\[1\] must be a sequence of integers, got 2"),
        ({"length": 0}, ValueError, "length must be in"),
        ({"lengths": 5}, TypeError, "lengths must be a tensor or a sequence of int"),
        ({"lengths": [1, 2]}, ValueError, r"lengths must be of shape \(1,\), got \(2"),
        ({"lengths": [-1]}, ValueError, r"lengths\[0\] must be in \[0, .*, got -1"),
        ({"lengths": [1.5]}, TypeError, r"lengths\[0\] must be an integer, got 1.5"),
        ({"lengths": np.ones(1)}, TypeError, r"lengths\[0\] must be an integer"),
        ({"lengths": np.array([-1])}, ValueError, "lengths must be integers of at "),
        ({"dataset": [[1], [2]], "lengths": [2**63 - 1] * 2}, ValueError, "lengths .* sum below 2"),
        ({"lengths": META}, ValueError, "lengths must have data"),
        ({"pad": 0.5}, TypeError, "pad must be an integer"),
    ],
)
def test_packed_dataset(arguments, error, rule):
    arguments = {"dataset": [[1]], "length": 3, **arguments}
    refused(lambda: PackedDataset(**arguments), error, f"PackedDataset: {rule}")
