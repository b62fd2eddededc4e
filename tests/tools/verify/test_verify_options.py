"""Options: refused before anything runs; the command and the variables of each experiment."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fastseed.tools import verify

COMMAND = ["x", "{epochs}", "{checkpoint}", "[", "{resume}", "or", "{seed}", "]"]
RUN = Path("/r")


def options(**given) -> verify.Options:
    return verify.Options(**{"command": COMMAND, "directory": "runs", "epochs": 4, **given})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"epochs": "4"}, "epochs must be an integer, got '4' of type str"),
        ({"epochs": 1}, "epochs must be in [2, 2147483647], got 1"),
        ({"runs": 10_001}, "runs must be in [1, 10000], got 10001"),
        ({"jobs": None}, "jobs must be an integer, got None of type NoneType"),
        ({"seed": 2**64}, "seed must be in [0, 18446744073709551615], got 18446744073709551616"),
        ({"baseline": "no"}, "baseline must be a bool, got 'no' of type str"),
        ({"deterministic": "warn"}, "deterministic must be a bool, got 'warn' of type str"),
        ({"log": 3}, "log must be a string, got 3 of type int"),
        *(
            (
                {"log": log},
                f"log must be a path below {{run}}, such as metrics/rank0.jsonl, got {log!r}",
            )
            for log in ("/x", "a/../../x")
        ),
        ({"value": ""}, "value must be a non-empty string, got ''"),
        ({"step": 3}, "step must be a string, got 3 of type int"),
        ({"timeout": "3"}, "timeout must be a number, got '3' of type str"),
        ({"timeout": 0}, "timeout must be in [0.001, 2592000.0], got 0"),
        ({"directory": 3}, "directory must be a path, got 3 of type int"),
        ({"command": ["x", "{checkpoint}"]}, "command must have {epochs} or [ {stop} ], to stop"),
        ({"command": ["x", "{epochs}"]}, "command must have {checkpoint} and [ {resume} ], to re"),
        ({"command": ["x", "{stop}", "{run}"]}, "command must have {stop} between [ and ], since"),
        ({"command": ["x", "{epochs}", "{resume}"]}, "command must have {resume} between [ and ]"),
        (
            {"command": ["x", "{epochs}", "{run}", "{seed}"]},
            "command must have {seed} between [ and ], since unseeded runs lack it (or baseline=F",
        ),
    ],
)
def test_wrong_options(given, message):
    with pytest.raises((TypeError, ValueError)) as error:
        options(**given)
    assert str(error.value).startswith(f"fastseed.tools.verify: {message}")
    assert ("of type" in str(error.value)) == (error.type is TypeError)


def test_wrong_arguments_of_verify():
    with pytest.raises(TypeError, match="options must be Options, got 3 of type int"):
        verify.verify(3)
    with pytest.raises(TypeError, match="progress must be callable, got 3 of type int"):
        verify.verify(options(), 3)


def test_commands():
    asked = options(epochs=np.int64(7), seed=5)
    assert [asked.fill(name, RUN)[1:] for name in asked.experiments] == [
        ("7", "/r/checkpoint", "5"),
        ("3", "/r/checkpoint", "5"),
        ("7", "/r/checkpoint", "/r/checkpoint"),
        ("7", "/r/checkpoint"),
    ]
    schedule = options(command=["x", "{total}", "[", "{stop}", "]", "{run}"])
    assert schedule.fill("truncated", RUN) == ("x", "4", "2", "/r")
    assert schedule.fill("uninterrupted", RUN) == ("x", "4", "/r")
    fixed = options(command=["x", "{epochs}", "{run}", "{seed}"], baseline=False)
    assert fixed.fill("truncated", RUN) == ("x", "2", "/r", "0") and len(fixed.experiments) == 3


def test_variables(monkeypatch):
    base = {
        "HOME": "/h", "PYTHONHASHSEED": "77", "FASTSEED_MASTER_SEED": "99",
        "FASTSEED_RUN_DIR": "/elsewhere", "PL_GLOBAL_SEED": "11",
    }  # fmt: skip
    monkeypatch.setattr("os.environ", base)
    asked = options(seed=2**32 + 5)
    for experiment in verify.EXPERIMENTS[:3]:
        assert asked.variables(experiment, RUN) == {
            "HOME": "/h", "PYTHONHASHSEED": "5", "FASTSEED_MASTER_SEED": str(2**32 + 5),
            "FASTSEED_RUN_DIR": "/r", "PL_GLOBAL_SEED": "11",
        }  # fmt: skip
    assert asked.variables("unseeded", RUN) == {
        "HOME": "/h", "PYTHONHASHSEED": "random", "FASTSEED_RUN_DIR": "/r",
    }  # fmt: skip
    for experiment in verify.EXPERIMENTS:
        found = options(deterministic=True).variables(experiment, RUN)
        assert found["FASTSEED_DETERMINISTIC"] == "1" and "CUBLAS_WORKSPACE_CONFIG" in found


def test_options_as_json():
    asked = options(command=["x", "é\udc80", "{epochs}", "{run}"], log="a/b")
    assert json.loads(json.dumps(asked.document())) == asked.document()
