"""The table of docs/evidence/rollouts.md: which rules of the contract schemes break."""

import pytest
from helpers import seed_schemes
from helpers.paths import ROOT

pytestmark = pytest.mark.proof
PAGE = (ROOT / "docs" / "evidence" / "rollouts.md").read_text().splitlines()


@pytest.mark.parametrize("scheme", seed_schemes.SCHEMES, ids=lambda scheme: scheme.name)
def test_row(scheme):
    assert seed_schemes.row(scheme) in PAGE
    assert (not seed_schemes.broken_rules(scheme.fn)) is (scheme.fn is seed_schemes.rollout)


def test_the_page_has_the_whole_table():
    rows = [line for line in PAGE if line.startswith("| ") and line.count(" | ") == 7]
    assert len(rows) == 1 + len(seed_schemes.SCHEMES)
    for scheme in seed_schemes.SCHEMES[:-1]:
        assert any(scheme.source in line for line in PAGE), scheme.source
