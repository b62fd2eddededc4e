"""The arrays that the statistics look at are what the library derives."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from helpers.derivation_numpy import BITS, arbitrary, coordinate_keys, coordinate_name, philox
from helpers.paths import ROOT

import fastseed
from fastseed._backend import derive
from fastseed._backend.reference import scalar
from fastseed.random.dropout import dropout, threshold_of

# Random123 1.x, tests/kat_vectors, "philox4x32 7": key, counter, result.
SEVEN_ROUNDS = [
    (0, (0, 0, 0, 0), "5f6fb709 0d893f64 4f121f81 4f730a48"),
    (2**64 - 1, (2**32 - 1,) * 4, "5207ddc2 45165e59 4d8ee751 8c52f662"),
    (
        0x299F31D0A4093822,
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        "4dfccaba 190a87f0 c47362ba b6b5242a",
    ),
]


@pytest.mark.parametrize(("key", "counter", "words"), SEVEN_ROUNDS)
def test_derivation_numpy_gives_published_answers_at_seven_rounds(key, counter, words):
    w = [int(word, 16) for word in words.split()]
    lo, hi = philox(key, *counter, rounds=7)
    assert (int(lo), int(hi)) == (w[0] | w[1] << 32, w[2] | w[3] << 32)


def test_derivation_numpy_is_the_library_at_ten_rounds():
    n = 2000
    at = {name: arbitrary(f"tie {name}", n, 2**bits) for name, bits in BITS.items()}
    found = coordinate_keys(at)
    for k in range(n):
        c = {name: int(values[k]) for name, values in at.items()}
        scope = derive.scope_key(c["master"], c["task"], c["epoch"], c["step"])
        name = derive.name_key(scope, (c["name_lo"], c["name_hi"]))
        key = derive.stream_key(name, c["rank"], c["worker"], c["index"])
        assert found[k].tolist() == [key & 2**64 - 1, key >> 64]


PROGRAMS = sorted((ROOT / "tests" / "vectors").glob("make_*.py"))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.stem)
def test_vectors_are_what_their_program_makes(program):
    command = [sys.executable, program, "--check"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


SAMPLES = 2**14
HIGHEST, LOWEST = 5.5, 3.4
NAMES = ("python", "numpy", "torch.cpu", "torch.cuda", "torch.xpu", "torch.mps", "pool", "sample")


def random_coordinates() -> dict[str, np.ndarray]:
    """From anywhere in the range of each coordinate."""
    return {name: arbitrary(f"any {name}", SAMPLES, 2**bits) for name, bits in BITS.items()}


def small_coordinates() -> dict[str, np.ndarray]:
    """As jobs have them: small integers, and names of the library's own."""
    at = {name: arbitrary(f"small {name}", SAMPLES, 128) for name in BITS}
    words = np.array([scalar.name_words(name) for name in NAMES], np.uint64)
    lo, hi = words[at["name_lo"] % np.uint64(len(words))].T
    return {**at, "name_lo": lo, "name_hi": hi}


def flips(at: dict[str, np.ndarray], rounds: int) -> dict[tuple[str, int], np.ndarray]:
    """For each (coordinate, bit) the z of all 128 bits of the key."""
    known = coordinate_name(at, rounds)
    before = coordinate_keys(at, rounds, known)
    found = {}
    for name, bits in BITS.items():
        same = known if name in ("rank", "worker", "index") else None
        for bit in range(bits):
            flipped = {**at, name: at[name] ^ np.uint64(1 << bit)}
            changed = before ^ coordinate_keys(flipped, rounds, same)
            bits_of = np.unpackbits(changed.view(np.uint8), axis=1)
            counts = bits_of.sum(axis=0, dtype=np.int64)
            found[name, bit] = (counts - SAMPLES / 2) / np.sqrt(SAMPLES / 4)
    return found


def score(found: dict[tuple[str, int], np.ndarray]) -> float:
    """max |z| over every input and output bit."""
    assert len(found) == sum(BITS.values()) == 432
    return float(max(np.abs(z).max() for z in found.values()))


COORDINATES = pytest.mark.parametrize("coordinates", [random_coordinates, small_coordinates])


@COORDINATES
def test_avalanche_every_input_bit_flips_every_output_bit(coordinates):
    assert LOWEST < score(flips(coordinates(), rounds=10)) < HIGHEST


@COORDINATES
def test_avalanche_control_six_rounds_are_not_enough(coordinates):
    """As in the paper, which calls Philox4x32 crush-resistant from seven rounds on."""
    assert score(flips(coordinates(), rounds=6)) > 40


ROWS, LENGTH = 256, 4096
P = (0.01, 0.1, 0.25, 0.5, 0.9)


def masks(p: float, name: str = "layer", **axis: int) -> np.ndarray:
    """(ROWS, LENGTH): +1 where an element is dropped, in units that give it variance 1."""
    fastseed.init(42, rank=0, world_size=1)
    rows = []
    for i in range(ROWS):
        at = {"task": 1, **{k: v * i for k, v in axis.items()}}
        label = at.pop("layer", 0)
        key = fastseed.derive_key(f"dropout/{name}.{label}", rank=fastseed.SHARED, **at)
        rows.append(dropout(torch.ones(LENGTH), p, key) == 0)
    rate = threshold_of(p) / 2**16
    dropped: np.ndarray = torch.stack(rows).numpy()
    return (dropped - rate) / np.sqrt(rate * (1 - rate))


def z(values: np.ndarray) -> float:
    return float(values.sum() / np.sqrt(values.size))


@pytest.mark.parametrize("p", P)
@pytest.mark.parametrize("axis", [{"step": 1}, {"epoch": 1}, {"layer": 1}, {"step": 2**32}])
def test_masks_are_random(p, axis):
    found = masks(p, **axis)
    assert abs(z(found)) < 5, "the rate"
    for lag in (1, 2, 7, 8, 64, 2048):
        assert abs(z(found[:, lag:] * found[:, :-lag])) < 5, f"elements {lag} apart"
        if lag < ROWS:
            assert abs(z(found[lag:] * found[:-lag])) < 5, f"{axis} {lag} apart"
    for phase in range(8):  # the halves of the words of a block
        assert abs(z(found[:, phase::8])) < 5, f"place {phase} of a block"


def test_the_rate_is_that_of_the_threshold():
    """The scale is exact for the rate in use: the mean of what stays is 1."""
    found = dropout(torch.ones(2**24, dtype=torch.float64), 1 / 3, 7)
    rate = threshold_of(1 / 3) / 2**16
    spread = np.sqrt(rate / (1 - rate) / 2**24)
    assert abs(float(found.mean()) - 1) < 5 * spread
