"""Several datasets of per_sample in one scope: nested, side by side, with names, in threads."""

import logging
import random
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from helpers.inside import StreamUsers, plain_loader, sample_rng, scalar, scope, streams, warn_once
from helpers.processes import in_child
from helpers.support import scramble, snapshot
from helpers.worker_cases import Draws, DrawsAll, draw_from, flat, options
from torch.utils.data import ConcatDataset, Dataset

import fastseed
from fastseed.data import Loader, per_batch, per_sample

GLOBALS = ("python", "numpy", "torch")


class Given(Dataset):
    """Draws from the generator that it is given."""

    def __len__(self):
        return 6

    def __getitem__(self, index, rng):
        return draw_from(rng)


@pytest.fixture(autouse=True)
def job(monkeypatch):
    for module, name in (
        (sample_rng, "_users"),
        (plain_loader, "_stream_users"),
        (plain_loader, "_order_users"),
    ):
        old = getattr(module, name)
        monkeypatch.setattr(module, name, StreamUsers(old._message, old._data_of))
    fastseed.init(42, rank=0, world_size=1)
    fastseed.reseed(1, 5)


def warnings(caplog):
    return [r.message for r in caplog.records if r.levelno == logging.WARNING]


# ---------------------------------------------------------------- one inside another


class Around(Dataset):
    """Draws before and after it reads another dataset."""

    def __init__(self, inner):
        self.inner = inner

    def __len__(self):
        return len(self.inner)

    def __getitem__(self, i):
        return draw_from("python"), self.inner[i], *map(draw_from, GLOBALS)


@pytest.mark.parametrize("name", [None, "inner"])
def test_one_that_reads_another_does_not_depend_on_workers(name):
    found = []
    for workers in (0, 1, 2):
        data = per_sample(Around(per_sample(DrawsAll(GLOBALS, 6), name=name)))
        found.append(flat(Loader(data, **options(workers=workers))))
    assert found[0] == found[1] == found[2]
    before, inner, *after = zip(*found[0], strict=True)
    alone = per_sample(DrawsAll(("python", "python", "numpy", "torch"), 6))
    assert [(b, *a) for b, *a in zip(before, *after, strict=True)] == [
        s[1:] for s in map(alone.__getitem__, range(6))
    ]
    numbers = {x for sample in inner for x in sample[1:]}
    assert (numbers & {*before, *after[1], *after[2]} == set()) == (name is not None)


def test_one_that_reads_another_of_equal_numbers_warns(caplog):
    data = per_sample(Around(per_sample(DrawsAll(GLOBALS, 6))))
    data[0], data[1]
    (message,) = warnings(caplog)
    assert "task 1, epoch 5" in message and "name=" in message
    named = per_sample(Around(per_sample(DrawsAll(GLOBALS, 6), name="inner")))
    caplog.clear()
    named[0]
    assert warnings(caplog) == []


# ---------------------------------------------------------------- side by side


@pytest.mark.parametrize("generator", [None, "numpy"])
def test_parts_of_a_concatenation_warn(caplog, generator):
    parts = [Given(), Given()] if generator else [Draws("python", 6), Draws("python", 6)]
    data = ConcatDataset([per_sample(part, generator) for part in parts])
    assert data[0] == data[6]
    assert len(warnings(caplog)) == 1
    a, b = (per_sample(part, generator, name=name) for part, name in zip(parts, "ab", strict=True))
    data = ConcatDataset([a, b])
    assert len({data[i] for i in range(12)}) == 12
    whole = per_sample(ConcatDataset(parts), None)
    if generator is None:
        assert len({whole[i] for i in range(12)}) == 12


@pytest.mark.parametrize("workers", [0, 1])
def test_two_datasets_in_one_scope_warn(caplog, workers):
    train, valid = per_sample(Draws("python", 6)), per_sample(Draws("python", 6))
    first = flat(Loader(train, **options(workers=workers)))
    assert warnings(caplog) == []
    assert flat(Loader(valid, **options(workers=workers))) == first
    (message,) = warnings(caplog)
    assert message.startswith("fastseed.data.per_sample: two datasets are read in task 1, epoch 5")
    assert "per_sample(b, name='b')" in message


def test_what_is_meant_does_not_warn(caplog):
    images, masks = Draws("python", 6), Draws("python", 6)
    a, b = per_sample(images), per_sample(images)  # one dataset
    before = a[0]
    assert b[0] == before
    named = per_sample(masks, name="pair"), per_sample(images, name="pair")  # equal on purpose
    assert named[0][1] == named[1][1]
    fastseed.reseed(2, 5)  # another task
    assert per_sample(masks)[0] != before
    del a, b, named  # what is gone is not counted
    for _ in range(2):
        assert per_sample(Draws("python", 6))[0] is not None
    assert warnings(caplog) == []


def test_names_have_the_keys_of_the_specification():
    scope = scalar.scope_key(42, 1, 5, 0)
    key = scalar.stream_key(scalar.name_key(scope, scalar.name_words("masks")), 0, 0, 0, 1)
    named = key & 2**64 - 1, key >> 64
    lo, tweak = scalar.name_key(named, scalar.name_words("python"))
    expected = scalar.stream_key((lo, tweak ^ 3), 0, 0, 0, scalar.DOMAIN_SAMPLE)
    found = per_sample(Draws("python", 6), name="masks")[3]
    assert found == random.Random(expected).getrandbits(62)


# ---------------------------------------------------------------- loaders


@pytest.mark.parametrize("drawing", [{"workers": 1}, {"workers": 0, "collate_fn": per_batch(list)}])
def test_two_loaders_in_one_scope_whose_workers_or_batches_draw_warn(drawing, caplog):
    def pair(**more):
        datasets = Draws("python", 6), Draws("torch", 6)
        loaders = [Loader(data, **options(**drawing), **more) for data in datasets]
        return [flat(each) for each in loaders]

    pair()
    (message,) = warnings(caplog)
    assert "task 1, epoch 5, and what their workers or per_batch draw is the same" in message
    caplog.clear()
    plain_loader._stream_users.has_warned = False
    pair(name="a")
    assert warnings(caplog) == []


def test_a_name_gives_a_loader_streams_and_an_order_of_its_own():
    found = {}
    for name in (None, "a", "b"):
        made = Loader(DrawsAll(("python",), 40), shuffle=True, name=name, **options(workers=1))
        assert made.sampler.spec.name == (name or "shuffle")
        found[name] = flat(made)
    orders = [[i for i, _ in samples] for samples in found.values()]
    assert orders[0] != orders[1] != orders[2] and sorted(orders[1]) == sorted(orders[2])
    assert len({x for samples in found.values() for _, x in samples}) == 120
    resumable = fastseed.data.steps(Loader(Draws("python"), name="a", shuffle=True)).loader
    assert resumable.name == resumable.sampler.spec.name == "a"


def test_a_name_reaches_torchs_samplers():
    orders = []
    for name in (None, None, "a"):
        sampler = torch.utils.data.RandomSampler(range(50))
        made = Loader(range(50), 10, sampler=sampler, name=name)
        orders.append([i for batch in made for i in batch.tolist()])
    assert orders[0] == orders[1] != orders[2]


def test_two_shuffled_loaders_of_equal_size_warn(caplog):
    first, second = (Loader(list(range(9)), 3, shuffle=True) for _ in range(2))
    assert [b.tolist() for b in first] == [b.tolist() for b in second]
    (message,) = warnings(caplog)
    assert "have the same order: give one of them name=" in message
    caplog.clear()
    plain_loader._order_users.has_warned = False
    fastseed.reseed(3, 5)
    list(first)
    fastseed.reseed(4, 5)
    list(second)
    assert warnings(caplog) == []


def test_epochs_that_repeat_in_the_scope_of_init_warn(caplog):
    warn_once.cache_clear()
    fastseed.init(42, rank=0, world_size=1)
    ordered, shuffled = Loader(list(range(9)), 3), Loader(list(range(9)), 3, shuffle=True)
    list(ordered), list(ordered), list(shuffled)
    shuffled.sampler.set_epoch(1)
    list(shuffled)
    assert warnings(caplog) == []
    shuffled.sampler.set_epoch(0)
    list(shuffled)
    (message,) = warnings(caplog)
    assert "iterated again in the scope of fastseed.init" in message and "steps" in message
    caplog.clear()
    warn_once.cache_clear()
    fastseed.reseed(0)
    list(shuffled)  # the script knows its scope
    assert not any("iterated again" in text for text in warnings(caplog))


# ---------------------------------------------------------------- interrupts, threads, forks


class Reads(Dataset):
    """Draws from four generators; sample 2 is interrupted."""

    def __init__(self):
        self.rng = np.random.default_rng(3)

    def __getitem__(self, i):
        drawn = draw_from("python"), np.random.rand(), torch.randn(3), self.rng.random()
        if i == 2:
            raise KeyboardInterrupt
        return drawn


class Permuted:
    """A sampler of another library: it draws from the global generators, and is interrupted."""

    def __iter__(self):
        yield from np.random.permutation(2).tolist()
        raise KeyboardInterrupt


def test_an_interrupt_restores_the_generators():
    data, before_scope = per_sample(Reads()), scope.current_scope()
    data[0]
    scramble()
    before, held = snapshot(), data.rng.bit_generator.state
    with pytest.raises(KeyboardInterrupt):
        data.__getitems__([1, 2])
    assert data.rng.bit_generator.state == held
    with pytest.raises(KeyboardInterrupt):
        list(Loader(data, 2, sampler=Permuted(), collate_fn=list))
    assert snapshot() == before and streams._depths == {} and scope.current_scope() == before_scope


class Slow(Draws):
    """Reads until it may leave."""

    def __init__(self):
        super().__init__("python")
        self.entered, self.leave = threading.Event(), threading.Event()

    def __getitem__(self, i):
        self.entered.set()
        assert self.leave.wait(30)
        return draw_from(self.rng)


@pytest.fixture
def reading():
    """A thread that reads a sample meanwhile; the list gets its sample."""
    slow, found = Slow(), []
    thread = threading.Thread(target=lambda: found.append(per_sample(slow)[0]))
    thread.start()
    assert slow.entered.wait(30)
    yield found
    slow.leave.set()
    thread.join()
    assert found == [per_sample(Draws("python"))[0]] and streams._depths == {}


def test_a_thread_that_reads_meanwhile_is_an_error(reading):
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"per_sample: two threads read samples at once"):
            per_sample(Draws("python"))[0]
    assert per_sample(Given(), "numpy")[0]  # leaves the generators alone


def test_threads_that_iterate_loaders_have_a_scope_each():
    """While both are inside a read, so that one would have the scope of the other."""
    both = threading.Barrier(2)

    class Meets(Given):
        def __getitem__(self, index, rng):
            both.wait(30)
            return draw_from(rng)

    def epoch_of(number, dataset):
        made = Loader(per_sample(dataset, "numpy"), 3, shuffle=True)
        made.sampler.set_epoch(number)
        return [batch.tolist() for batch in made]

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(epoch_of, (7, 8), (Meets(), Meets())))
    assert found == [epoch_of(7, Given()), epoch_of(8, Given())]


@pytest.mark.parametrize(
    ("data", "warns"), [(per_sample(Given(), "numpy"), False), (per_sample(Draws("python")), True)]
)
def test_a_thread_that_prefetches_needs_samples_with_a_generator_of_their_own(data, warns, caplog):
    warn_once.cache_clear()
    found, said = [], []
    with ThreadPoolExecutor(1) as pool:
        for read in (list, lambda batches: pool.submit(list, batches).result()):
            fastseed.reseed(1, 7)
            samples = read(Loader(data, 2, shuffle=True, collate_fn=list))
            found.append((flat(samples), random.random()))
            said.append("are read in another thread than that of reseed" in caplog.text)
    assert found[0] == found[1] and said == [False, warns]


def test_a_forked_child_has_no_reads_of_other_threads(reading):
    expected = 1 + per_sample(Given(), "numpy")[1]

    def drawn():
        return isinstance(per_sample(Draws("torch"))[0], int) + per_sample(Given(), "numpy")[1]

    assert in_child(drawn) == expected


class Collator:
    """Draws from a generator of its own."""

    def __init__(self):
        self.rng = np.random.default_rng(1)

    def __call__(self, batch):
        return self.rng.random()


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_a_collate_function_that_draws_is_warned_of_once(workers, tmp_path):
    """Its numbers belong to the worker, not to samples."""

    def draws(batch):
        return torch.rand(len(batch))

    log = logging.FileHandler(tmp_path / "log")  # which workers write to
    logging.getLogger("fastseed").addHandler(log)
    try:
        for collate, text in (
            (len, None),
            (None, None),
            (per_batch(draws), None),
            (draws, "collate_fn draws from 'torch.cpu'"),
            (Collator(), "collate_fn draws from 'collate_fn.rng'"),
        ):
            before = (tmp_path / "log").read_text()
            loader = Loader(per_sample(list(range(8))), 2, num_workers=workers, collate_fn=collate)
            for epoch in range(3):
                fastseed.reseed(1, epoch)
                list(loader)
            logged = (tmp_path / "log").read_text()[len(before) :]
            assert logged.count("per_batch(collate_fn)") == (text is not None)
            assert (text or "") in logged
    finally:
        logging.getLogger("fastseed").removeHandler(log)
        log.close()
