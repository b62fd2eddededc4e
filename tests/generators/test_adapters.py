"""How a key becomes the state of each library, on the fast path and on the public one."""

import random
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.support import Key, holds_key, needs_native, repr_state, run_script, seeder, snapshot
from torch.utils.data import DataLoader

import fastseed
from fastseed._backend import derive
from fastseed.generators import numpy_rng
from fastseed.generators.adapter import ADAPTERS, adapts, pack, unpack
from fastseed.generators.default import DefaultGenerators
from fastseed.generators.numpy_rng import NumpyGenerator, NumpyGlobal, NumpyRandomState
from fastseed.generators.python_rng import PythonRandom
from fastseed.generators.torch_rng import TorchGenerator

NATIVE = derive.backend == "native"

# One to four 32-bit words, with zero words on top, in the middle and below.
KEYS = [
    0, 1, 2**32 - 1, 2**32, 2**32 + 7, 2**64 - 1, 2**64, 2**64 + 5, 5 << 64, 2**96 - 1, 2**96,
    2**96 + 2**32, 1 << 127, 2**128 - 1, 0x0123456789ABCDEF_FEDCBA9876543210,
]  # fmt: skip

BIT_GENERATORS = [
    np.random.MT19937, np.random.PCG64, np.random.PCG64DXSM, np.random.Philox, np.random.SFC64,
]  # fmt: skip


@pytest.fixture(params=["in place", "public"])
def path(request, monkeypatch):
    """Both ways to write a state: at the documented address, and by ``set_state``."""
    if request.param == "public":
        monkeypatch.setattr(numpy_rng, "_can_write_words", lambda: False)
    elif derive.backend != "native":
        pytest.skip("only native code writes in place")
    return request.param


# ---------------------------------------------------------------- Python


@pytest.mark.parametrize("key", KEYS)
def test_python_takes_all_bits_of_the_key(key):
    own = random.Random(99)
    own.gauss(0, 1)
    PythonRandom(own).reseed(Key(key))
    clean = random.Random()
    clean.seed(key)
    assert own.getstate() == clean.getstate()
    assert [own.gauss(0, 1), own.random(), own.getrandbits(100)] == [
        clean.gauss(0, 1), clean.random(), clean.getrandbits(100),
    ]  # fmt: skip


def test_python_global_generator():
    random.gauss(0, 1)
    PythonRandom().reseed(Key(2**100 + 3))
    assert random.getstate() == random.Random(2**100 + 3).getstate()


def test_python_subclass_is_seeded_through_its_own_method():
    class Loud(random.Random):
        def seed(self, *arguments):
            self.asked = arguments
            super().seed(*arguments)

    own = Loud(3)
    PythonRandom(own).reseed(Key(2**70))
    assert own.asked == (2**70,) and own.getstate() == random.Random(2**70).getstate()


# ---------------------------------------------------------------- NumPy, legacy


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("key", KEYS)
def test_numpy_takes_the_full_state(path, cached, key):
    np.random.seed(1)
    np.random.standard_normal(2 - cached)  # an odd number leaves one cached
    assert np.random.get_state(legacy=False)["has_gauss"] == cached
    np.random.random(3)  # the position is in the middle of a block
    NumpyGlobal().reseed(Key(key))
    state = np.random.get_state(legacy=False)
    assert np.array_equal(state["state"]["key"], derive.mt19937_state(key))
    assert (state["state"]["pos"], state["has_gauss"]) == (624, 0)
    assert state["state"]["key"].dtype == np.uint32


class PlainLock:
    """A lock as NumPy's was before 2.4: the thread that holds it cannot take it once more."""

    def __init__(self):
        self.times = 0
        self._held = threading.Lock()

    def acquire(self):
        assert self._held.acquire(blocking=False), "the lock is taken twice"
        self.times += 1

    def release(self):
        self._held.release()


@needs_native
def test_numpy_words_are_written_under_one_lock():
    three = DefaultGenerators()
    numpy = three.adapters["numpy"]
    lock = PlainLock()
    numpy.memory = numpy.find_memory()._replace(lock=lock)
    saved = three.save()
    three.reseed_natively("reseed_defaults_of_cpu", 42, 1, 2, 3, 0)
    three.reseed_sample((1, 2), 3, 0)
    numpy.reseed(Key(5))
    numpy.restore(numpy.parse_state(numpy.state()))
    three.restore(saved)
    assert lock.times == 5
    lock.acquire()  # it is free


@needs_native
def test_numpy_lock_is_free_after_an_interrupt_while_waiting_for_it():
    class Interrupted(PlainLock):
        def acquire(self):
            raise KeyboardInterrupt

    three = DefaultGenerators()
    numpy = three.adapters["numpy"]
    numpy.memory = numpy.find_memory()._replace(lock=Interrupted())
    before = np.random.get_state(legacy=False)
    for call in (
        lambda: three.reseed_natively("reseed_defaults_of_cpu", 42, 1, 2, 3, 0),
        lambda: three.reseed_sample((1, 2), 3, 0),
        lambda: numpy.reseed(Key(5)),
        lambda: numpy.restore({**before, "has_gauss": 0}),
    ):
        with pytest.raises(KeyboardInterrupt):
            call()
        assert repr_state(np.random.get_state(legacy=False)) == repr_state(before)


@pytest.mark.parametrize("words", [3, 625])
def test_numpy_words_of_another_number_are_not_written(words):
    state = {"key": np.ones(words, np.uint32), "pos": 3}
    with pytest.raises(ValueError):
        NumpyGlobal().restore({"bit_generator": "MT19937", "state": state, "has_gauss": 0})


def test_numpy_randomstate(path):
    own = np.random.RandomState(4)
    own.standard_normal()
    before = snapshot()
    adapter = NumpyRandomState(own)
    for key in KEYS:
        adapter.reseed(Key(key))
        state = own.get_state(legacy=False)
        assert np.array_equal(state["state"]["key"], derive.mt19937_state(key))
        assert (state["state"]["pos"], state["has_gauss"]) == (624, 0)
    assert snapshot() == before


@pytest.mark.parametrize("kind", BIT_GENERATORS[1:])
def test_numpy_randomstate_on_another_bit_generator(kind):
    own = np.random.RandomState(kind(4))
    own.standard_normal()
    NumpyRandomState(own).reseed(Key(77))
    clean = np.random.RandomState(kind(np.random.SeedSequence(77)))
    assert np.array_equal(own.standard_normal(5), clean.standard_normal(5))


@pytest.mark.parametrize("kind", BIT_GENERATORS[1:])
def test_numpy_global_generator_may_be_swapped_at_any_time(path, kind):
    s = seeder()
    s.reseed(1, 1)
    usual = np.random.random(4)
    ours = np.random.get_bit_generator()

    np.random.set_bit_generator(kind(3))
    np.random.standard_normal()
    s.reseed(1, 1)
    key = s.derive_key("numpy", task=1, epoch=1)
    clean = np.random.RandomState(kind(np.random.SeedSequence(key)))
    assert np.array_equal(np.random.standard_normal(5), clean.standard_normal(5))

    np.random.set_bit_generator(np.random.MT19937(8))
    s.reseed(1, 1)
    assert np.array_equal(np.random.random(4), usual)

    np.random.set_bit_generator(ours)
    s.reseed(1, 1)
    assert np.array_equal(np.random.random(4), usual)


# ---------------------------------------------------------------- NumPy, Generator


@pytest.mark.parametrize("kind", BIT_GENERATORS)
def test_numpy_generator_is_rebuilt_in_place(kind):
    bit_generator = kind(3)
    own = np.random.Generator(bit_generator)
    own.integers(0, 9, dtype=np.uint16)  # leaves half a word cached
    NumpyGenerator(own).reseed(Key(2**128 - 5))
    clean = np.random.Generator(kind(np.random.SeedSequence(2**128 - 5)))
    assert own.bit_generator is bit_generator
    assert repr_state(own.bit_generator.state) == repr_state(clean.bit_generator.state)
    assert np.array_equal(own.standard_normal(5), clean.standard_normal(5))


def spawned(generator, count=2):
    """The first random numbers of a generator's next children."""
    return [child.random() for child in generator.spawn(count)]


@pytest.mark.parametrize("kind", BIT_GENERATORS)
def test_numpy_generator_spawns_from_the_new_key(kind):
    own = np.random.Generator(kind(3))
    own.spawn(2)
    NumpyGenerator(own).reseed(Key(91))
    clean = np.random.Generator(kind(np.random.SeedSequence(91)))
    for _ in range(2):  # the count of children starts again, and continues
        assert spawned(own, 3) == spawned(clean, 3)


@pytest.mark.parametrize("key", KEYS)
def test_torch_takes_the_full_state(key):
    generator = torch.Generator()
    torch.randn((), generator=generator, dtype=torch.float64)  # leaves one cached
    torch.randn(3, generator=generator)
    TorchGenerator(generator).seed(key)
    assert holds_key(generator, key)


def test_torch_draws_follow_the_words():
    """The first words that come out are those of MT19937 from the documented state."""
    generator = torch.Generator()
    TorchGenerator(generator).seed(2**70 + 1)
    clean = np.random.RandomState()
    clean.set_state(("MT19937", derive.mt19937_state(2**70 + 1), 624, 0, 0.0))
    drawn = torch.empty(1500, dtype=torch.int32).random_(generator=generator).numpy()
    expected = clean.randint(0, 2**32, 1500, dtype=np.uint32) & 0x7FFFFFFF
    assert np.array_equal(drawn, expected)


@pytest.fixture(scope="module")
def states_of_everything():
    return run_script("process_states.py")


@pytest.mark.costly("a fresh process with torch")
@pytest.mark.parametrize("without", ["_generators", "native code"])
def test_less_native_code_gives_the_same_states(tmp_path, without, states_of_everything):
    """A wheel has the operators alone; a machine without a compiler has neither part."""
    package = tmp_path / "fastseed"
    left_out = "*.so" if without == "native code" else "_generators*.so"
    shutil.copytree(
        Path(fastseed.__file__).parent,
        package,
        ignore=shutil.ignore_patterns(left_out, "__pycache__"),
    )
    found = run_script("process_states.py", PYTHONPATH=str(tmp_path))
    everything = dict(states_of_everything)
    assert found.pop("generators") != everything.pop("generators") or not NATIVE
    backend = "native" if NATIVE and without == "_generators" else "reference"
    assert found.pop("backend") == backend
    assert everything.pop("backend") == fastseed.build_info()["backend"]
    assert found == everything
    assert found["restored"]
    # the known answer of docs/spec/derivation.md: high half, low half
    assert found["cuda"] == "9d357de770f33f19272f96a925b03f44"


# ---------------------------------------------------------------- another kind


class Lcg:
    """A generator that no library has."""

    value = 0

    def next(self):
        self.value = (self.value * 6364136223846793005 + 1442695040888963407) % 2**64
        return self.value >> 40


class Lcgs:
    """A dataset with one of them."""

    def __init__(self):
        self.rng = Lcg()

    def __len__(self):
        return 6

    def __getitem__(self, i):
        return i, self.rng.next()


@pytest.fixture
def lcg():
    """Register the adapter of ``Lcg`` while a test runs."""

    @adapts(Lcg)
    class LcgAdapter:
        def __init__(self, generator):
            self._generator = generator

        def reseed(self, stream):
            self._generator.value = stream.key() % 2**64

        def save(self):
            return self._generator.value

        def restore(self, saved):
            self._generator.value = saved

        def state(self):
            return pack(self._generator.value.to_bytes(8, "little"))

        def parse_state(self, state):
            return int.from_bytes(unpack(state), "little")

    yield Lcg()
    del ADAPTERS[Lcg]


def test_an_adapter_of_another_kind_serves_registered_generators(lcg):
    fastseed.init(42, rank=0, world_size=1)
    fastseed.register_generator(lcg, name="noise")
    fastseed.reseed(1, 2, 3)
    assert lcg.value == fastseed.derive_key("noise") % 2**64
    lcg.next()
    state = fastseed.state_dict(rng=True)
    expected = [lcg.next() for _ in range(3)]
    fastseed.load_state_dict(state)
    assert [lcg.next() for _ in range(3)] == expected


def test_an_adapter_of_another_kind_serves_generators_in_datasets(lcg):
    fastseed.init(42, rank=0, world_size=1)
    found = []
    for batch_size in (2, 3):
        data = DataLoader(fastseed.data.per_sample(Lcgs()), batch_size, collate_fn=list)
        found.append(
            [pair for _, _, batch in fastseed.data.steps(data, 1, task=1) for pair in batch]
        )
    assert found[0] == found[1] and len({number for _, number in found[0]}) == 6
