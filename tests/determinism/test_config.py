"""The determinism section of a configuration file: values, files, and its application."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import sys
import types

import numpy as np
import pytest
import torch
from helpers.support import snapshot

import fastseed
from fastseed.determinism import Config, apply_config, config, load_config
from fastseed.determinism.report import SET, TOO_LATE, UNAVAILABLE, UNCHANGED
from fastseed.determinism.switches import deterministic

CLARA = {
    "python_seed": "20191015",
    "random_seed": 123456,
    "numpy_seed": 654321,
    "tf_seed": 11111,
}
WHOLE = {
    **CLARA,
    "torch_seed": 2**63 - 1,
    "master_seed": 42,
    "deterministic": "warn",
}
WRITERS = {
    "json": lambda section: json.dumps({"determinism": section}),
    "yaml": lambda section: (
        "determinism:\n" + "".join(f"  {k}: {json.dumps(v)}\n" for k, v in section.items())
    ),
    "toml": lambda section: (
        "[determinism]\n" + "".join(f"{k} = {json.dumps(v)}\n" for k, v in section.items())
    ),
}


@pytest.fixture(autouse=True)
def no_variables(monkeypatch):
    for name in ("FASTSEED_MASTER_SEED", "FASTSEED_DETERMINISTIC", "FASTSEED_CONFIG"):
        monkeypatch.setenv(name, "")  # so that what a test sets is removed again
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)


@pytest.fixture
def load(tmp_path):
    def load(text, suffix="json"):
        path = tmp_path / f"config.{suffix}"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return load_config(path)

    return load


def section_of(**keys):
    return {"determinism": keys}


# ---------------------------------------------------------------- values


@pytest.mark.parametrize("suffix", WRITERS)
def test_all_keys_in_all_formats(load, suffix):
    found = load(WRITERS[suffix](WHOLE), suffix)
    assert dataclasses.asdict(found) == {**WHOLE, "python_seed": 20191015}


def test_the_rest_of_the_file_is_ignored(load):
    file = {"epochs": 1240, "learning_rate": 1e-4, "determinism": CLARA, "train": {"a": [1, {}]}}
    assert load("\ufeff" + json.dumps(file)) == Config(
        python_seed=20191015, random_seed=123456, numpy_seed=654321, tf_seed=11111
    )
    assert load_config(section_of()) == Config()


@pytest.mark.parametrize("value", [True, False, "warn"])
def test_deterministic(value):
    assert load_config(section_of(deterministic=value)).deterministic is value


HIGHEST = {
    "python_seed": 2**32 - 1,
    "random_seed": 2**64 - 1,
    "numpy_seed": 2**32 - 1,
    "torch_seed": 2**64 - 1,
    "tf_seed": 2**63 - 1,
    "master_seed": 2**64 - 1,
}


@pytest.mark.parametrize("name", HIGHEST)
def test_bounds_and_types(name):
    for value in (0, HIGHEST[name]):
        assert getattr(load_config(section_of(**{name: value})), name) == value
    for value in (-1, HIGHEST[name] + 1):
        with pytest.raises(ValueError, match=rf"fastseed.config: determinism\.{name} must be in"):
            load_config(section_of(**{name: value}))
    for value in (True, 1.0, None, [1], "x", "-1"):
        with pytest.raises(TypeError, match=rf"fastseed.config: determinism\.{name} must be a"):
            load_config(section_of(**{name: value}))


@pytest.mark.parametrize("value", [1, "true", None, []])
def test_other_values_of_deterministic(value):
    with pytest.raises((TypeError, ValueError), match=r"determinism\.deterministic must be"):
        load_config(section_of(deterministic=value))


def test_unknown_keys_and_missing_sections(load):
    for suffix, writer in WRITERS.items():
        with pytest.raises(ValueError, match=r"must be one of 'python_seed', .*, got 'numpyseed'"):
            load(writer({"numpyseed": 1}), suffix)
    for document in ({}, {"determinsm": {}}, {"determinism": None}, {"determinism": [1]}):
        with pytest.raises(ValueError, match=r"fastseed.config: determinism must be a section"):
            load_config(document)


# ---------------------------------------------------------------- files


@pytest.mark.parametrize(
    "suffix, text",
    [
        *(("json", "{"), ("json", ""), ("json", "[]"), ("json", "[" * 100_000)),
        *(("json", '{"determinism": {}, "determinism": {}}'), ("json", b"\xff\xfe{}")),
        *(("json", '{"determinism": {"numpy_seed": NaN}}'), ("toml", "a"), ("toml", b"\xff")),
        *(("toml", "[determinism]\ntf_seed = 1\ntf_seed = 2\n"), ("ini", "")),
        *(("yaml", "a: b: c"), ("yaml", ""), ("yaml", "[" * 100_000), ("yaml", "a: \x00")),
        ("yaml", "determinism: {tf_seed: !!python/object/apply:os.system [echo]}"),
    ],
)
def test_damaged_files(load, suffix, text):
    with pytest.raises(ValueError, match=r"^fastseed.config: "):
        load(text, suffix)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(FileNotFoundError):
        load_config(tmp_path / "gone.json")
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "huge.toml").touch()
    os.truncate(tmp_path / "huge.toml", 10 << 30)
    os.mkfifo(tmp_path / "pipe.yaml")
    for name in ("folder.json", "pipe.yaml"):
        with pytest.raises(ValueError, match=r"^fastseed.config: '.*' must be a regular file$"):
            load_config(tmp_path / name)
    with pytest.raises(ValueError, match="must be a file of at most 67108864 bytes"):
        load_config(tmp_path / "huge.toml")
    with pytest.raises(TypeError, match=r"source must be a path or a document, got 3 of type int"):
        load_config(3)


@pytest.mark.parametrize("name, suffix", [("yaml", "yaml"), ("tomllib", "toml")])
def test_a_missing_library_names_its_extra(load, monkeypatch, name, suffix):
    monkeypatch.setitem(sys.modules, "tomli", None)
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=rf'pip install "fastseed\[{suffix}\]"'):
        load("", suffix)


# ---------------------------------------------------------------- apply_config


@pytest.fixture
def tensorflow(monkeypatch):
    """Return the seeds that TensorFlow gets."""
    seeds = []
    module = types.ModuleType("tensorflow")
    module.random = types.SimpleNamespace(set_seed=seeds.append)
    monkeypatch.setitem(sys.modules, "tensorflow", module)
    return seeds


def numbers():
    return random.random(), np.random.rand(), torch.rand(()).item()


def test_each_library_gets_its_own_seed(tensorflow):
    report = apply_config(Config(random_seed=123456, numpy_seed=654321, torch_seed=5, tf_seed=111))
    assert numbers() == (
        random.Random(123456).random(),
        np.random.RandomState(654321).rand(),
        torch.rand((), generator=torch.Generator().manual_seed(5)).item(),
    )
    assert tensorflow == [111]
    assert [(row.setting, row.now, row.status) for row in report.rows] == [
        ("random_seed", 123456, SET),
        ("numpy_seed", 654321, SET),
        ("torch_seed", 5, SET),
        ("tf_seed", 111, SET),
    ]


def test_absent_keys_change_nothing():
    states = snapshot()
    assert apply_config(Config()).rows == ()
    assert apply_config(Config(deterministic=False)).rows == ()
    assert snapshot() == states and not torch.are_deterministic_algorithms_enabled()


def test_the_whole_section(monkeypatch):
    """The master seed is that of init; the seeds of libraries hold until init."""
    with deterministic():
        report = apply_config(Config(1, "warn", 42, 2, 3, 4, 5))
        assert torch.is_deterministic_algorithms_warn_only_enabled()
    assert report["tf_seed"].status == UNAVAILABLE
    assert report["master_seed"].status == SET and report["python_seed"].wanted == 1
    assert random.random() == random.Random(2).random()
    fastseed.init()
    assert fastseed.get_master_seed() == 42
    found = numbers()
    fastseed.init(42)
    assert numbers() == found
    for backend in (torch.backends.cuda,):
        backend.enable_flash_sdp(True)
        backend.enable_mem_efficient_sdp(True)


def test_python_seed_is_compared_with_the_one_in_use(monkeypatch, caplog):
    monkeypatch.setattr(config.hash_seed, "found", lambda: ("7", 7))
    assert apply_config(Config(python_seed=7))["python_seed"].status == UNCHANGED
    assert not caplog.records
    report = apply_config(Config(python_seed=8))
    assert report["python_seed"][1:5] == (8, "7", 7, TOO_LATE) and not report.ok
    assert "python_seed is too late" in caplog.text


def test_files_and_the_variable(tmp_path, monkeypatch):
    path = tmp_path / "c.json"
    path.write_text(json.dumps(section_of(random_seed=9)))
    for source in (path, str(path)):
        assert apply_config(source)["random_seed"].now == 9
    monkeypatch.setenv("FASTSEED_CONFIG", str(path))
    assert apply_config()["random_seed"].now == 9


def test_errors_change_nothing(tmp_path, monkeypatch):
    path = tmp_path / "c.json"
    path.write_text(json.dumps(section_of(random_seed=9, numpy_seed=-1)))
    monkeypatch.setitem(sys.modules, "tensorflow", types.ModuleType("tensorflow"))
    states = snapshot()
    with pytest.raises(ValueError, match=r"determinism\.numpy_seed must be"):
        apply_config(path)
    with pytest.raises(AttributeError, match="tensorflow"):  # its import is under way
        apply_config(Config(random_seed=1, tf_seed=1))
    with pytest.raises(RuntimeError, match=r"fastseed.apply_config: start with `fastseed run --co"):
        apply_config()
    assert snapshot() == states
