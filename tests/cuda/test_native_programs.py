"""The C++ tests of the kernels on a GPU: known answers, and nothing found by compute-sanitizer."""

from __future__ import annotations

import functools
import shutil
import sys
from pathlib import Path

import pytest
import torch
from helpers.paths import ROOT

sys.path.insert(0, str(ROOT / "tests" / "csrc"))
from native_programs import KERNELS, PROGRAMS, Program, run

pytestmark = pytest.mark.cuda
ON_GPU = [program for program in PROGRAMS if program.sources[-1].suffix == ".cu"]
NVCC = ("-std=c++17", "-O3", "-lineinfo", "-fmad=false", "--expt-relaxed-constexpr")


@functools.cache
def compiled(program: Program, folder: Path) -> Path:
    """Compile a program for the card that is here, as setup.py compiles the kernels."""
    major, minor = torch.cuda.get_device_capability()
    to = folder / program.name
    sources = [*program.sources, *(KERNELS if program.kernels else ())]
    done = run("nvcc", *NVCC, f"-arch=sm_{major}{minor}", *sources, "-o", to)
    assert done.returncode == 0, done.stderr
    return to


@pytest.fixture(scope="session")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("programs")


@pytest.mark.parametrize("program", ON_GPU, ids=lambda program: program.name)
def test_program_passes_on_the_gpu(program, folder):
    program.assert_passes(run(compiled(program, folder), *program.paths))


@pytest.mark.parametrize("tool", ["memcheck", "racecheck", "initcheck"])
@pytest.mark.parametrize("program", ON_GPU, ids=lambda program: program.name)
def test_program_is_clean_under_compute_sanitizer(program, tool, folder):
    sanitizer = shutil.which("compute-sanitizer")
    if sanitizer is None:
        pytest.skip("there is no compute-sanitizer")
    check = (sanitizer, "--tool", tool, "--error-exitcode", "9")
    done = run(*check, compiled(program, folder), *program.paths)
    assert done.returncode == 0, done.stdout + done.stderr
