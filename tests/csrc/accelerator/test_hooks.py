"""Generators that are reached through torch's hooks, are not torch's own, or have to be waited for.

A fake accelerator and a generator of another class, compiled here, replace the real ones.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fastseed

HERE = Path(__file__).parent

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("ninja") is None, reason="needs ninja to build"),
    pytest.mark.skipif(
        fastseed.build_info()["backend"] != "native", reason="the hooks are reached by native code"
    ),
]


@pytest.fixture(scope="module")
def build(tmp_path_factory) -> Path:
    """Return the folder in which the first check builds for all."""
    return tmp_path_factory.mktemp("fake_device")


def run_check(build: Path, name: str) -> None:
    done = subprocess.run(
        [sys.executable, HERE / "check_fake_device.py", build, name],
        capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith(f"passed: {name}\n")


def test_every_device_is_seeded_by_its_relative_ordinal(build):
    run_check(build, "hooks")


def test_generators_of_other_libraries_on_the_cpu_take_seed_and_offset(build):
    run_check(build, "another_class")


def test_python_goes_on_while_a_reseed_waits_for_a_generator(build):
    run_check(build, "waiting")
