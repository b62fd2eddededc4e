"""The form of per_sample without globals, and indices that come again."""

import copy
import pickle

import numpy as np
import pytest
from helpers.support import holds_key, reference_sample_key, snapshot
from helpers.worker_cases import Epochs, draw_from
from torch.utils.data import BatchSampler, Dataset, SequentialSampler

import fastseed
from fastseed.data import Repeat, count_occurrences, per_sample


@pytest.fixture(autouse=True)
def job():
    fastseed.init(42, rank=0, world_size=1)
    fastseed.reseed(1, 5)


class Given(Dataset):
    """Draws from what it is given."""

    def __len__(self):
        return 12

    def __getitem__(self, index, rng):
        return draw_from(rng)


class Read(Given):
    """Gives what it is given."""

    def __getitem__(self, index, rng):
        return index, rng


def sample_key(index, occurrence=0):
    return reference_sample_key("sample", index, occurrence)


def test_numpy_generators_are_default_rng_of_the_key():
    data = per_sample(Read(), generator="numpy")
    index, rng = data[Repeat(3, 2)]
    assert index == 3 and isinstance(rng, np.random.Generator)
    expected = np.random.default_rng(sample_key(3, 2))
    assert rng.bit_generator.state == expected.bit_generator.state
    assert data[3][1] is not data[3][1]


def test_torch_generators_hold_the_key():
    _, rng = per_sample(Read(), generator="torch")[3]
    assert rng.device.type == "cpu" and holds_key(rng, sample_key(3))


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_workers_do_not_matter(kind):
    before = snapshot()
    data = per_sample(Given(), generator=kind)
    expected = [data[i] for i in range(12)]
    assert data.__getitems__([1, 2]) == expected[1:3] and len(set(expected)) == 12
    assert snapshot() == before, "no generator is touched"
    for workers in (0, 1, 2):
        epochs = Epochs(data, workers=workers)
        assert epochs.run(5) == expected
        assert not set(epochs.run(6)) & set(expected)


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda r: pickle.loads(pickle.dumps(r))]
)
def test_repeat_is_an_integer_with_an_occurrence(copied):
    repeat = copied(Repeat(7, 3))
    assert type(repeat) is Repeat and repeat == 7 and hash(repeat) == hash(7)
    assert repeat.occurrence == 3 and repr(repeat) == "Repeat(7, occurrence=3)"
    assert f"{repeat}" == str(repeat) == "7" and list(range(9))[repeat] == 7
    assert type(repeat + 1) is int and Repeat(7).occurrence == 1
    assert Repeat(np.int64(3), np.int64(2)).occurrence == 2


def occurrences(sampler):
    return [(int(i), getattr(i, "occurrence", 0)) for i in sampler]


@pytest.mark.parametrize(
    ("indices", "expected"),
    [
        ([3, 1, 3, np.int64(3), 1], [(3, 0), (1, 0), (3, 1), (3, 2), (1, 1)]),
        ([Repeat(5, 2), 5, 4], [(5, 2), (5, 1), (4, 0)]),
        ([3, Repeat(3, 5), Repeat(4, 2)], [(3, 0), (3, 5), (4, 2)]),
    ],
)
def test_counting(indices, expected):
    sampler = count_occurrences(indices)
    assert occurrences(sampler) == occurrences(sampler) == expected  # in each iteration
    assert [type(i) for i in sampler] == [Repeat if times else int for _, times in expected]
    assert len(sampler) == len(indices)


def test_counting_in_batches():
    sampler = count_occurrences(BatchSampler([0, 1, 0, 0], 2, False))
    assert [occurrences(batch) for batch in sampler] == [[(0, 0), (1, 0)], [(0, 1), (0, 2)]]
    assert len(sampler) == 2 and sampler.batch_size == 2


def test_counting_passes_the_rest_through():
    class Told(SequentialSampler):
        def set_epoch(self, epoch):
            self.epoch = epoch

    inner = Told(range(3))
    sampler = count_occurrences(inner)
    sampler.set_epoch(4)
    assert inner.epoch == 4 and sampler.epoch == 4
    with pytest.raises(AttributeError):
        sampler.nothing  # noqa: B018
    assert occurrences(pickle.loads(pickle.dumps(count_occurrences([1, 1])))) == [(1, 0), (1, 1)]
