"""An existing DataLoader becomes a Loader and keeps all its settings."""

import inspect

import pytest
import torch
from helpers.loaders import Indexed, Numbers, Plain, same, start, users_worker_init
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
)

from fastseed.data import Loader, ShuffleSampler

PARAMETERS = set(inspect.signature(DataLoader.__init__).parameters) - {"self"}
OTHER = {  # a value that is not the default, for every argument but those of the samplers
    "batch_size": 3,
    "num_workers": 2,
    "collate_fn": same,
    "pin_memory": True,
    "drop_last": True,
    "timeout": 5,
    "worker_init_fn": users_worker_init,
    "multiprocessing_context": "spawn",
    "generator": torch.Generator(),
    "prefetch_factor": 7,
    "persistent_workers": True,
    "pin_memory_device": "cuda",
    "in_order": False,
}
ORDERS = {
    "in order": lambda: {},
    "sampler": lambda: {"sampler": DistributedSampler(range(9), 2, 1)},
    "replacement": lambda: {"sampler": RandomSampler(range(9), replacement=True)},
    "batches": lambda: {"batch_sampler": BatchSampler(SequentialSampler(range(9)), 2, False)},
}


def attributes(made):
    """All that a loader has, by the name of the attribute."""
    ours = {"_iterations", "_torch", "_latest", "_loaded", "_has_loaded_dataset", "_length", "name"}
    ours |= {"_kept_by_samplers", "_history"}
    return {k: v for k, v in vars(made).items() if k not in ours}


def test_every_argument_of_this_torch_is_tried():
    assert set(OTHER) | {"dataset", "shuffle", "sampler", "batch_sampler"} == PARAMETERS


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", [None, *OTHER])
def test_no_setting_is_lost(order, name):
    settings = ORDERS[order]()
    if order == "batches" and name in ("batch_size", "drop_last"):
        pytest.skip("torch refuses it beside batch_sampler")
    if name is not None:
        settings[name] = OTHER[name]
        settings.setdefault("num_workers", 1)
    check(DataLoader(Plain(9), **settings))


def check(existing):
    before = dict(vars(existing))
    made = Loader(existing)
    assert type(made) is Loader and isinstance(made, DataLoader)
    assert vars(existing) == before
    theirs, ours = attributes(existing), attributes(made)
    assert theirs.keys() == ours.keys()
    for name, value in theirs.items():
        if name in ("sampler", "batch_sampler") and type(value) in (
            SequentialSampler,
            BatchSampler,
            type(DataLoader(Numbers(1)).sampler),
        ):  # torch makes new ones
            assert alike(value, ours[name]), name
        else:
            assert ours[name] is value or ours[name] == value, name


def alike(a, b):
    if type(a) is not type(b):
        return False
    mine, theirs = dict(vars(a)), dict(vars(b))
    inner = mine.pop("sampler", None), theirs.pop("sampler", None)
    same_inner = inner == (None, None) or inner[0] is inner[1] or alike(*inner)
    return same_inner and all(mine[name] is theirs[name] for name in mine)


@pytest.mark.parametrize("batch_size", [None, 2])
def test_iterable_datasets(batch_size):
    check(DataLoader(Numbers(5), batch_size=batch_size))
    check(DataLoader(Plain(5), batch_size=batch_size))
    start()
    made = Loader(DataLoader(Numbers(5), batch_size=batch_size, collate_fn=same))
    assert len(list(made)) == (5 if batch_size is None else 3)


def test_what_shuffle_made_becomes_a_shuffle_of_ours():
    start()
    dataset = Indexed(9)
    made = Loader(DataLoader(dataset, batch_size=2, shuffle=True, drop_last=True, collate_fn=same))
    assert type(made.sampler) is ShuffleSampler and made.sampler.drop_last is True
    fastseed_own = Loader(dataset, batch_size=2, shuffle=True, drop_last=True, collate_fn=same)
    order = [[sample[0] for sample in batch] for batch in made]
    assert order == [[sample[0] for sample in batch] for batch in fastseed_own]
    mine = RandomSampler(range(9))
    assert Loader(DataLoader(dataset, sampler=mine)).sampler is mine
    mine = RandomSampler(dataset, num_samples=5)
    assert Loader(DataLoader(dataset, sampler=mine)).sampler is mine


def test_a_loader_of_ours_is_copied_with_its_name():
    made = Loader(Plain(4), shuffle=True, name="train")
    again = Loader(made)
    assert again is not made and again.sampler is made.sampler and again.name == "train"
    assert Loader(made, name="other").name == "other"


def test_a_class_of_its_own_is_prepared_if_it_iterates_as_torch_does():
    class Harmless(DataLoader):
        def hello(self):
            return "hello"

    assert type(Loader(Harmless(Plain(4)))) is Loader
