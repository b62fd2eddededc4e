"""The determinism section of a configuration: its values, and their application."""

import json
import random
import re
import sys
import types

import numpy as np
import pytest
from helpers.paths import ROOT
from helpers.support import snapshot

import fastseed
from fastseed._utils import environ
from fastseed.determinism import apply_config, hash_seed, variables
from fastseed.determinism.switches import SET, TOO_LATE, UNAVAILABLE, UNCHANGED

END = {"python_seed": 2**32, "random_seed": 2**64, "numpy_seed": 2**32, "tf_seed": 2**63}


@pytest.fixture(autouse=True)
def tensorflow(monkeypatch):
    """Return the seeds that TensorFlow gets."""
    seeds = []
    module = types.ModuleType("tensorflow")
    module.random = types.SimpleNamespace(set_seed=seeds.append)
    monkeypatch.setitem(sys.modules, "tensorflow", module)
    return seeds


def apply(**keys):
    return apply_config({"epochs": 1240, "determinism": keys, "train": {"a": [1, {}]}})


def test_each_library_gets_its_own_seed(tensorflow):
    found = apply(random_seed=123456, numpy_seed=654321, tf_seed=11111)
    assert found == {"random_seed": True, "numpy_seed": True, "tf_seed": True}
    assert random.random() == random.Random(123456).random()
    assert np.random.rand() == np.random.RandomState(654321).rand()
    assert tensorflow == [11111]


def test_a_library_that_is_not_imported_gets_no_seed(monkeypatch):
    monkeypatch.delitem(sys.modules, "tensorflow")
    assert apply(tf_seed=5) == {"tf_seed": False}


@pytest.mark.parametrize("wanted", [8, "8"])
def test_python_seed_is_compared_with_the_one_in_use(monkeypatch, wanted):
    monkeypatch.setattr(hash_seed, "found", lambda: ("8", 8))
    assert apply(python_seed=wanted) == {"python_seed": True}
    monkeypatch.setattr(hash_seed, "found", lambda: ("7", 7))
    assert apply(python_seed=wanted) == {"python_seed": False}


def test_a_wrong_seed_changes_nothing(tensorflow):
    states = snapshot()
    for name, end in END.items():
        with pytest.raises(ValueError, match=rf"determinism\.{name} must be in"):
            apply(**{"random_seed": 9, name: end})
    assert snapshot() == states and tensorflow == []


def test_unknown_keys_and_missing_sections():
    with pytest.raises(ValueError, match=r"must be one of 'python_seed', .*, got 'numpyseed'"):
        apply(numpyseed=1)
    wrong = r"fastseed\.determinism\.apply_config: determinism must be a section"
    for document in ({}, {"determinsm": {}}, {"determinism": None}, {"determinism": [1]}, "c.json"):
        with pytest.raises(ValueError, match=wrong):
            apply_config(document)


TEXT = (ROOT / "docs" / "determinism.md").read_text()


def test_statuses_settings_and_variables_have_rows():
    assert all(f"`{s}`" in TEXT for s in (SET, UNCHANGED, TOO_LATE, UNAVAILABLE))
    for variable in variables.VARIABLES:
        assert re.search(rf"^\| `{variable.name}` \| `{variable.wanted}`", TEXT, re.MULTILINE)
    with fastseed.deterministic() as report:
        settings = [row.setting for row in report.rows if row.wanted is not None]
    table = TEXT.partition("| setting |")[2].partition("\n\n")[0]
    for name in settings:
        shown = name.partition(":")[0].replace("torch.backends.cudnn.benchmark", ".benchmark")
        assert f"`{shown}`" in table, name


def test_the_section_of_clara_is_taken():
    (text,) = re.findall(r"```json\n(.*?)```", TEXT, re.DOTALL)
    document = json.loads(text)
    assert document["determinism"]["python_seed"] == "20191015"
    assert list(apply_config(document)) == list(document["determinism"])


def test_every_variable_has_its_meaning():
    rows = set(re.findall(r"^\| `(FASTSEED_[A-Z_]+)` \| .+ \|$", TEXT, re.MULTILINE))
    values = [value for value in vars(environ).values() if isinstance(value, str)]
    names = {value for value in values if re.fullmatch("FASTSEED_[A-Z_]+", value)}
    assert names and names <= rows
