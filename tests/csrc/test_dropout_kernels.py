"""Dropout without torch: the core, every CPU path, and the CUDA kernels as a host runs them."""

from __future__ import annotations

import pytest
import test_cuda
from test_core import CPU, HERE, OPTIMIZE, SANITIZE, rows_of, run

FILE = HERE.parent / "vectors" / "dropout.txt"
SOURCES = (HERE / "dropout" / "test_dropout.cu", CPU.parent / "cuda" / "dropout.cu")


def test_dropout_is_clean_under_sanitizers(tmp_path):
    done = test_cuda.run(test_cuda.build_with_cpu(tmp_path, SANITIZE, *SOURCES), FILE)
    test_cuda.assert_rows_pass(done, FILE)


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return test_cuda.build_with_cpu(tmp_path_factory.mktemp("dropout"), OPTIMIZE, *SOURCES)


def test_dropout_gives_known_answers(program):
    test_cuda.assert_rows_pass(run(program, FILE), FILE)


def test_dropout_fails_on_a_wrong_answer(program, tmp_path):
    for kind in ("mask", "value", "layer"):
        row = next(line for line in rows_of(FILE) if line.startswith(kind) and " 0 " not in line)
        wrong = row[:-1] + ("0" if row[-1] != "0" else "1")
        for text in (wrong, row.rsplit(" ", 1)[0], row + " 0", "another 1 2"):
            file = tmp_path / "dropout.txt"
            file.write_text(text + "\n", "utf-8")
            assert run(program, file).returncode == 1, text
