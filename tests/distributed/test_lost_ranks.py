"""Collective calls of the library name the rank that ended or stopped; torch names none."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor

import pytest
from helpers.support import run_script


@pytest.fixture(scope="module")
def messages(tmp_path_factory):
    """Return what the others raise for each signal; both jobs wait at the same time."""
    folder = tmp_path_factory.mktemp("stores")
    signals = ("SIGKILL", "SIGSTOP")
    with ThreadPoolExecutor(len(signals)) as pool:
        found = pool.map(lambda how: run_script("lost_ranks.py", how, folder / how), signals)
        return dict(zip(signals, found, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("how", ["SIGKILL", "SIGSTOP"])
def test_a_rank_that_is_lost_is_named_by_every_collective_call(how, messages):
    ranks = messages[how]
    assert len(ranks) == 2
    for found in ranks:
        for name, path in {
            "find_threshold": "sampling.find_threshold",
            "digest": "debug.digest",
            "assert_ranks_agree": "debug.check",
        }.items():
            start, _, rest = found[name].partition(", and ")
            assert start == f"fastseed.{path}: a collective call failed"
            # In the second call the other rank may still wait for the time limit.
            names = r"rank 2" if name == "find_threshold" else r"ranks? ([01], )?2"
            assert re.match(rf"{names} did not answer within 5 seconds: look there", rest), found
