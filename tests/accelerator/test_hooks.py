"""Default generators of an accelerator, reached through torch's hooks, without an accelerator."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fastseed

HERE = Path(__file__).parent


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("ninja") is None, reason="needs ninja to build the fake device")
@pytest.mark.skipif(
    fastseed.build_info()["backend"] != "native", reason="the hooks are reached by native code"
)
def test_every_device_is_seeded_by_its_relative_ordinal(tmp_path):
    script = HERE / "check_fake_device.py"
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path)], capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "three devices seeded" in done.stdout
