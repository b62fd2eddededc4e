"""enforce_reproducibility and apply_config."""

from __future__ import annotations

import json
import logging
import random
import sys
import types

import numpy as np
import pytest
import torch
import torch._inductor.config as inductor
from helpers.support import snapshot

import fastseed
from fastseed.determinism.config import Config
from fastseed.determinism.report import ABSENT, ALREADY, LATE, SEEN, SET
from fastseed.determinism.switches import deterministic


@pytest.fixture(autouse=True)
def put_back(monkeypatch):
    """What these functions leave on, on purpose."""
    for name in ("FASTSEED_MASTER_SEED", "FASTSEED_DETERMINISTIC", "FASTSEED_CONFIG"):
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
    assert fastseed.get_master_seed() == 7


def test_it_is_init_and_reseed():
    fastseed.enforce_reproducibility(7)
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


def test_tensorflow_that_is_imported_is_seeded(monkeypatch):
    seeds = []
    tensorflow = types.ModuleType("tensorflow")
    tensorflow.random = types.SimpleNamespace(set_seed=seeds.append)
    monkeypatch.setitem(sys.modules, "tensorflow", tensorflow)
    fastseed.enforce_reproducibility(7)
    assert seeds == [fastseed.derive_key("tensorflow", task=0) % 2**31]


@pytest.mark.parametrize(
    "seed, error", [(-1, ValueError), (2**64, ValueError), ("1", TypeError), (True, TypeError)]
)
def test_a_wrong_seed_changes_nothing(seed, error):
    before, states = switches(), snapshot()
    with pytest.raises(error, match=r"fastseed.enforce_reproducibility: seed must be"):
        fastseed.enforce_reproducibility(seed)
    with pytest.raises(TypeError, match="warn_only must be a bool"):
        fastseed.enforce_reproducibility(1, warn_only=1)
    assert switches() == before and snapshot() == states


# ---------------------------------------------------------------- apply_config


def test_explicit_seeds_are_each_librarys_own(monkeypatch):
    seeds = []
    tensorflow = types.ModuleType("tensorflow")
    tensorflow.random = types.SimpleNamespace(set_seed=seeds.append)
    monkeypatch.setitem(sys.modules, "tensorflow", tensorflow)
    config = Config(random_seed=123456, numpy_seed=654321, torch_seed=5, tf_seed=11111)
    report = fastseed.determinism.apply_config(config)
    assert drawn() == (
        random.Random(123456).random(),
        np.random.RandomState(654321).rand(),
        torch.rand((), generator=torch.Generator().manual_seed(5)).item(),
    )
    assert seeds == [11111]
    assert [(row.setting, row.now, row.status) for row in report.rows] == [
        ("random_seed", 123456, SET),
        ("numpy_seed", 654321, SET),
        ("torch_seed", 5, SET),
        ("tf_seed", 11111, SET),
    ]


def test_what_is_not_named_is_left_alone():
    before, states = switches(), snapshot()
    assert fastseed.determinism.apply_config(Config()).rows == ()
    report = fastseed.determinism.apply_config(Config(workers=3, deterministic=False))
    assert [(row.setting, row.status) for row in report.rows] == [("workers", SEEN)]
    assert snapshot() == states and switches() == before
    with pytest.raises(RuntimeError, match="init"):
        fastseed.get_master_seed()


def test_the_order(monkeypatch):
    """The master seed goes before the explicit ones, which hold until the next reseed."""
    config = Config(1, "warn", 42, 2, 3, 4, 5, 6)
    report = fastseed.determinism.apply_config(config)
    names = [row.setting for row in report.rows]
    keys = ["master_seed", "random_seed", "numpy_seed", "torch_seed", "tf_seed", "workers"]
    assert names[0] == "python_seed" and [n for n in names if n in keys] == keys
    assert names.index("torch.use_deterministic_algorithms") < names.index("master_seed")
    assert report["tf_seed"].status == ABSENT
    assert torch.is_deterministic_algorithms_warn_only_enabled()
    assert fastseed.get_master_seed() == 42
    assert random.random() == random.Random(2).random()
    fastseed.reseed(0)
    numbers = drawn()
    fastseed.init(42)
    fastseed.reseed(0)
    assert drawn() == numbers


def test_python_seed_is_compared_with_what_python_hashes_with(monkeypatch, caplog):
    monkeypatch.setattr(fastseed.seeder.enforce.hash_seed, "found", lambda: ("7", 7))
    assert fastseed.determinism.apply_config(Config(python_seed=7))["python_seed"].status == ALREADY
    assert not caplog.records
    report = fastseed.determinism.apply_config(Config(python_seed=8))
    assert report["python_seed"][1:5] == (8, "7", 7, LATE) and not report.ok
    assert "python_seed is too late" in caplog.text


def test_files(tmp_path, monkeypatch):
    path = tmp_path / "c.json"
    path.write_text(json.dumps({"determinism": {"random_seed": 9}}))
    for source in (path, str(path)):
        assert fastseed.determinism.apply_config(source)["random_seed"].now == 9
    monkeypatch.setenv("FASTSEED_CONFIG", str(path))
    assert fastseed.determinism.apply_config()["random_seed"].now == 9


def test_errors_change_nothing(tmp_path, monkeypatch):
    path = tmp_path / "c.json"
    path.write_text(json.dumps({"determinism": {"random_seed": 9, "numpy_seed": -1}}))
    monkeypatch.setitem(sys.modules, "tensorflow", types.ModuleType("tensorflow"))
    states = snapshot()
    with pytest.raises(ValueError, match=r"determinism\.numpy_seed must be"):
        fastseed.determinism.apply_config(path)
    with pytest.raises(RuntimeError, match="imported completely"):
        fastseed.determinism.apply_config(Config(random_seed=1, tf_seed=1))
    with pytest.raises(RuntimeError, match=r"fastseed.apply_config: pass a configuration, or"):
        fastseed.determinism.apply_config()
    with pytest.raises(TypeError, match=r"source must be a Config or a path, got \{\}"):
        fastseed.determinism.apply_config({})
    assert snapshot() == states
