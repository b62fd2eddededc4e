"""Names that the library uses itself: no user's generator, pool or bank has one."""

import pytest
import torch
from helpers.support import seeder

import fastseed
from fastseed._backend.reference import scalar
from fastseed.derivation import reserved, streams

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
    fastseed.reseed(2)
    with nn.rows(0, 2):
        nn.Dropout(0.5, name="a")(torch.ones(2, 3))
    with nn.initialize(linear := torch.nn.Linear(2, 2), task=0):
        linear.reset_parameters()
    with fastseed.fork_rng("block"):
        pass
