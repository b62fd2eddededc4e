"""Hundreds of kills in simulated time: what the chain of checkpoints has trained."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import rollout_cursors
from helpers.rollout_jobs import ByLedger, Job, length_of
from scipy.stats import chi2_contingency

PROMPTS, SAMPLES = 500, 2
UNITS = PROMPTS * SAMPLES


def by_ledger(seed: int = 1, *, kills: int = 10**6, **options: Any) -> Job:
    options = {"prompts": PROMPTS, "batch_size": 4, "samples": SAMPLES, **options}
    ledgers: list[ByLedger] = []

    def start(now: list[float], state: Any) -> ByLedger:
        for ledger in ledgers:
            ledger.ledger.close()  # as a process that is killed does
        ledgers.append(ByLedger(now, options, state))
        return ledgers[-1]

    found = Job(start, kills=kills, seed=seed).run()
    ledgers[-1].ledger.close()
    return found


def is_complete(job: Job, units: int = UNITS) -> bool:
    """Return whether each unit was trained once, in the chain that led to the result."""
    trained = job.trained()
    return len(trained) == units and set(trained.values()) == {1}


@functools.cache
def uninterrupted(lag: int) -> Job:
    return by_ledger(kills=0, lag=lag)


@pytest.mark.parametrize("lag", [0, 2])
@pytest.mark.parametrize("seed", [1, 2])
def test_strict_batches_and_weights_are_those_without_kills(lag, seed):
    killed, whole = by_ledger(seed, lag=lag), uninterrupted(lag)
    assert sum(killed.killed.values()) > 80 and len(killed.killed) == 5  # at each point
    assert is_complete(killed) and killed.changed == 0
    assert killed.chain == whole.chain
    assert killed.weights[max(killed.weights)] == whole.weights[max(whole.weights)]
    assert sum(killed.generated.values()) > UNITS  # work was repeated


def test_a_window_trains_each_unit_once():
    killed = by_ledger(window=3, lag=2)
    assert is_complete(killed) and killed.chain != uninterrupted(2).chain
    assert killed.changed > 0  # without a file, other prompts come first the second time


@pytest.mark.parametrize("window", [1, 3])
def test_a_file_of_results_gives_the_same_batches_and_keeps_them(window, tmp_path):
    file: dict[str, Path] = {"results": tmp_path / "results"}
    options = {"prompts": 200, "window": window, "lag": 2}
    kept, lost = by_ledger(3, **options, **file), by_ledger(3, **options)
    for job in (kept, lost):
        assert sum(job.killed.values()) > 30 and is_complete(job, 200 * SAMPLES)
    assert kept.changed == 0
    again = [sum(job.generated.values()) / 400 for job in (kept, lost)]
    assert again[0] < again[1]  # less work was repeated


# ---------------------------------------------------------------- cursors of two frameworks

CURSOR_UNITS = 5000
BINS = [1, 2, 3, 5, 9, 17, 65, 401]


def by_cursor(kind: str, *, kills: int = 60, rate: float = 0.01) -> Job:
    cursor = getattr(rollout_cursors, kind)

    def start(now: list[float], state: str | None) -> rollout_cursors.Cursor:
        return cursor(CURSOR_UNITS, 8, state)

    return Job(start, kills=kills, seed=1, rate=rate, producers_die=False).run()


def repeated(job: Job) -> int:
    """Return how often a rollout was trained again."""
    return sum(count - 1 for count in job.trained().values())


def p_value_of_lengths(one: Iterable[int], other: Iterable[int]) -> float:
    """Return the chi-square probability that the lengths of these rollouts are alike."""
    table = [np.histogram([length_of(n) for n in numbers], BINS)[0] for numbers in (one, other)]
    return float(chi2_contingency(table).pvalue)


def lost(job: Job) -> list[int]:
    trained = job.trained()
    return [number for number in range(CURSOR_UNITS) if number not in trained]


@pytest.mark.proof
def test_a_cursor_of_the_first_untrained_prompt_repeats_and_loses():
    """TRL 1.16: what is too old is lost, and holds the saved position back."""
    whole, killed = by_cursor("TrlCursor", kills=0), by_cursor("TrlCursor")
    assert len(lost(whole)) > 50 and repeated(whole) == 0
    assert p_value_of_lengths(whole.trained(), lost(whole)) < 1e-6  # the long ones
    assert repeated(killed) > CURSOR_UNITS / 10 and killed.changed > 0


@pytest.mark.proof
def test_a_live_cursor_loses_what_is_under_way():
    """NeMo-RL before its frontier: the long ones again, at each restart."""
    assert not lost(by_cursor("NemoLiveCursor", kills=0))
    killed = by_cursor("NemoLiveCursor", kills=200, rate=0.04)
    assert len(lost(killed)) > CURSOR_UNITS / 20 and repeated(killed) == 0
    assert p_value_of_lengths(killed.trained(), lost(killed)) < 1e-6


@pytest.mark.proof
def test_a_frontier_with_what_is_covered_loses_nothing_and_replays_nothing():
    """NeMo-RL after it: each prompt once, but a restart makes other batches."""
    killed = by_cursor("NemoFrontier")
    assert not lost(killed) and repeated(killed) == 0 and killed.changed > 0
