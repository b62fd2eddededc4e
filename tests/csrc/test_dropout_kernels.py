"""Dropout without torch: the core, every CPU path, and the CUDA kernels as a host runs them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import test_cuda
from test_core import CPU, HERE, KERNELS, OPTIMIZE, SANITIZE, compile_with, objects, run

FILE = HERE.parent / "vectors" / "dropout.txt"
SOURCES = (HERE / "dropout" / "test_dropout.cu", CPU.parent / "cuda" / "dropout.cu")


def rows() -> list[str]:
    lines = FILE.read_text("utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def build(folder: Path, flags: tuple[str, ...]) -> Path:
    """The program, with the kernels of the CPU and the shim in place of CUDA's header."""
    program = folder / "test_dropout"
    made = objects(folder, SOURCES, (*test_cuda.SHIM, *flags)) + objects(folder, KERNELS, flags)
    compile_with(flags, *made, "-pthread", "-o", program)
    return program


def assert_passes(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.fullmatch(r"(\d+) rows, (\d+) checks passed on:((?: \w+)+)\n", done.stdout)
    assert found, done.stdout
    assert int(found[1]) == len(rows()) and int(found[2]) > 10_000
    assert done.stderr == ""


def test_dropout_is_clean_under_sanitizers(tmp_path):
    assert_passes(run(build(tmp_path, SANITIZE), FILE, ASAN_OPTIONS="detect_leaks=0"))


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return build(tmp_path_factory.mktemp("dropout"), OPTIMIZE)


def test_dropout_gives_known_answers(program):
    assert_passes(run(program, FILE))


def test_dropout_fails_on_a_wrong_answer(program, tmp_path):
    for kind in ("mask", "value", "layer"):
        row = next(line for line in rows() if line.startswith(kind) and " 0 " not in line)
        wrong = row[:-1] + ("0" if row[-1] != "0" else "1")
        for text in (wrong, row.rsplit(" ", 1)[0], row + " 0", "another 1 2"):
            file = tmp_path / "dropout.txt"
            file.write_text(text + "\n", "utf-8")
            assert run(program, file).returncode == 1, text
