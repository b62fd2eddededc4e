"""What the tests of verify share."""

from __future__ import annotations

import pytest


@pytest.fixture
def write(tmp_path):
    """Writes a log and returns its path."""

    def write(text, name="log.jsonl"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write
