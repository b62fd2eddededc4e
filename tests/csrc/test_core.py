"""The C++ core and kernels without torch: a program of their own, also under sanitizers."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import shutil
import subprocess
import sys
import zlib
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
CPU = HERE.parents[1] / "csrc" / "cpu"
KERNELS = sorted(CPU.glob("*.cpp"))
VECTORS = HERE.parent / "vectors" / "vectors.txt"
STRICT = ("-std=c++17", "-Wall", "-Wextra", "-Werror")
EXACT = ("-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math")  # as setup.py has them
OPTIMIZE = ("-O3", *EXACT)
SANITIZE = ("-O1", "-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", *EXACT)


def run(*command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, capture_output=True, text=True, timeout=500, env={**os.environ, **environment}
    )


CORE = (HERE / "test_core.cpp", HERE / "kernel_checks.cpp")


def compile_with(flags: tuple[str, ...], *rest: str | Path) -> None:
    """Call the compiler; its warnings are errors."""
    compiler = shutil.which(os.environ.get("CXX", "g++").split()[0]) or shutil.which("clang++")
    if compiler is None:
        pytest.skip("there is no C++ compiler")
    done = run(compiler, *STRICT, *flags, *rest)
    assert done.returncode == 0, done.stderr


def objects(temporary: Path, sources: Iterable[Path], flags: tuple[str, ...]) -> list[Path]:
    """The objects of some sources, compiled once for all programs of all workers of this run.

    ``temporary`` is a folder of a test. What another worker compiles is waited for at the end only.
    """
    workers = "PYTEST_XDIST_WORKER" in os.environ
    root = temporary.parent.parent if workers else temporary.parent
    folder = root / f"objects-{zlib.crc32(repr(flags).encode()):08x}"
    folder.mkdir(exist_ok=True)
    targets = {source: folder / f"{source.name}.o" for source in sources}
    for mode in (fcntl.LOCK_EX | fcntl.LOCK_NB, fcntl.LOCK_EX):
        for source, to in targets.items():
            with to.with_suffix(".lock").open("w") as lock, suppress(BlockingIOError):
                fcntl.flock(lock, mode)
                if not to.exists():
                    language = ("-x", "c++") if source.suffix == ".cu" else ()
                    partial = to.with_suffix(".partial")
                    compile_with(flags, *language, "-c", source, "-o", partial)
                    partial.rename(to)
    return list(targets.values())


def build(folder: Path, flags: tuple[str, ...], *main: Path) -> Path:
    """A program with the kernels; its own checks need less optimization than they."""
    program = folder / main[0].stem
    made = objects(folder, main, (*flags, "-O1")) + objects(folder, KERNELS, flags)
    compile_with(flags, *made, "-pthread", "-o", program)
    return program


@pytest.fixture(scope="module")
def program(tmp_path_factory) -> Path:
    return build(tmp_path_factory.mktemp("core"), OPTIMIZE, *CORE)


def rows_of(file: Path) -> list[str]:
    """The rows of a file of known answers."""
    lines = file.read_text("utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def assert_passes(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith(f"{len(rows_of(VECTORS))} rows, "), done.stdout
    assert int(done.stdout.split()[2]) > 1_000_000, done.stdout
    assert "portable" in done.stdout


def test_core_gives_known_answers(program):
    assert_passes(run(program, VECTORS))


@pytest.mark.slow
def test_core_is_clean_under_sanitizers(tmp_path):
    sanitized = build(tmp_path, SANITIZE, *CORE)
    done = run(sanitized, VECTORS, ASAN_OPTIONS="detect_leaks=0")  # leaks need ptrace
    assert_passes(done)
    assert done.stderr == ""


KINDS = ("block", "scope", "name", "level2", "stream", "sample", "mt19937", "seeds", "narrow")


@pytest.mark.parametrize("kind", KINDS)
def test_core_fails_on_a_wrong_answer(program, tmp_path, kind):
    row = next(line for line in rows_of(VECTORS) if line.startswith(kind + " "))
    wrong = row[:-1] + ("0" if row[-1] != "0" else "1")
    for text, problem in (
        (wrong, ""),
        (row + " 0", "too many columns"),
        (row.rsplit(" ", 1)[0], "a column is missing"),
    ):
        file = tmp_path / "vectors.txt"
        file.write_text(text + "\n", "utf-8")
        done = run(program, file)
        assert done.returncode == 1, text[:160]
        assert "FAILED" in done.stderr and problem in done.stderr
        assert text[:100] in done.stderr


@pytest.mark.parametrize(
    ("text", "problem"),
    [("philox 0 1\n", "unknown kind"), ("# nothing\n", "no rows"), ("scope 0 0 0 x\n", "read")],
)
def test_core_fails_on_what_it_does_not_know(program, tmp_path, text, problem):
    file = tmp_path / "vectors.txt"
    file.write_text(text)
    done = run(program, file)
    assert done.returncode == 1
    assert problem in done.stderr


def test_core_starts_on_the_path_of_the_environment(program):
    fastest = run(program, VECTORS, FASTSEED_SIMD="").stdout
    paths, chosen = fastest.split(" on: ")[1].strip().split("; chosen: ")
    assert chosen == paths.split()[-1]
    for name in paths.split():
        done = run(program, VECTORS, FASTSEED_SIMD=name)
        assert_passes(done)
        assert done.stdout.strip().endswith(f"; chosen: {name}")
    done = run(program, VECTORS, FASTSEED_SIMD="sse9")
    assert done.returncode == 1
    assert "FASTSEED_SIMD must be one of portable" in done.stderr
    assert "got sse9" in done.stderr


def arm_compiler() -> tuple[str, ...]:
    """A compiler for 64-bit Arm: GCC's, or the one that the package ziglang brings."""
    if (gcc := shutil.which("aarch64-linux-gnu-g++")) is not None:
        return (gcc,)
    if importlib.util.find_spec("ziglang") is not None:
        return (sys.executable, "-m", "ziglang", "c++", "-target", "aarch64-linux-gnu")
    pytest.skip("there is neither aarch64-linux-gnu-g++ nor ziglang")


@pytest.mark.slow
def test_kernels_compile_for_arm(tmp_path):
    for source in KERNELS:
        done = run(*arm_compiler(), *STRICT, "-O2", "-c", source, "-o", tmp_path / "kernel.o")
        assert done.returncode == 0, done.stderr
