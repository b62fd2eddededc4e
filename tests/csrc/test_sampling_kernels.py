"""Sampling without torch: the core, every CPU path, and the CUDA kernels as a host runs them."""

from __future__ import annotations

import pytest
import test_cuda
from test_core import CPU, HERE, OPTIMIZE, SANITIZE, rows_of, run

FILE = HERE.parent / "vectors" / "sampling.txt"
SOURCES = (HERE / "sampling" / "test_sampling.cu", CPU.parent / "cuda" / "sampling.cu")


def test_sampling_is_clean_under_sanitizers(tmp_path):
    done = test_cuda.run(test_cuda.build_with_cpu(tmp_path, SANITIZE, *SOURCES), FILE)
    test_cuda.assert_rows_pass(done, FILE)


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return test_cuda.build_with_cpu(tmp_path_factory.mktemp("sampling"), OPTIMIZE, *SOURCES)


def test_sampling_gives_known_answers(program):
    test_cuda.assert_rows_pass(run(program, FILE), FILE)


def test_sampling_fails_on_a_wrong_answer(program, tmp_path):
    for kind in ("noise", "mass", "race", "weights"):
        row = [line for line in rows_of(FILE) if line.startswith(kind)][-1]
        wrong = row[:-1] + ("0" if row[-1] != "0" else "1")
        for text in (wrong, row.rsplit(" ", 1)[0], row + " 0", "another 1 2"):
            file = tmp_path / "sampling.txt"
            file.write_text(text + "\n", "utf-8")
            done = run(program, file)
            assert done.returncode == 1 and "FAILED" in done.stderr, text[:100]
