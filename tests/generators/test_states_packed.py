"""The packed states of the three generators of a process: native and Python code, bit for bit."""

from __future__ import annotations

import random
import struct
import threading

import numpy as np
import pytest
import torch
from helpers.support import needs_native, scramble, snapshot
from hypothesis import given, settings
from hypothesis import strategies as st

from fastseed._backend import native as _native
from fastseed.generators import adapters
from fastseed.generators.default import ProcessGenerators
from fastseed.generators.numpy_rng import NumpyLegacySink


@pytest.fixture(params=["native", "python"])
def three(request, monkeypatch):
    """The three, with native calls and without."""
    if request.param == "native":
        if _native.generators is None:
            pytest.skip("needs the native code, which is not in use here")
        found = ProcessGenerators()
        assert found._in_place() is not None
        return found
    monkeypatch.setattr(ProcessGenerators, "_in_place", lambda self: None)
    return ProcessGenerators()


def draw_some(seed: int) -> None:
    """Leave the generators where few draws, and odd ones, lead."""
    chosen = random.Random(seed)
    for _ in range(chosen.randrange(6)):
        chosen.choice(
            (
                lambda: [random.random() for _ in range(chosen.randrange(700))],
                lambda: random.gauss(0, 1),
                lambda: np.random.random(chosen.randrange(700)),
                lambda: np.random.standard_normal(chosen.randrange(4)),
                lambda: torch.rand(chosen.randrange(700)),
                lambda: torch.randn(chosen.randrange(20)),
                lambda: torch.randn((), dtype=torch.float64),
                lambda: torch.manual_seed(chosen.randrange(2**64) - 2**63),
                lambda: random.seed(chosen.random()),
                lambda: np.random.seed(chosen.randrange(2**32)),
            )
        )()


@needs_native
def test_native_code_packs_what_python_packs():
    generators = ProcessGenerators()
    for seed in range(150):
        draw_some(seed)
        native = generators.states()
        in_python = [sink.state() for sink in generators.sinks.values()]
        for name, a, b in zip(generators.sinks, native, in_python, strict=True):
            assert torch.equal(a, b), (seed, name)
        assert generators.takes(native) and generators.takes(in_python)


def test_what_was_packed_comes_back_exactly(three):
    for seed in range(60):
        draw_some(seed)
        packed, at_that_point = three.states(), snapshot()
        assert snapshot() == at_that_point, "taking the state has changed it"
        draw_some(seed + 1000)
        scramble()
        three.load(packed)
        assert snapshot() == at_that_point, seed


def with_float_normal(state, value):
    """A state of torch's as if a float normal were cached, which no CPU kernel of today does."""
    data = bytearray(state.numpy().tobytes())
    struct.pack_into("=fB", data, 5048, value, 1)
    return torch.frombuffer(data, dtype=torch.uint8)


def test_a_cached_float_normal_comes_back(three):
    torch.manual_seed(5)
    torch.randn(())
    torch.set_rng_state(with_float_normal(torch.get_rng_state(), -0.75))
    packed, before = three.states(), snapshot()
    scramble()
    three.load(packed)
    assert snapshot() == before
    assert struct.unpack_from("=fB", before[2], 5048) == (-0.75, 1)


@pytest.mark.parametrize("gauss", [0.0, -0.0, 1e-310, float("inf"), float("nan"), -8.25])
def test_any_cached_gaussian_comes_back(three, gauss):
    version, words, _ = random.getstate()
    random.setstate((version, words, gauss))
    np.random.set_state({**np.random.get_state(legacy=False), "has_gauss": 1, "gauss": gauss})
    packed = three.states()
    scramble()
    three.load(packed)
    again = three.states()
    assert all(torch.equal(a, b) for a, b in zip(packed, again, strict=True))
    held = random.gauss(0, 1), np.random.standard_normal()
    assert [struct.pack("d", x) for x in held] == [
        struct.pack("d", 0 + gauss * 1.0), struct.pack("d", gauss)
    ]  # fmt: skip


def test_golden_bytes(three):
    """Version 1: words, position, flags, what is cached; little-endian."""
    three_states = []
    for cached in (False, True):
        random.seed(1), np.random.seed(2), torch.manual_seed(3)
        if cached:
            random.gauss(0, 1), np.random.standard_normal(), torch.randn(())
        three_states.append([bytes(state.tolist()) for state in three.states()])
    (python, numpy, of_torch), cached = three_states
    assert python == struct.pack("<624IHHd", *random.Random(1).getstate()[1][:624], 624, 0, 0)
    old = np.random.RandomState(2)
    head = b"MT19937".ljust(16, b"\0")
    assert numpy == head + struct.pack("<624IHHd", *old.get_state()[1].tolist(), 624, 0, 0)
    words = torch.Generator().manual_seed(3).get_state().numpy()[24:5016].view(np.uint64).tolist()
    assert of_torch == struct.pack("<624IHHQdf", *words, 0, 0, 3, 0, 0)
    own = random.Random(1)
    own.gauss(0, 1)
    assert cached[0][2496:] == struct.pack("<HHd", 4, 1, own.gauss(0, 1))
    old.standard_normal()
    assert cached[1][16 + 2496 :] == struct.pack("<HHd", 4, 1, old.standard_normal())
    position, flags, seed, normal, none = struct.unpack("<HHQdf", cached[2][2496:])
    assert (position, flags, seed, none) == (4, 1, 3, 0)
    assert torch.randn((), dtype=torch.float64).item() == normal


@needs_native
@settings(max_examples=150, deadline=None)
@given(
    which=st.integers(0, 2),
    changes=st.lists(st.tuples(st.integers(0, 2523), st.integers(0, 255)), max_size=6),
    cut=st.sampled_from([None, 0, 1, -1, -8]),
)
def test_native_and_python_code_refuse_the_same(which, changes, cut):
    generators = ProcessGenerators()
    scramble()
    states = list(generators.states())
    data = bytearray(states[which].numpy().tobytes()[slice(cut)])
    for at, value in changes:  # half of them where it matters
        at = at if value % 2 else len(states[which]) - 1 - at % 24
        if at < len(data):
            data[at] = value
    changed = torch.tensor(list(data), dtype=torch.uint8)
    states[which] = changed
    before = snapshot()
    taken = generators.takes(states)
    try:
        list(generators.sinks.values())[which].check(changed)
    except ValueError:
        assert not taken
        native = _native.generators
        assert native.unpack_process(*generators._in_place(), *states) is None
    else:
        assert taken
    assert snapshot() == before


@needs_native
@pytest.mark.parametrize("odd", [None, 3, "x", b"x", "list", "long", "2-d", "meta", "sparse"])
def test_what_is_no_tensor_of_bytes_is_left_to_python(odd):
    generators = ProcessGenerators()
    states = list(generators.states())
    made = {
        "list": lambda t: t.tolist(),
        "long": lambda t: t.long(),
        "2-d": lambda t: t[None],
        "meta": lambda t: t.to("meta"),
        "sparse": lambda t: t.to_sparse(),
    }
    states[1] = made[odd](states[1]) if odd in made else odd
    before = snapshot()
    assert not generators.takes(states)
    assert _native.generators.unpack_process(*generators._in_place(), *states) is None
    assert snapshot() == before


@needs_native
def test_views_are_taken_as_they_are_or_left_to_python():
    generators = ProcessGenerators()
    states, before = generators.states(), snapshot()
    buffer = torch.zeros(9000, dtype=torch.uint8)
    shifted = [buffer[i * 3000 + 1 : i * 3000 + 1 + len(s)].copy_(s) for i, s in enumerate(states)]
    assert generators.takes(shifted)
    strided = [torch.stack([s, s], 1).reshape(-1)[::2] for s in states]
    assert not generators.takes(strided)
    for views in (shifted, strided):
        scramble()
        generators.load(views)
        assert snapshot() == before


@needs_native
def test_calls_of_ours_with_wrong_arguments_are_refused():
    native = _native.generators
    at = ProcessGenerators()._in_place()
    for call in (
        lambda: native.pack_process(),
        lambda: native.pack_process(*at),
        lambda: native.pack_process(*map(float, at), None),
        lambda: native.unpack_process(*at, None, None),
        lambda: native.unpack_process(*(-1 for _ in at), None, None, None),
    ):
        with pytest.raises(TypeError):
            call()
    assert native.check_process(None) is False


def test_where_numpy_cannot_be_written_in_place_the_bytes_are_the_same(monkeypatch):
    scramble()
    expected = ProcessGenerators().states()
    for owner, name, value in (
        (NumpyLegacySink, "_find_address", lambda self, bit_generator: None),
        (adapters.PythonSink, "_find_state", lambda self: None),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, value)
            found = ProcessGenerators()
            assert found._in_place() is None
            assert all(map(torch.equal, found.states(), expected))


def test_a_foreign_bit_generator_is_packed_by_python():
    np.random.set_bit_generator(np.random.PCG64(3))
    generators = ProcessGenerators()
    assert generators._in_place() is None
    packed, before = generators.states(), snapshot()
    np.random.random()
    generators.load(packed)
    assert snapshot() == before


def test_a_state_of_torch_that_torch_never_makes_is_not_packed(three):
    """Of five words left after the fifth, packing would make another state."""
    data = bytearray(torch.get_rng_state().numpy().tobytes())
    struct.pack_into("=iiQ", data, 8, 5, 1, 5)
    torch.set_rng_state(torch.frombuffer(data, dtype=torch.uint8))
    with pytest.raises(RuntimeError, match="must hold a state that torch made, got one with 5 wor"):
        three.states()


@needs_native
def test_states_are_whole_while_other_threads_draw():
    """Each state taken meanwhile is one that drawing passes through, and loading one holds."""
    generators = ProcessGenerators()
    stop = threading.Event()

    def draw() -> None:
        while not stop.is_set():
            torch.rand(5000)
            np.random.random(5000)

    threads = [threading.Thread(target=draw) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(300):
            states = generators.states()
            assert generators.takes(states)
            generators.load(states)
    finally:
        stop.set()
        for thread in threads:
            thread.join(30)
    assert not any(thread.is_alive() for thread in threads)
