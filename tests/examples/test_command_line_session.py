"""The terminal session of docs/command-line.md, command by command."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.sessions import is_output, replay, session

REPORT = Path("proof/report")


def test_output_is_compared():
    assert is_output("a  b\n", ["a b"]) and is_output("a\nx\ny\nb\n", ["a", "…", "b"])
    assert not is_output("a c\n", ["a b"]) and not is_output("a\nb\nc\n", ["a", "b"])
    assert not is_output("", ["a"]) and is_output("loss 1.5 of 3\n", ["loss … 3"])


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_session_of_the_page(tmp_path):
    assert any("fastseed verify" in command for command, _ in session("command-line.md"))
    replay("command-line.md", tmp_path)
    assert (tmp_path / REPORT / "curves.png").read_bytes()[:4] == b"\x89PNG"
    assert '"passed": true' in (tmp_path / REPORT / "report.json").read_text()
