"""The streams that the library itself uses are those of the table in docs/spec/derivation.md."""

import random
from types import SimpleNamespace

import numpy as np
import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, Sampler

import fastseed
from fastseed import SHARED, derive_key
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
