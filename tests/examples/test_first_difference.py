"""The session of docs/first-difference.md, command by command."""

import pytest
from helpers.sessions import replay


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_session_of_the_page(tmp_path):
    replay("first-difference.md", tmp_path)
