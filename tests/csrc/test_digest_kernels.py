"""Digests without torch: every CPU path, and the CUDA kernel as a host runs it."""

from __future__ import annotations

import re
import subprocess

import pytest
import test_cuda
from test_core import CPU, HERE, OPTIMIZE, SANITIZE, build, compile_with, run

MAIN = HERE / "test_digest.cpp"
CUDA = (HERE / "test_cuda_digest.cu", CPU.parent / "cuda" / "digest.cu")
PATHS = ("portable", "avx2", "avx512")


def assert_passes(done: subprocess.CompletedProcess[str], least: int) -> str:
    """That all checks passed; what the program says of its path."""
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.fullmatch(r"(\d+) checks passed(?: on: (\w+))?\n", done.stdout)
    assert found and int(found[1]) > least, done.stdout
    assert done.stderr == ""
    return found[2]


def paths() -> list[str]:
    """Those of this CPU, as the dispatcher takes them."""
    from fastseed._backend import derive

    return [path for path in PATHS if path in (*derive.simd_paths(), "portable")]


def test_digest_has_the_sums_of_the_core_on_every_path(tmp_path):
    program = build(tmp_path, OPTIMIZE, MAIN)
    for path in paths():
        assert assert_passes(run(program, FASTSEED_SIMD=path), 2000) == path


@pytest.mark.slow
def test_digest_is_clean_under_sanitizers(tmp_path):
    """Rows end where their memory does: reads past them are seen."""
    program = build(tmp_path, SANITIZE, MAIN)
    for path in paths():
        assert assert_passes(run(program, FASTSEED_SIMD=path, ASAN_OPTIONS="detect_leaks=0"), 2000)


def test_cuda_digest_has_the_sums_of_the_core_and_is_clean(tmp_path):
    assert_passes(test_cuda.run(test_cuda.build(tmp_path, test_cuda.UNOPTIMIZED, *CUDA)), 1000)


@pytest.mark.parametrize(
    ("change", "to"),
    [
        ("before + low < before ? 1 : 0", "0"),  # a carry that is lost
        ("? next : end;", "? next : end + 1;"),  # a tile that another block has too
        ("* static_cast<uint64_t>(row) +", "+"),
        ("unit % 4 == 0 ?", "unit % 2 == 0 ?"),  # a load that its address does not allow
    ],
)
def test_a_wrong_kernel_is_noticed(tmp_path, change, to):
    text = CUDA[1].read_text("utf-8")
    assert change in text
    text = text.replace(change, to).replace('#include "', f'#include "{CUDA[1].parent}/')
    (tmp_path / "wrong.cu").write_text(text, "utf-8")
    flags = ("-O0", "-fsanitize=undefined,address", "-fno-sanitize-recover=all", "-Wno-error")
    program = tmp_path / "wrong"
    sources = (CUDA[0], tmp_path / "wrong.cu")
    compile_with((*flags, *test_cuda.SHIM), "-x", "c++", *sources, "-o", program)
    assert test_cuda.run(program).returncode != 0
