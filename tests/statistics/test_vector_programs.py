"""The known answers are what their programs make, and both are as released."""

from __future__ import annotations

import subprocess
import sys

import pytest
from helpers.paths import ROOT

PROGRAMS = sorted((ROOT / "tests" / "vectors").glob("make_*.py"))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.stem)
def test_vectors_are_what_their_program_makes(program):
    command = [sys.executable, program, "--check"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
