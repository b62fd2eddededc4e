"""The CUDA kernels without a GPU: as C++, thread by thread, under sanitizers.

``cuda_shim/cuda_runtime.h`` stands in for CUDA's header of that name. The same sources, compiled
by nvcc, are the test of the kernels on a GPU (``benchmarks/gpu.sh``).
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import test_core
from test_core import CPU, EXACT, HERE, KERNELS, SANITIZE, compile_with, objects, rows_of

CUDA = sorted((CPU.parent / "cuda").glob("*.cu"))
DATA = HERE.parent / "vectors"
UNOPTIMIZED = (*SANITIZE, "-O0")  # where the compiler takes longer than what it compiles
SHIM = ("-Wno-unknown-pragmas", f"-I{HERE / 'cuda_shim'}")


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return test_core.run(*command, ASAN_OPTIONS="detect_leaks=0")  # leaks need ptrace


def must(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build(folder: Path, flags: tuple[str, ...], *sources: Path) -> Path:
    """A program of kernels as a host runs them."""
    program = folder / sources[0].stem
    compile_with(flags, *objects(folder, sources, (*SHIM, *flags)), "-o", program)
    return program


def build_with_cpu(folder: Path, flags: tuple[str, ...], *sources: Path) -> Path:
    """A program of kernels as a host runs them, and of those of the CPU."""
    program = folder / sources[0].stem
    made = objects(folder, sources, (*SHIM, *flags)) + objects(folder, KERNELS, flags)
    compile_with(flags, *made, "-pthread", "-o", program)
    return program


def assert_rows_pass(done: subprocess.CompletedProcess[str], file: Path) -> None:
    """That all rows of a file passed, on every path of this CPU."""
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.fullmatch(r"(\d+) rows, (\d+) checks passed on:((?: \w+)+)\n", done.stdout)
    assert found, done.stdout
    assert int(found[1]) == len(rows_of(file)) and int(found[2]) > 10_000
    assert done.stderr == ""


@pytest.fixture(scope="module")
def program(tmp_path_factory) -> Path:
    return build(tmp_path_factory.mktemp("cuda"), UNOPTIMIZED, HERE / "test_cuda.cu", *CUDA)


def rows(name: str, *kinds: str) -> list[str]:
    lines = (DATA / name).read_text("utf-8").splitlines()
    return [line for line in lines if line.split(" ")[0] in kinds]


@pytest.mark.slow
def test_kernels_give_known_answers_and_are_clean(program):
    done = run(program, DATA / "vectors.txt", DATA / "draws.txt")
    expected = len(rows("vectors.txt", "stream", "sample", "seeds"))
    expected += len(rows("draws.txt", "draw", "real"))
    assert must(done).startswith(f"{expected} rows, "), done.stdout
    assert int(done.stdout.split()[2]) > 1_000_000
    assert done.stderr == ""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "kind"),
    [("vectors.txt", k) for k in ("stream", "sample", "seeds")]
    + [("draws.txt", k) for k in ("draw", "real")],
)
def test_kernels_fail_on_a_wrong_answer(program, tmp_path, file, kind):
    row = rows(file, kind)[-1]
    wrong = row[:-1] + ("0" if row[-1] != "0" else "1")
    for text in (wrong, row.rsplit(" ", 1)[0], "another 1 2"):
        path = tmp_path / "vectors.txt"
        path.write_text(text + "\n", "utf-8")
        done = run(program, path)
        assert done.returncode == 1, text[:160]
        assert "FAILED" in done.stderr and text[:100] in done.stderr


def test_short_functions_have_the_bits_of_the_core(tmp_path):
    program = build(tmp_path, ("-O2", *EXACT), HERE / "cuda_real_checks.cpp")
    assert int(must(run(program)).split()[0]) > 100_000_000
