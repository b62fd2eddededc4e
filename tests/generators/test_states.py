"""Exact states of generators: what comes back, and what is refused."""

import json
import logging
import random
import struct
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from helpers.support import scramble, seeder, snapshot
from torch.utils.data import DistributedSampler

import fastseed
from fastseed import SHARED
from fastseed.generators.adapter import MT19937_BYTES, pack
from fastseed.generators.default import DefaultGenerators
from fastseed.generators.torch_rng import TorchGenerator
from fastseed.seeder.registry import adapter_for

CPU = 5056  # bytes of a state of torch's CPU generator


def use(seed: int) -> None:
    """Leave the global generators where a few random numbers lead."""
    chosen = random.Random(seed)
    for _ in range(chosen.randrange(6)):
        chosen.choice(
            (
                lambda: [random.random() for _ in range(chosen.randrange(700))],
                lambda: random.gauss(0, 1),
                lambda: np.random.random(chosen.randrange(700)),
                lambda: np.random.standard_normal(chosen.randrange(4)),
                lambda: torch.rand(chosen.randrange(700)),
                lambda: torch.randn((), dtype=torch.float64),
                lambda: torch.manual_seed(chosen.randrange(2**64) - 2**63),
            )
        )()


def test_states_come_back_exactly():
    three = DefaultGenerators()
    for seed in range(40):
        use(seed)
        at_that_point = snapshot()
        saved = three.save()
        assert snapshot() == at_that_point, "reading the state has changed it"
        use(seed + 1000)
        scramble()
        three.restore(saved)
        assert snapshot() == at_that_point, seed


def test_states_are_those_of_the_libraries():
    scramble()
    states = {name: one.state() for name, one in DefaultGenerators().adapters.items()}
    assert torch.equal(states["torch.cpu"], torch.get_rng_state())
    _, words, gauss = random.getstate()
    assert bytes(states["python"].tolist()) == struct.pack("<625IId", *words, 1, gauss)
    held = np.random.get_state(legacy=False)
    inner = held["state"]["key"].tolist(), held["state"]["pos"]
    expected = struct.pack("<624IIId", *inner[0], inner[1], 1, held["gauss"])
    assert bytes(states["numpy"].tolist()) == expected


KINDS = {
    "python": lambda: random.Random(3),
    "RandomState": lambda: np.random.RandomState(3),
    "RandomState PCG64": lambda: np.random.RandomState(np.random.PCG64(3)),
    **{
        name: lambda name=name: np.random.Generator(getattr(np.random, name)(3))
        for name in ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64")
    },
    "torch": lambda: torch.Generator().manual_seed(3),
}


def numbers(generator):
    """A few random numbers of any generator, an odd number of normals among them."""
    if isinstance(generator, torch.Generator):
        return torch.randn((), generator=generator, dtype=torch.float64).item()
    if isinstance(generator, random.Random):
        return [generator.gauss(0, 1) for _ in range(3)]
    return generator.standard_normal(3).tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_resumes_and_refuses_other_sizes(kind):
    generator = KINDS[kind]()
    adapter = adapter_for(generator)
    numbers(generator)
    state = adapter.state()
    expected = numbers(generator)
    parsed = adapter.parse_state(state)
    for wrong in (state[:-1], state[:0], torch.cat([state, state[:8]])):
        with pytest.raises(ValueError, match="must be"):
            adapter.parse_state(wrong)
    adapter.restore(parsed)
    assert numbers(generator) == expected
    strided = torch.stack([state, state], 1).reshape(-1)[::2]
    adapter.restore(adapter.parse_state(strided))
    assert numbers(generator) == expected


GENERATORS = ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64")


def children(generator):
    """The first random numbers of a generator's next children."""
    return [child.random() for child in generator.spawn(2)]


@pytest.mark.parametrize("kind", GENERATORS)
def test_the_count_of_spawned_children_comes_back(kind):
    generator = KINDS[kind]()
    adapter = adapter_for(generator)
    generator.spawn(3)
    parsed = adapter.parse_state(adapter.state())
    expected = children(generator)
    for _ in range(2):  # one parsed state may be loaded again
        adapter.restore(parsed)
        assert children(generator) == expected
    other = adapter_for(twin := np.random.Generator(getattr(np.random, kind)(99)))
    other.restore(parsed)
    assert children(twin) == expected


@pytest.mark.parametrize("kind", GENERATORS)
def test_a_state_without_a_seed_sequence_keeps_the_one_that_is_there(kind):
    class Own(np.random.bit_generator.ISpawnableSeedSequence):
        def generate_state(self, n_words, dtype=np.uint32):
            return np.arange(n_words, dtype=dtype)

        def spawn(self, n_children):
            raise NotImplementedError

    own = Own()
    generator = np.random.Generator(getattr(np.random, kind)(own))
    adapter = adapter_for(generator)
    state, twin = adapter.state(), KINDS[kind]()
    expected = generator.random()
    sequence = twin.bit_generator.seed_seq
    adapter_for(twin).restore(adapter_for(twin).parse_state(state))
    assert twin.random() == expected and twin.bit_generator.seed_seq is sequence


@pytest.mark.parametrize("kind", ["MT19937", "PCG64"])
@pytest.mark.parametrize(
    "change", [{"n_children_spawned": -1}, {"entropy": -1}, {"spawn_key": 3}, {"a": 1}]
)
def test_an_invalid_seed_sequence_is_refused(kind, change):
    generator = KINDS[kind]()
    adapter = adapter_for(generator)
    data = adapter.state().numpy().tobytes()
    start = MT19937_BYTES if kind == "MT19937" else 0
    held = json.loads(data[start:])
    held["seed_seq"].update(change)
    text = json.dumps(held).encode().ljust(len(data) - start)
    with pytest.raises(ValueError, match="must be the state of a"):
        adapter.parse_state(pack(data[:start] + text))


@pytest.mark.parametrize("gauss", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("kind", ["python", "RandomState", "RandomState PCG64"])
def test_a_cached_gaussian_that_is_not_finite_is_refused(kind, gauss):
    generator = KINDS[kind]()
    adapter = adapter_for(generator)
    if kind == "python":
        generator.setstate((*generator.getstate()[:2], gauss))
    else:
        held = generator.get_state(legacy=False)
        generator.set_state({**held, "has_gauss": 1, "gauss": gauss})
    with pytest.raises(ValueError):
        adapter.parse_state(adapter.state())


def changed(state, form, at, *values):
    data = bytearray(state.numpy().tobytes())
    struct.pack_into(form, data, at, *values)
    return pack(bytes(data))


ZEROS = (0,) * 623


@pytest.mark.parametrize(
    ("kind", "form", "at", "values", "says"),
    [
        *(
            row
            for kind in ("python", "RandomState")
            for row in (
                (kind, "<I", 2496, (625,), "position"),
                (kind, "<I", 2496, (2**32 - 1,), "position"),
                (kind, "<I", 2500, (2,), "one finite number"),
            )
        ),
        *(
            (kind, form, at, (first, *ZEROS), "all be zero")  # one bit of word 0 is of the state
            for first in (0, 1, 0x7FFFFFFF)
            for kind, form, at in (
                *(("python", "<624I", 0), ("RandomState", "<624I", 0), ("torch", "=624Q", 24)),
            )
        ),
        ("torch", "=iiQ", 8, (5, 1, 5), "position"),
        ("torch", "=iiQ", 8, (624, 1, 624), "position"),  # would read past the words
        ("torch", "=i", 8, (9,), "position"),
        ("torch", "=i", 12, (0,), "position"),
        ("torch", "=iiQ", 8, (0, 1, 625), "position"),
        ("torch", "=Q", 24, (2**32,), "below"),
        ("torch", "=Q", 24 + 8 * 7, (2**32,), "below"),
        ("torch", "=dddI", CPU - 40, (0.0, float("nan"), 0.0, 1), "finite"),
        ("torch", "=fI", CPU - 8, (float("inf"), 1), "finite"),
    ],
)
def test_invalid_states_are_refused(kind, form, at, values, says):
    generator = KINDS[kind]()
    adapter = adapter_for(generator)
    state = adapter.state()
    with pytest.raises(ValueError, match=says):
        adapter.parse_state(changed(state, form, at, *values))
    assert torch.equal(adapter.state(), state)


@pytest.mark.parametrize("position", [-1, 5])
def test_a_position_outside_of_the_buffer_of_numpy_is_refused(position):
    adapter = adapter_for(KINDS["Philox"]())
    text = adapter.state().numpy().tobytes()
    wrong = json.dumps({**json.loads(text), "buffer_pos": position}).encode().ljust(len(text))
    with pytest.raises(ValueError, match="must be the state of a Philox, got other values"):
        adapter.parse_state(pack(wrong))


@pytest.mark.parametrize("offset", [-4, 6])
def test_an_offset_that_cuda_does_not_have_is_refused(offset):
    held = SimpleNamespace(device=torch.device("cuda"), get_state=lambda: pack(bytes(16)))
    adapter = TorchGenerator(held)
    adapter.parse_state(pack(struct.pack("=qq", 1, 8)))
    with pytest.raises(ValueError, match=f"offset must be a multiple of 4, got {offset}"):
        adapter.parse_state(pack(struct.pack("=qq", 1, offset)))


@pytest.mark.parametrize(
    ("kind", "form", "at", "values"),
    [
        ("torch", "=fI", CPU - 8, (-0.75, 1)),  # no CPU kernel of today caches one
        ("torch", "=624Q", 24, (2**31, *ZEROS)),
        *((kind, "<624I", 0, (2**31, *ZEROS)) for kind in ("python", "RandomState")),
    ],
)
def test_unusual_states_come_back(kind, form, at, values):
    generator = KINDS[kind]()
    adapter = adapter_for(generator)
    state = changed(adapter.state(), form, at, *values)
    adapter.restore(adapter.parse_state(state))
    assert torch.equal(adapter.state(), state)


def test_a_state_of_another_bit_generator_is_refused():
    kinds = [kind for kind in KINDS if kind not in ("python", "torch")]
    states = {kind: adapter_for(KINDS[kind]()).state() for kind in kinds}
    for here in kinds:
        for there in set(kinds) - {here}:
            if (here, there) != ("MT19937", "RandomState"):  # the same words
                with pytest.raises(ValueError, match="must be"):
                    adapter_for(KINDS[here]()).parse_state(states[there])


class Epochs:
    def __init__(self):
        self.received = []

    def set_epoch(self, epoch):
        self.received.append(epoch)


class Scopes(Epochs):
    def set_scope(self, task, epoch):
        self.received.append((task, epoch))


def sampler(rank=0, n=2):
    return DistributedSampler(range(100), num_replicas=n, rank=rank, shuffle=True)


def test_distributed_sampler_gets_a_seed_and_an_epoch():
    s, ours = seeder(), sampler()
    s.register_generator(ours, name="order")
    s.reseed(1, 7, 3)
    assert ours.epoch == 7
    assert ours.seed == s.derive_seed("order", task=1, epoch=7, rank=SHARED) % 2**31
    first = list(ours)
    s.reseed(1, 7, 99)  # in mid-epoch: the order is the epoch's
    assert list(ours) == first
    s.reseed(1, 8)
    assert list(ours) != first
    s.reseed(2, 7)
    assert list(ours) != first


def test_distributed_samplers_of_all_ranks_cut_one_order():
    """Also where the mesh gives each rank streams of its own."""
    orders = []
    for rank in range(4):
        where = {"dp": (rank // 2, 2), "tp": (rank % 2, 2)}
        s, ours = seeder(rank=rank, world_size=4, mesh=where), sampler(rank // 2)
        s.register_generator(ours)
        s.reseed(1, 7)
        orders.append(list(ours))
    assert orders[0] == orders[1] and orders[2] == orders[3]
    assert sorted(orders[0] + orders[2]) == list(range(100))


def test_distributed_sampler_needs_ranks_that_agree():
    s = seeder(None, rank=0, world_size=2)
    with pytest.raises(RuntimeError, match=r"fastseed\.register_generator: ranks cannot share"):
        s.register_generator(sampler())
    s.register_generator(Epochs())  # takes no seed


@pytest.mark.parametrize(("kind", "received"), [(Epochs, [7]), (Scopes, [(1, 7)])])
def test_others_receive_scope_or_epoch(kind, received):
    s, setter = seeder(), kind()
    s.register_generator(setter)
    s.reseed(1, 7, 5)
    assert setter.received == received
    s.unregister_generator(setter)
    s.reseed(1, 8)
    assert setter.received == received


def test_shuffle_samplers_follow():
    fastseed.init(42, rank=0, world_size=1)
    ours = fastseed.data.ShuffleSampler(50)
    fastseed.register_generator(ours)
    fastseed.reseed(1, 7)
    first = list(ours)
    fastseed.reseed(1, 8)
    assert sorted(first) == list(range(50)) and list(ours) != first
    fastseed.reseed(1, 7)
    assert list(ours) == first


def test_followers_draw_nothing_and_have_no_state(caplog):
    s, ours = seeder(), sampler()
    s.reseed(1, 7)
    alone = torch.rand(3), np.random.random(3)
    s.register_generator(ours, name="order")
    s.move(1, 7, 0)
    assert torch.rand(3).equal(alone[0]) and (np.random.random(3) == alone[1]).all()
    caplog.clear()
    with caplog.at_level(logging.INFO):
        held = s.state_dict(rng=True)
    assert "order" not in caplog.text
    assert not any(key.endswith(".order") for key in held)
    ours.seed, ours.epoch = 1, 1
    s.load_state_dict(held)
    assert ours.epoch == 7 and ours.seed == s.derive_seed("order", task=1, epoch=7) % 2**31
    held["rng.0.order"] = torch.zeros(4, dtype=torch.uint8)
    with pytest.raises(ValueError, match="belongs to a generator that must be registered"):
        s.load_state_dict(held)


def test_a_follower_that_fails_is_named():
    class Broken:
        def set_epoch(self, epoch):
            raise OSError("no such epoch")

    s, after = seeder(), Epochs()
    s.register_generator(Broken(), name="broken")
    s.register_generator(after)
    with pytest.raises(fastseed.ReseedError, match="broken: OSError") as caught:
        s.reseed(1, 7)
    assert list(caught.value.failures) == ["broken"] and after.received == [7]
    assert caught.value.failures["broken"].__traceback__ is None  # it would hold the follower
