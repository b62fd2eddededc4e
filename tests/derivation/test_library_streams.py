"""The streams that the library itself uses are those of the table in docs/spec/derivation.md."""

import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from helpers.support import seeder
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, Sampler

import fastseed
from fastseed import SHARED, derive_key
from fastseed._backend.reference import scalar
from fastseed.derivation import reserved, streams
from fastseed.generators.default import NAMES
from fastseed.generators.numpy_rng import NumpyRandomState
from fastseed.generators.torch_rng import TorchGenerator

AT = {"task": 1, "epoch": 3, "step": 0}


def start(rank: int = 3) -> None:
    fastseed.init(42, rank=rank, world_size=8)
    fastseed.reseed(1, 3, 5)


def torch_generator(key: int) -> torch.Generator:
    generator = torch.Generator()
    TorchGenerator(generator).seed(key)
    return generator


def order(loader) -> list[int]:
    return [int(index) for batch in loader for index in batch]


class ForeignSampler(Sampler):
    """A sampler of another library: draws from all three global generators."""

    def __iter__(self):
        self.seen = random.random(), np.random.random(), float(torch.rand(()))
        return iter(range(4))

    def __len__(self):
        return 4


def test_samplers_of_other_libraries_draw_from_streams_of_the_loader():
    start()
    sampler = ForeignSampler()
    list(fastseed.data.Loader(range(4), sampler=sampler))
    key = {name: derive_key(f"loader.{name}", rank=3, **AT) for name in NAMES}
    numpy = np.random.RandomState()
    NumpyRandomState(numpy).reseed(SimpleNamespace(key=lambda: key["numpy"]))
    assert sampler.seen == (
        random.Random(key["python"]).random(),
        numpy.random_sample(),
        float(torch.rand((), generator=torch_generator(key["torch.cpu"]))),
    )


def test_samplers_of_torch_draw_from_the_stream_of_the_loader():
    start()
    sampler = RandomSampler(range(10))
    found = order(fastseed.data.Loader(range(10), sampler=sampler, batch_size=2))
    generator = torch_generator(derive_key("loader", rank=3, **AT))
    assert found == list(RandomSampler(range(10), generator=generator))


def test_samplers_that_replicas_divide_have_a_shared_stream():
    class Divided(BatchSampler):
        num_replicas = 8

    start()
    found = order(
        fastseed.data.Loader(range(10), batch_sampler=Divided(RandomSampler(range(10)), 2, False))
    )
    generator = torch_generator(derive_key("loader", rank=SHARED, **AT))
    assert found == list(RandomSampler(range(10), generator=generator))


def test_base_seed_of_workers_is_drawn_from_index_1():
    start()

    class Spy(torch.utils.data.Dataset):
        def __len__(self):
            return 2

        def __getitem__(self, index):
            return torch.utils.data.get_worker_info().seed

    loader = fastseed.data.Loader(Spy(), batch_size=2, num_workers=1)
    seen = [int(seed) for batch in loader for seed in batch]
    generator = torch_generator(derive_key("loader", rank=3, index=1, **AT))
    base = DataLoader(range(2), generator=generator)
    assert seen == [iter(base)._base_seed] * 2


ALL = [*sorted(reserved.NAMES), "init/weight", "dropout/0", "block/torch.cpu"]


@pytest.mark.parametrize("name", ALL)
def test_a_reserved_name_is_refused_wherever_a_stream_is_named(name):
    message = r"name must be one that fastseed does not use itself, got "
    members = [torch.Generator()]
    with pytest.raises(ValueError, match=rf"fastseed\.register_generator: {message}"):
        seeder().register_generator(members[0], name=name)
    with pytest.raises(ValueError, match=rf"fastseed\.GeneratorPool: {message}"):
        fastseed.GeneratorPool(members, name=name)
    with pytest.raises(ValueError, match=rf"fastseed\.(random\.)?StreamBank: {message}"):
        fastseed.random.StreamBank(1, name)
    if name != "rollout":
        with pytest.raises(ValueError, match=rf"fastseed\.rollouts\.seeds: {message}"):
            fastseed.rollouts.seeds(0, [1], 1, name=name, master_seed=1)


@pytest.mark.parametrize("name", ["dropout", "init", "samples", "loader/0", "dataset.rng", "jax"])
def test_names_that_resemble_reserved_ones_are_free(name):
    assert not reserved.is_reserved(name)
    seeder().register_generator(torch.Generator(), name=name)


def test_samplers_that_draw_nothing_have_any_name():
    fastseed.init(42, rank=0, world_size=1)
    fastseed.register_generator(fastseed.data.ShuffleSampler(8), name="shuffle")


class Noise(torch.utils.data.Dataset):
    """Draws from every default generator."""

    def __len__(self):
        return 8

    def __getitem__(self, index):
        return index + torch.rand(())


def test_every_name_that_the_library_derives_is_reserved(monkeypatch):
    """Names are recorded where they are hashed, during a tour of what derives keys."""
    names: set[str] = set()
    hashed = scalar.name_words

    def record(name):
        names.add(name)
        return hashed(name)

    streams.name_words.cache_clear()
    monkeypatch.setattr(scalar, "name_words", record)
    fastseed.init(42, rank=0, world_size=1)
    tour()
    streams.name_words.cache_clear()
    assert names > {"loader", "shuffle", "mixture", "dropout/a", "init/weight"}
    own = {name for name in names if not name.startswith("source/")}
    assert set(filter(reserved.is_reserved, own)) == own


def tour():
    """Use each feature once, with the names that it has by default."""
    data, nn = fastseed.data, fastseed.nn
    fastseed.reseed(1)
    data.ShuffleSampler(8).set_epoch(0)
    list(data.ShuffleSampler(8))
    list(
        data.MixtureSampler(
            {"source/a": range(4), "source/b": range(4)}, {"source/a": 1.0, "source/b": 2.0}
        )
    )
    loader = torch.utils.data.DataLoader(data.per_sample(Noise()), batch_size=4, shuffle=True)
    for _ in data.steps(loader, epochs=1, task=1):
        pass
    list(data.Loader(range(4), sampler=RandomSampler(range(4))))
    fastseed.reseed(2)
    with nn.rows(0, 2):
        nn.Dropout(0.5, name="a")(torch.ones(2, 3))
    with nn.initialize(linear := torch.nn.Linear(2, 2), task=0):
        linear.reset_parameters()
    with fastseed.fork_rng("block"):
        pass
