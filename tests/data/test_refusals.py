"""Arguments that fastseed.data refuses, each with its rule; nothing is drawn meanwhile."""

import pytest
import torch
from helpers.loaders import Numbers, Plain
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
)

OVERRIDDEN = ("__iter__", "_get_iterator", "__len__", "_index_sampler", "_auto_collation")
NUMBERS = Numbers(9)
RANDOM = RandomSampler(range(9), generator=torch.Generator())
WEIGHTED = WeightedRandomSampler([1.0] * 9, 9, generator=torch.Generator())
SIZES = {"web": 700, "code": 90}


class Around:
    """As timm's PrefetchLoader is around a loader."""

    loader = DataLoader(range(4))


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


@pytest.mark.parametrize("name", OVERRIDDEN)
def test_a_class_that_iterates_in_its_own_way_is_refused_by_the_methods_name(name):
    inherited = getattr(DataLoader, name)
    is_property = isinstance(inherited, property)
    own = property(inherited.fget) if is_property else lambda self: inherited(self)
    kind = type("Own", (DataLoader,), {name: own})
    refused(lambda: steps(kind(Plain(4))), TypeError, rf"Loader: .* without its own {name} \(")
    unlike = type("Named", (DataLoader,), {"describe": lambda self: "a loader"})
    assert len(list(steps(unlike(Plain(4)), epochs=1))) == 4


@pytest.mark.parametrize(
    ("call", "error", "rule"),
    [
        (lambda: Loader(None), TypeError, "Loader: dataset must be a dataset with __getitem__"),
        (lambda: Loader(IterableWrapper([1])), TypeError, "Loader: dataset must be a dataset"),
        (lambda: Loader(SequenceWrapper([1])), TypeError, "Loader: dataset must be a dataset"),
        (
            lambda: Loader(Plain(4), torch.ones(0)),
            TypeError,
            "Loader: batch_size must be an integer",
        ),
        (lambda: Loader(DataLoader(Plain(4)), 2), TypeError, "Loader: dataset .* are taken as th"),
        (lambda: Loader(Own(Plain(4))), TypeError, "Loader: loader .* see attach of fastse"),
        (lambda: steps(Own(Plain(4))), TypeError, "Loader: loader must be a DataLoader without it"),
        (lambda: steps([1, 2], 1), TypeError, "steps: loader must be a DataLoader, got"),
        (
            lambda: steps(Around(), 1),
            TypeError,
            "steps: loader must be a DataLoader: pass its .loader, w",
        ),
        (lambda: list(steps(Loader(Plain(3)))), TypeError, "steps: epochs must be the .*in_epoch"),
        (lambda: Seekable(NUMBERS), TypeError, "Seekable: source must be a function of a p"),
    ],
)
def test_loaders(call, error, rule):
    refused(call, error, rule)


@pytest.mark.parametrize(
    ("made", "error", "rule"),
    [
        (lambda: Loader(NUMBERS), TypeError, "dataset must be map-style, a Seekable"),
        (lambda: Loader(Plain(4), in_order=False), ValueError, "in_order must be True"),
        (lambda: Loader(Plain(9), sampler=RANDOM), ValueError, "sampler must be without a"),
        (lambda: Loader(Plain(9), sampler=WEIGHTED), ValueError, "sampler must be without a"),
    ],
)
def test_loaders_without_a_state_are_iterated_and_raise_where_a_state_is_needed(made, error, rule):
    refused(lambda: made().state_dict(), error, rf"Loader\.state_dict: {rule}")
    refused(lambda: made().load_state_dict({}), error, rf"Loader\.load_state_dict: {rule}")
    refused(lambda: steps(made()).state_dict(), error, rf"steps\.state_dict: {rule}")


@pytest.mark.parametrize(
    ("call", "error", "rule"),
    [
        (lambda: per_sample(Stream(0)), TypeError, "per_sample: dataset .* have no index, got"),
        (lambda: per_sample(Plain(3), "numpy"), TypeError, r"per_sample: .* \(index, generator\)"),
        (lambda: per_sample(Plain(3), "jax"), ValueError, "per_sample: generator must be"),
        (lambda: per_sample(Plain(3), transform=3), TypeError, "per_sample: transform must be a f"),
        (
            lambda: per_sample(Plain(3), "torch", transform=id),
            TypeError,
            "per_sample: transform must be a f",
        ),
        (lambda: per_sample(Plain(3))["3"], TypeError, "per_sample: index must be an i"),
        (lambda: per_sample(Plain(3))[2**64], IndexError, r"per_sample: index must be in \[0, 184"),
        (lambda: per_sample(Plain(3))[-33], IndexError, "per_sample: index must be in .* got -30"),
        (lambda: Repeat(0, 0), ValueError, "Repeat: occurrence must be in"),
        (lambda: count_occurrences(3), TypeError, "count_occurrences: sampler must be iterable, "),
        (lambda: list(count_occurrences("ab")), TypeError, "count_occurrences: sampler must be an"),
    ],
)
def test_samples(call, error, rule):
    refused(call, error, rule)


@pytest.mark.parametrize(
    ("arguments", "error", "rule"),
    [
        ({"data": 0}, ValueError, "data must be in"),
        ({"data": torch.tensor(5)}, TypeError, "data must be a dataset with a length, or a number"),
        ({"rank": 0}, TypeError, "world_size must be an integer, got None"),
        ({"rank": 2, "world_size": 2}, ValueError, r"rank must be in \[0, 1\], got 2"),
    ],
)
def test_shuffle_sampler(arguments, error, rule):
    refused(lambda: ShuffleSampler(**{"data": 10, **arguments}), error, f"ShuffleSampler: {rule}")


@pytest.mark.parametrize(
    ("changed", "error", "rule"),
    [
        ({"sources": {}}, ValueError, "sources must be between 1 and 1024 datasets"),
        ({"sources": {**SIZES, "web": 0}}, ValueError, r"sources\['web'\] must be in \[1"),
        ({"weights": {"web": 1}}, ValueError, "weights must be a number for each of 'web', 'code'"),
        (
            {"weights": {"web": 0, "code": 1}},
            ValueError,
            r"weights\['web'\] must be positive, and at least",
        ),
        ({"skip": {"other": 1}}, ValueError, "skip must be a number for each of"),
        ({"rank": 0}, TypeError, "world_size must be an integer, got None"),
    ],
)
def test_mixture_sampler(changed, error, rule):
    arguments = {"sources": SIZES, "weights": {"web": 1.0, "code": 0.2}, **changed}
    refused(lambda: MixtureSampler(**arguments), error, f"MixtureSampler: {rule}")
