"""The server in miniature: whatever the batch, a request's pictures are its own."""

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "seed_per_request.py"


def test_requests_do_not_depend_on_their_batch():
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--requests", "11", "--device", "cpu"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "11 requests, batches of 1, 3 and 8, two orders: the same pictures." in done.stdout
