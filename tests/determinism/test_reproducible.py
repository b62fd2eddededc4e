"""fastseed.enforce_reproducibility."""

import logging
import random
import sys
import types

import numpy as np
import pytest
import torch
import torch._inductor.config as inductor
from helpers.support import reference_narrow_seed, snapshot

import fastseed
from fastseed.determinism.switches import deterministic


@pytest.fixture(autouse=True)
def put_back(monkeypatch):
    """Restore the switches that enforce_reproducibility leaves set."""
    for name in ("FASTSEED_MASTER_SEED", "FASTSEED_DETERMINISTIC"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    with deterministic():
        torch.use_deterministic_algorithms(False)
        torch.backends.cudnn.deterministic = False
        torch.backends.cudnn.benchmark = True
        yield


def switches():
    cudnn = torch.backends.cudnn
    return (
        *(torch.are_deterministic_algorithms_enabled(), inductor.deterministic),
        *(
            torch.is_deterministic_algorithms_warn_only_enabled(),
            torch.backends.mkldnn.deterministic,
        ),
        *(cudnn.deterministic, cudnn.benchmark, torch.backends.cuda.cudnn_sdp_enabled()),
        torch.utils.deterministic.fill_uninitialized_memory,
    )


def drawn():
    return random.random(), np.random.rand(), torch.rand(()).item()


def test_without_a_seed_one_is_drawn_and_nothing_gets_slower(capsys):
    before = switches()
    first = fastseed.enforce_reproducibility()
    numbers = drawn()
    second = fastseed.enforce_reproducibility()
    assert first != second and drawn() != numbers
    assert switches() == before
    assert capsys.readouterr().err == f"Using seed: {first}\nUsing seed: {second}\n"


def test_the_line_says_what_repeats_the_run():
    seed = fastseed.enforce_reproducibility()
    numbers = drawn()
    assert fastseed.enforce_reproducibility(seed) == seed == fastseed.get_master_seed()
    assert drawn() == numbers


def test_a_log_that_takes_the_line_gets_it(caplog, capsys):
    with caplog.at_level(logging.INFO, "fastseed"):
        fastseed.enforce_reproducibility(2**64 - 1)
    assert f"Using seed: {2**64 - 1}" in caplog.messages
    assert "Using seed" not in capsys.readouterr().err


@pytest.mark.parametrize("warn_only", [False, True])
def test_with_a_seed_it_is_deterministic(warn_only):
    assert fastseed.enforce_reproducibility(7, warn_only=warn_only) == 7
    assert switches()[:6] == (True, True, warn_only, True, True, False)
    numbers = drawn()
    fastseed.init(7)
    fastseed.reseed(0)
    assert drawn() == numbers


def test_rank_0_alone_speaks(monkeypatch, capsys):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    fastseed.enforce_reproducibility(7)
    assert "Using seed" not in capsys.readouterr().err


def test_the_environments_seed_is_taken_without_the_switches(monkeypatch):
    monkeypatch.setenv("FASTSEED_MASTER_SEED", "99")
    before = switches()
    assert fastseed.enforce_reproducibility() == 99
    assert switches() == before


@pytest.mark.parametrize(("name", "function"), [("tensorflow", "set_seed"), ("cupy", "seed")])
def test_a_library_that_is_imported_is_seeded(monkeypatch, caplog, name, function):
    seeds = []
    library = types.ModuleType(name)
    library.random = types.SimpleNamespace(**{function: seeds.append})
    monkeypatch.setitem(sys.modules, name, library)
    fastseed.enforce_reproducibility(7)
    assert seeds == [reference_narrow_seed(name, master=7, task=0)]
    caplog.clear()
    fastseed.register_generator(seeds.append, name="mine")
    fastseed.enforce_reproducibility(7)
    (message,) = [text for text in caplog.messages if "drops" in text]
    assert "['mine']" in message  # the library is registered again


def test_a_wrong_seed_changes_nothing():
    before, states = switches(), snapshot()
    with pytest.raises(ValueError, match=r"fastseed.enforce_reproducibility: seed must be"):
        fastseed.enforce_reproducibility(2**64)
    with pytest.raises(TypeError, match="warn_only must be a bool"):
        fastseed.enforce_reproducibility(1, warn_only=1)
    assert switches() == before and snapshot() == states
