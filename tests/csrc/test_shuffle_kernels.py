"""The shuffle without torch: the core, every CPU path, and the CUDA kernel as a host runs it."""

from __future__ import annotations

import re
import subprocess

import pytest
import test_cuda
from test_core import CPU, HERE, OPTIMIZE, SANITIZE, build, rows_of, run

SHUFFLE = HERE.parent / "vectors" / "shuffle.txt"
MAIN = HERE / "test_shuffle.cpp"
CUDA = (HERE / "shuffle" / "test_cuda_shuffle.cu", CPU.parent / "cuda" / "shuffle.cu")


def assert_passes(done: subprocess.CompletedProcess[str], least: int) -> None:
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.fullmatch(r"(\d+) rows, (\d+) checks passed(?: on:((?: \w+)+))?\n", done.stdout)
    assert found, done.stdout
    assert int(found[1]) == len(rows_of(SHUFFLE)) and int(found[2]) > least
    assert done.stderr == ""


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return build(tmp_path_factory.mktemp("shuffle"), OPTIMIZE, MAIN)


def test_shuffle_gives_known_answers_on_every_path(program):
    assert_passes(run(program, SHUFFLE), 100_000)


@pytest.mark.slow
def test_shuffle_is_clean_under_sanitizers(tmp_path):
    sanitized = build(tmp_path, SANITIZE, MAIN)
    assert_passes(run(sanitized, SHUFFLE, ASAN_OPTIONS="detect_leaks=0"), 100_000)


def test_cuda_shuffle_gives_known_answers_and_is_clean(tmp_path):
    assert_passes(
        test_cuda.run(test_cuda.build(tmp_path, test_cuda.UNOPTIMIZED, *CUDA), SHUFFLE), 5_000
    )


def damaged() -> list[str]:
    """An order and a digest, each with a wrong end, without its last column, and with one more."""
    texts = []
    for kind in ("order", "digest", "inverse"):
        row = [line for line in rows_of(SHUFFLE) if line.startswith(kind)][-1]
        wrong = row[:-1] + ("0" if row[-1] != "0" else "1")
        texts += [wrong, row.rsplit(" ", 1)[0], row + " 0"]
    return [*texts, "another 1 2", "# nothing"]


def test_shuffle_fails_on_a_wrong_answer(program, tmp_path):
    cuda = test_cuda.build(tmp_path, ("-O1",), *CUDA)
    for text in damaged():
        file = tmp_path / "shuffle.txt"
        file.write_text(text + "\n", "utf-8")
        for test in (program, cuda):
            done = run(test, file)
            assert done.returncode == 1, text
            assert "FAILED" in done.stderr
