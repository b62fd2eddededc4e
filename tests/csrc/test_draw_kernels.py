"""The draws on the CPU without torch: a program of its own, also under sanitizers."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
from test_core import HERE, OPTIMIZE, SANITIZE, build, run

MAIN = HERE / "test_draws.cpp"


def assert_passes(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.fullmatch(r"(\d+) checks,((?: \w+)+)\n", done.stdout)
    assert found, done.stdout
    assert int(found[1]) > 1_000_000
    assert "portable" in found[2].split()


@pytest.fixture(scope="module")
def objects(tmp_path_factory):
    """The kernels as they are shipped: loops turned into vector code."""
    folder = tmp_path_factory.mktemp("draws")
    program = build(folder, OPTIMIZE, MAIN)
    return folder, program


def test_draws_are_those_of_the_core(objects):
    assert_passes(run(objects[1]))


@pytest.mark.slow
def test_draws_are_clean_under_sanitizers(tmp_path):
    program = build(tmp_path, SANITIZE, MAIN)
    done = run(program, ASAN_OPTIONS="detect_leaks=0")
    assert_passes(done)
    assert done.stderr == ""


def test_draws_have_no_fused_multiply_add(objects):
    disassembler = shutil.which("objdump")
    if disassembler is None:
        pytest.skip("there is no disassembler")
    functions = run(disassembler, "-d", "--no-show-raw-insn", objects[1]).stdout.split("\n\n")
    # Exact sums ask for them: what they round is added too.
    code = "\n".join(f for f in functions if "add_in_two" not in f.partition(":\n")[0])
    assert re.search(r"\bv?mul[ps]s\b", code), "no multiplication was found either"
    assert not re.search(r"\bv?fn?m(add|sub)", code)
