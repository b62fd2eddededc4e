"""Streams go on in cuRAND and in Triton: the same words.

cuRAND's device header is compiled for the host, Triton runs in its interpreter: both need a
package more than the other tests (``pip install fastseed[interop]``) and no GPU.
"""

import importlib
import importlib.util
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from helpers.curand import curand_include
from helpers.draws import bank_at
from helpers.support import run_python

import fastseed

ROOT = Path(__file__).resolve().parents[2]
HERE = ROOT / "tests" / "csrc"
EXAMPLE = ROOT / "examples" / "continue_stream_triton.py"

TOP64 = 2**64 - 1
KEYS = [(0, 0), (TOP64, TOP64), (0x2CCB564119C109D1, 0xA000D856357E4DFD), (1 << 32, 1)]
# Of words, not of blocks; and where the counter's first word ends, and the stream.
POSITIONS = [0, 1, 2, 3, 4, 7, 2**33 + 5, 2**34 - 8, 2**34 - 1, 2**56 - 64]
COUNT = 24


def own_words(lo: int, hi: int, position: int, count: int) -> list[int]:
    """Return words of a stream from any position; ``fastseed.random.bits`` has whole blocks."""
    keys = torch.tensor([[lo, hi]], dtype=torch.uint64)
    bank = bank_at(keys, torch.tensor([position - position % 4]))
    words = fastseed.random.bits(bank, count + position % 4)
    return words[0].tolist()[position % 4 :]


@pytest.fixture(scope="module")
def curand(tmp_path_factory) -> Path:
    """The program of ``curand_host``, compiled."""
    include = curand_include()
    if include is None:
        pytest.skip("no curand_kernel.h: install nvidia-curand, or set CUDA_HOME")
    compiler = shutil.which(os.environ.get("CXX", "g++").split()[0]) or shutil.which("clang++")
    if compiler is None:
        pytest.skip("there is no C++ compiler")
    program = tmp_path_factory.mktemp("curand") / "words"
    host = HERE / "curand_host"
    flags = ["-std=c++17", "-Wall", "-Wextra", "-Werror", "-I", host, "-isystem", include]
    command = [compiler, *flags, host / "words.cpp", "-o", program]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return program


def curand_words(program: Path, places: list[tuple[int, int, int]]) -> list[list[list[int]]]:
    """For each place the words by ``curand``, by ``curand4``, and the bits of the uniforms."""
    lines = "".join(f"{lo:x} {hi:x} {position} {COUNT}\n" for lo, hi, position in places)
    done = subprocess.run([program], input=lines, capture_output=True, text=True, check=True)
    found = [[int(word, 16) for word in line.split()] for line in done.stdout.splitlines()]
    assert [len(line) for line in found] == [3 * COUNT] * len(places)
    return [[line[i : i + COUNT] for i in range(0, 3 * COUNT, COUNT)] for line in found]


def test_interop_curand_has_the_same_words(curand):
    places = [(*key, position) for key in KEYS for position in POSITIONS]
    for place, (singly, by_four, _) in zip(places, curand_words(curand, places), strict=True):
        assert singly == by_four == own_words(*place, COUNT), place


def test_interop_curand_goes_on_at_a_banks_positions(curand):
    """``curand_init(lo, hi, position)`` gives the words that the bank would draw next."""
    fastseed.init(42, rank=3, world_size=8)
    bank = fastseed.random.StreamBank(7, "environments")
    bank.reseed(1, 7)
    fastseed.random.normal(bank[torch.tensor([1, 4])], 5)
    fastseed.random.randint(bank, (3,), 0, 10**12)
    places = [
        (*key, position)
        for key, position in zip(bank.keys.tolist(), bank.positions.tolist(), strict=True)
    ]
    assert {position for _, _, position in places} == {8, 16}
    singly = [words for words, _, _ in curand_words(curand, places)]
    assert fastseed.random.bits(bank, COUNT).tolist() == singly


def test_interop_curand_uniforms_come_from_the_same_words(curand):
    """The conversions differ: cuRAND rounds w + 1/2, into (0, 1], and ours truncates, into [0, 1).

    Ours lies below w / 2^32 by less than 2^-24; cuRAND's is a rounding (2^-25) of 2^-33 above it.
    """
    places = [(*key, 0) for key in KEYS]
    for (lo, hi, _), (_, _, patterns) in zip(places, curand_words(curand, places), strict=True):
        theirs = torch.tensor(patterns).to(torch.int32).view(torch.float32).double()
        ours = fastseed.random.uniform(
            torch.tensor([lo, hi], dtype=torch.uint64), (COUNT,)
        ).double()
        assert ((theirs - ours) > -(2.0**-25)).all() and ((theirs - ours) < 1.6 * 2.0**-24).all()


def test_interop_triton_kernel_goes_on_at_a_banks_positions():
    """The example asserts that a kernel's ``tl.philox`` gives the bank's next words."""
    if importlib.util.find_spec("triton") is None:
        pytest.skip("needs triton (Linux only)")
    printed = run_python(EXAMPLE, TRITON_INTERPRET="1")
    assert printed.strip() == "3200 words of 100 streams by a Triton kernel, as the bank draws them"


@pytest.mark.needs_cuda
def test_interop_triton_kernel_on_the_device():
    if importlib.util.find_spec("triton") is None:
        pytest.skip("needs triton (Linux only)")
    assert run_python(EXAMPLE, TRITON_INTERPRET="0").startswith("3200 words")
