"""Exact sums without torch: the core, every CPU path, and the CUDA kernels as a host runs them."""

from __future__ import annotations

import re
import subprocess

import pytest
import test_cuda
from test_core import CPU, HERE, OPTIMIZE, SANITIZE, rows_of, run

FILE = HERE.parent / "vectors" / "exact_sum.txt"
SOURCES = (HERE / "exact_sum" / "test_exact_sum.cu", CPU.parent / "cuda" / "exact_sum.cu")


def assert_passes(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.fullmatch(r"(\d+) rows, (\d+) checks passed on:((?: \w+)+)\n", done.stdout)
    assert found and int(found[1]) == len(rows_of(FILE)) and int(found[2]) > 2000, done.stdout
    assert done.stderr == ""


def test_exact_sums_are_clean_under_sanitizers(tmp_path):
    assert_passes(test_cuda.run(test_cuda.build_with_cpu(tmp_path, SANITIZE, *SOURCES), FILE))


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return test_cuda.build_with_cpu(tmp_path_factory.mktemp("exact_sum"), OPTIMIZE, *SOURCES)


def test_exact_sums_give_known_answers(program):
    assert_passes(run(program, FILE))


def test_exact_sums_fail_on_a_wrong_answer(program, tmp_path):
    row = next(line for line in rows_of(FILE) if line.startswith("sum float32 3f800000 - 1 0"))
    other = row.replace("- 1 0", "- 3 0")
    for text in (other, row.rsplit(" ", 1)[0], row + " 0", row[:-1] + "1", "another 1 2"):
        file = tmp_path / "exact_sum.txt"
        file.write_text(text + "\n", "utf-8")
        assert run(program, file).returncode == 1, text
