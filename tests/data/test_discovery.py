"""Which generators of a dataset are found, under which path, and that nothing of it is run."""

import collections
import functools
import logging
import random
import re

import numpy as np
import pytest
import torch
from helpers.inside import ScopedDataset, discovery, scope, seeding, warn_once
from helpers.support import seeder
from helpers.worker_cases import KINDS, Draws, Transform, Transformed
from torch.utils.data import ConcatDataset, Subset, TensorDataset

from fastseed import GeneratorPool
from fastseed.data import per_sample


class Bare:
    """Holds what it is given."""

    def __init__(self, **held):
        self.__dict__.update(held)


def rng():
    return random.Random(0)


def paths(dataset, **more):
    return [path for path, _ in discovery.discover(dataset, wrapped=scope.wrapped, **more)]


# ---------------------------------------------------------------- what is found


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_found_as_an_attribute(kind):
    generator = KINDS[kind]()
    ((path, found),) = discovery.discover(Draws(generator))
    assert path == "dataset.rng" and found is generator


def test_transforms_and_containers():
    data = Bare(
        transform=Bare(transforms=[None, Transform(rng()), (rng(), "x")]),
        by_name={"flip": rng(), 3: rng(), (1, 2): rng(), "inner": {"deep": [rng()]}},
        ordered=collections.OrderedDict(a=rng()),
    )
    assert sorted(paths(data)) == [
        "dataset.by_name[#2]",
        "dataset.by_name['flip']",
        "dataset.by_name['inner']['deep'][0]",
        "dataset.by_name[3]",
        "dataset.ordered['a']",
        "dataset.transform.transforms[1].rng",
        "dataset.transform.transforms[2][0]",
    ]


class Base:
    __slots__ = ("rng",)


class Slotted(Base):
    __slots__ = ("empty", "other")

    def __init__(self):
        self.rng, self.other = rng(), rng()


class Shared:
    shared, hidden, gone = rng(), rng(), rng()


class OfClass(Shared):
    gone = None

    def __init__(self):
        self.hidden = None


def modules():
    flip, first = torch.nn.Identity(), torch.nn.Identity()
    flip.rng, first.rng = torch.Generator(), rng()
    model = torch.nn.Sequential(first)
    model.add_module("flip", flip)
    return Bare(transform=model)


def several_paths():
    generator = rng()
    return Bare(first=Bare(inner=generator), near=generator, last=generator)


def shared_bit_generators():
    new = np.random.default_rng(0)
    old = np.random.RandomState(np.random.MT19937(0))
    again = np.random.Generator(old._bit_generator)
    return Bare(a=new, b=np.random.Generator(new.bit_generator), c=old, d=again)


def cycle():
    data = Bare(rng=rng())
    data.me, data.list = data, []
    data.list.append(data.list)
    return data


def of_the_process():
    return Bare(
        a=np.random.mtrand._rand,
        b=random._inst,
        c=torch.default_generator,
        d=np.random.Generator(np.random.get_bit_generator()),
        e=random.SystemRandom(),
    )


def transformed():
    return Transformed(Transform(rng()))


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: Subset(transformed(), [0, 1]), [".dataset.transforms[0].rng"]),
        (
            lambda: ConcatDataset([transformed(), Draws(rng())]),
            [".datasets[1].rng", ".datasets[0].transforms[0].rng"],
        ),
        (lambda: TensorDataset(torch.zeros(3)), []),
        (lambda: ScopedDataset(per_sample(Draws(rng()))), [".rng"]),
        (lambda: Subset(per_sample(Draws(rng())), [0]), [".dataset.rng"]),
        (modules, [".transform[0].rng", ".transform.flip.rng"]),
        (lambda: Bare(module=random, kind=type("Kind", (), {"rng": rng()})), []),
        (several_paths, [".near"]),  # the nearest path names it
        (shared_bit_generators, [".a", ".c"]),  # two of one bit generator are one
        (cycle, [".rng"]),
        (of_the_process, []),
    ],
)
def test_paths(make, expected):
    assert paths(make()) == [f"dataset{path}" for path in expected]


def test_partial_functions_are_searched():
    generators = [rng(), rng()]
    data = Bare(partial=functools.partial(print, generators[0], rng=generators[1]))
    assert [(path, generators.index(found)) for path, found in discovery.discover(data)] == [
        ("dataset.partial.args[0]", 0),
        ("dataset.partial.keywords['rng']", 1),
    ]


def closure(generator):
    return lambda x: generator.random() + x


def defaults(generator):
    def function(x, r=generator):
        return x

    return function


def keyword_defaults(generator):
    def function(x, *, r=generator):
        return x

    return function


HIDDEN = {
    "closure": closure,
    "defaults": defaults,
    "keyword defaults": keyword_defaults,
    "method": lambda generator: Transform(generator).__call__,
    "builtin": lambda generator: generator.random,
    "deque": lambda generator: collections.deque([generator]),
    "slots": lambda generator: Slotted(),
    "class": lambda generator: OfClass(),
}


def test_a_closure_in_a_closure_is_not_searched(caplog):
    inner = closure(rng())
    assert discovery.discover(Bare(held=lambda x: inner(x))) == [] and caplog.records == []


@pytest.mark.parametrize("place", HIDDEN)
def test_a_generator_without_a_path_is_warned_of(place, caplog):
    warn_once.cache_clear()
    data = Bare(held=HIDDEN[place](rng()))
    assert discovery.discover(data) == []
    (record,) = caplog.records
    assert re.search(r"dataset\.held.* refer\(s\) to a random generator in a place", record.message)
    discovery.discover(data)
    assert len(caplog.records) == 1


def test_generators_with_another_path_and_of_the_process_are_not_warned_of(caplog):
    warn_once.cache_clear()
    generator = rng()
    data = Bare(
        draw=generator.random,
        rng=generator,
        of_globals=(random.random, np.random.normal, np.random.rand, torch.rand, print),
        method=Transform(generator).__call__,
    )
    assert [path for path, _ in discovery.discover(data)] == ["dataset.rng"]
    assert discovery.discover(Bare(draw=closure(generator)), "dataset", [generator]) == []
    assert caplog.records == []


def test_registered_generators_stay_with_their_names():
    single, pooled, listed, by_method, free = (
        rng(), torch.Generator(), torch.Generator(), rng(), rng(),
    )  # fmt: skip
    s = seeder()
    s.register_generator(single, name="single")
    s.register_generator(GeneratorPool([pooled], "pool"), name="pool")
    s.register_generator([listed], name="list")
    s.register_generator(by_method.seed, name="method")
    data = Bare(a=single, b=[pooled, listed], c=by_method, d=free)
    (found,) = seeding.found_in(data, s.generators.registry.generators)
    assert found.name == "dataset.d" and found.generator is free and not found.shared


def test_a_path_whose_id_is_taken_gets_a_prime():
    s = seeder()
    s.register_generator(rng(), name="dataset.rng")
    (found,) = seeding.found_in(Draws(rng()), s.generators.registry.generators)
    assert found.name == "dataset.rng'"


class Touchy:
    """Whoever runs any of it hears of it."""

    def _no(self, *_):
        raise AssertionError("code of the dataset was run")

    rng = property(_no)
    __getattr__ = __iter__ = __len__ = __eq__ = __hash__ = __bool__ = __repr__ = _no
    __getitem__ = __contains__ = keys = values = items = _no

    def __getattribute__(self, name):
        raise AssertionError("code of the dataset was run")


def test_attributes_of_the_data_set_are_not_computed():
    holder = Touchy()
    object.__setattr__(holder, "held", rng())
    assert paths([holder, {"k": holder}]) == ["dataset[0].held"]


# ---------------------------------------------------------------- bounds


def test_too_many_objects_are_cut_with_a_warning(caplog, monkeypatch):
    monkeypatch.setattr(discovery, "MAX_OBJECTS", 500)
    data = Bare(near=rng(), many=[Transform(None) for _ in range(900)])
    with caplog.at_level(logging.WARNING, logger="fastseed"):
        assert paths(data) == ["dataset.near"]
    (record,) = caplog.records
    assert "the search ended after " in record.message


def test_long_lists_of_data_are_passed_over_without_a_warning(caplog, monkeypatch):
    monkeypatch.setattr(discovery, "MAX_OBJECTS", 100)
    data = Bare(
        samples=[(f"{i}.png", i) for i in range(100_000)],
        boxes=[{"box": [1, 2, 3, 4], "label": "x"} for _ in range(5_000)],
        by_id={i: [i] for i in range(5_000)},
        queue=collections.deque(range(5_000)),
        rng=rng(),
    )
    with caplog.at_level(logging.WARNING, logger="fastseed"):
        assert paths(data) == ["dataset.rng"]
    assert caplog.records == []


def test_long_lists_of_objects_are_searched():
    data = [Transform(None) for _ in range(3_000)]
    data[1_234].rng = rng()
    assert paths(data) == ["dataset[1234].rng"]
