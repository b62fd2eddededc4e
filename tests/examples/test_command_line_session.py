"""The terminal session of docs/command-line.md, command by command."""

import pytest
from helpers.sessions import is_output, replay, session


def test_output_is_compared():
    assert is_output("a  b\n", ["a b"]) and is_output("a\nx\ny\nb\n", ["a", "…", "b"])
    assert not is_output("a c\n", ["a b"]) and not is_output("a\nb\nc\n", ["a", "b"])
    assert not is_output("", ["a"]) and is_output("loss 1.5 of 3\n", ["loss … 3"])


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_session_of_the_page(tmp_path):
    commands = " ".join(command for command, _ in session("command-line.md"))
    assert all(f"fastseed {name} " in commands for name in ("run", "check", "diff"))
    replay("command-line.md", tmp_path)
