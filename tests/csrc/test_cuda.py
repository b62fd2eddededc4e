"""The CUDA kernels without a GPU: as C++, thread by thread, under sanitizers.

``cuda_shim/cuda_runtime.h`` stands in for CUDA's header of that name. The same sources, compiled
by nvcc, are the test of the kernels on a GPU (``benchmarks/gpu.sh``).
"""

from __future__ import annotations

import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
TESTS, KERNELS = HERE.parent, HERE.parents[1] / "csrc" / "cuda"
DATA = TESTS / "vectors"
STRICT = (
    "-std=c++17", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas", "-ffp-contract=off",
    f"-I{HERE / 'cuda_shim'}",
)  # fmt: skip
SANITIZE = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}  # leaks need ptrace
    return subprocess.run(command, capture_output=True, text=True, timeout=280, env=environment)


def compiler() -> str:
    found = shutil.which(os.environ.get("CXX", "g++").split()[0]) or shutil.which("clang++")
    if found is None:
        pytest.skip("there is no C++ compiler")
    return found


def must(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def program(tmp_path_factory) -> Path:
    """The test of the kernels, as a host runs them; two sources are compiled at a time."""
    folder = tmp_path_factory.mktemp("cuda")
    cxx = compiler()

    def compile_one(source: Path) -> Path:
        target = folder / f"{source.name}.o"
        must(run(cxx, *STRICT, *SANITIZE, "-x", "c++", "-c", source, "-o", target))
        return target

    with ThreadPoolExecutor(2) as pool:
        objects = list(pool.map(compile_one, [HERE / "test_cuda.cu", *KERNELS.glob("*.cu")]))
    must(run(cxx, *SANITIZE, *objects, "-o", folder / "test_cuda"))
    return folder / "test_cuda"


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
    source, target = HERE / "cuda_real_checks.cpp", tmp_path / "checks"
    must(run(compiler(), *STRICT, "-O2", source, "-o", target))
    assert int(must(run(target)).split()[0]) > 100_000_000
