"""The examples that regenerate noise: one digest of the weights on any layout, and from the log."""

import pytest
from helpers.paths import ROOT
from helpers.processes import run_job


def weights(example, ranks, *arguments):
    """Return the digest that rank 0 prints."""
    rank_0, *_ = run_job(ROOT / "examples" / example, ranks, *arguments, timeout=400)
    return rank_0.stdout.split("weights ")[1].strip()


def compare(tmp_path, steps, layouts):
    log = tmp_path / "mezo.json"
    expected = weights("train_mezo.py", 1, "--steps", steps, "--log", log)
    assert weights("train_mezo.py", 1, "--replay", log) == expected
    for ranks, layout in layouts:
        options = ("--layout", layout, "--steps", steps)
        assert weights("train_mezo.py", ranks, *options) == expected, (ranks, layout)
    assert weights("train_mezo.py", 2, "--layout", "tp", "--replay", log) == expected
    # Losses of a cut product may differ in their last bits: the log of such a run is its own.
    live = weights("train_mezo.py", 2, "--layout", "tp", "--steps", steps, "--log", log)
    assert weights("train_mezo.py", 1, "--replay", log) == live


@pytest.mark.slow
def test_mezo_ends_in_one_digest_and_its_log_too(tmp_path):
    compare(tmp_path, 6, [(2, "fsdp2")])


@pytest.mark.proof
def test_300_steps_of_mezo_on_every_layout(tmp_path):
    compare(tmp_path, 300, [(2, "replicated"), (4, "replicated"), (2, "fsdp2"), (4, "fsdp2")])


@pytest.mark.slow
def test_an_evolution_strategy_exchanges_scores_alone():
    found = {weights("train_evolution.py", ranks, "--generations", 10) for ranks in (1, 4)}
    assert len(found) == 1
