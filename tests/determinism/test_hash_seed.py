"""Which seed Python hashes with, found out from the hashes."""

from __future__ import annotations

import os
import sys

import pytest
from helpers.support import run_python

from fastseed.determinism import hash_seed

PROGRAM = """
import json, os, sys
sys.path.insert(0, {folder!r})
import hash_seed
{before}
print(json.dumps([hash_seed.found(), [hash_seed.in_use(s) for s in {seeds}]]))
"""
SEEDS = [0, 1, 7, 20191015, 2**31, 2**32 - 1]


def found(*options, before="", **environment):
    """What a new Python finds; without torch, so that it is quick."""
    folder = os.path.dirname(hash_seed.__file__)
    program = PROGRAM.format(folder=folder, before=before, seeds=SEEDS)
    text = run_python(*options, "-c", program, **environment)
    return [tuple(one) for one in __import__("json").loads(text)]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_seed_is_told_from_all_others(seed):
    held, in_use = found(PYTHONHASHSEED=str(seed))
    assert held == (str(seed), seed)
    assert in_use == tuple(one == seed for one in SEEDS)


def test_random_is_none():
    held, in_use = found(PYTHONHASHSEED="random")
    assert held == ("random", None) and not any(in_use)


def test_a_variable_set_in_the_script_is_not_in_use():
    held, _ = found(before="os.environ['PYTHONHASHSEED'] = '8'", PYTHONHASHSEED="random")
    assert held == ("8", None)


@pytest.mark.skipif(not os.path.exists("/proc/self/environ"), reason="no /proc")
@pytest.mark.parametrize("change", ["= '8'", None])
def test_what_the_process_was_started_with_is_in_use(change):
    before = (
        f"os.environ['PYTHONHASHSEED'] {change}" if change else "del os.environ['PYTHONHASHSEED']"
    )
    held, _ = found(before=before, PYTHONHASHSEED="7")
    assert held == ("8" if change else None, 7)


@pytest.mark.parametrize("option", ["-E", "-I"])
def test_a_python_that_ignores_the_variable_is_seen_through(option):
    held, in_use = found(option, PYTHONHASHSEED="7")
    assert held == ("7", None) and not any(in_use)


@pytest.mark.parametrize(
    "text, seed",
    [
        *((str(seed), seed) for seed in SEEDS),
        *(("007", 7), ("random", None), ("", None), (None, None), ("-1", None), ("1.0", None)),
        *(("٣", None), (str(2**32), None), ("9" * 5000, None), (" 1", None)),
    ],
)
def test_values_of_the_variable(text, seed):
    assert hash_seed.parse(text) == seed


def test_another_hash_function_is_unknown(monkeypatch):
    """Then the variable is believed, unless Python ignores it."""
    monkeypatch.setattr(hash_seed, "_ROUNDS", {})
    monkeypatch.setenv("PYTHONHASHSEED", "12")
    assert hash_seed.in_use(12) is None
    expected = None if sys.flags.ignore_environment else 12
    assert hash_seed.found() == ("12", expected)
