"""The plan: arguments that are refused before anything runs, and what each experiment gets."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from fastseed.tools import verify
from fastseed.tools.verify.plan import plan

COMMAND = ["x", "{epochs}", "{checkpoint}", "[", "{resume}", "or", "{seed}", "]"]
RUN = Path("/r")


class Unreadable:
    def __repr__(self):
        raise RuntimeError("no repr")


def argument(says: str, **arguments):
    return pytest.param(arguments, says, id=f"{[*arguments][-1]}-{says[:50]}")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        argument("epochs must be an integer, got '4' of type str", epochs="4"),
        argument("epochs must be an integer, got True of type bool", epochs=True),
        argument("epochs must be an integer, got 4.0 of type float", epochs=4.0),
        argument("epochs must be in [2, 2147483647], got 1", epochs=1),
        argument("epochs must be in [2, 2147483647], got 2147483648", epochs=2**31),
        argument("epochs must be in [2, 2147483647], got a int without a repr", epochs=10**5000),
        argument("runs must be in [1, 10000], got 0", runs=0),
        argument("runs must be in [1, 10000], got 10001", runs=10_001),
        argument("runs must be an integer, got nan of type float", runs=float("nan")),
        argument("jobs must be in [1, 4096], got 0", jobs=0),
        argument("jobs must be an integer, got None of type NoneType", jobs=None),
        argument("seed must be in [0, 18446744073709551615], got -1", seed=-1),
        argument("seed must be in [0, 18446744073709551615], got 18446744073709551616", seed=2**64),
        argument("seed must be an integer, got '٣' of type str", seed="٣"),
        argument("control must be True or False, got 'no' of type str", control="no"),
        argument("probe must be True or False, got 1 of type int", probe=1),
        argument("restart must be True or False, got 'no' of type str", restart="no"),
        argument("deterministic must be True, False or 'warn', got 1", deterministic=1),
        argument("deterministic must be True, False or 'warn', got 'Warn'", deterministic="Warn"),
        argument(
            "deterministic must be True, False or 'warn', got array([1, 1])",
            deterministic=np.array([1, 1]),
        ),
        argument("log must be a path, got 3 of type int", log=3),
        *(
            argument(
                f"log must be a path below {{run}}, as metrics/rank0.jsonl, got {log!r}", log=log
            )
            for log in ("", ".", "/x", "../x", "a/../../x", "a\0b", "**x")
        ),
        argument(
            "format must be one of ('jsonl', 'dlll', 'csv', 'tensorboard', 'regex'), got 'json'",
            format="json",
        ),
        argument("format must be a string, got 3 of type int", format=3),
        argument("value must be a string, got None of type NoneType", value=None),
        argument("value must be the name of what is read, got ''", value=""),
        argument("step must be a string, got 3 of type int", step=3),
        argument("step must be keys, separated by commas, got 'a,,b'", step="a,,b"),
        argument(
            "step must be None with 'dlll', which names its steps, got 'a'",
            format="dlll",
            step="a",
        ),
        argument(
            "step must be None with 'regex', which names its steps, got 'a'",
            step="a",
            pattern="(x)",
        ),
        argument("pattern must be a string, got b'(x)' of type bytes", pattern=b"(x)"),
        argument(
            "pattern must be a regular expression, got '(' "
            "(missing ), unterminated subpattern at position 0)",
            pattern="(",
        ),
        argument(
            "pattern must have a group named 'value', as in (?P<value>[0-9.]+), or no other than "
            "its one, got 'x'",
            pattern="x",
        ),
        argument("pattern must be given with 'regex', got None", format="regex"),
        argument("pattern must be None with 'csv', got '(x)'", format="csv", pattern="(x)"),
        argument(
            "require must be 'bit-identical' or 'variance', got ['variance']",
            require=["variance"],
        ),
        argument("require must be 'bit-identical' or 'variance', got ''", require=""),
        argument("timeout must be a number of seconds, got '3' of type str", timeout="3"),
        argument("timeout must be a number of seconds, got True of type bool", timeout=True),
        *(
            argument(f"timeout must be in (0, 2.592e+06] seconds, got {says}", timeout=value)
            for value, says in (
                (0, "0"),
                (-1.0, "-1.0"),
                (float("nan"), "nan"),
                (float("inf"), "inf"),
                (10**5000, "a int without a repr"),
            )
        ),
        argument("progress must be callable, got 3", progress=3),
        argument("directory must be a path, got 3 of type int", directory=3),
        argument("directory must be a path, got b'x' of type bytes", directory=b"x"),
        argument("directory must be a path, got ''", directory=""),
        argument("directory must be a path, got 'a\\x00b'", directory="a\0b"),
        argument(
            "command must have {epochs} or [ … {stop} ]: a half run would be a whole one, got "
            "neither",
            command=["x", "{checkpoint}"],
        ),
        argument(
            "command must have {checkpoint} or [ … {resume} ]: a resumed run would begin anew, got "
            "neither",
            command=["x", "{epochs}"],
        ),
        argument(
            "command must have {stop} between [ and ], since only half runs have one, got it "
            "outside",
            command=["x", "{stop}", "{run}"],
        ),
        argument(
            "command must have {resume} between [ and ], since only resumed runs have one, got it "
            "outside",
            command=["x", "{epochs}", "{resume}"],
        ),
        argument(
            "command must have {seed} between [ and ], since unseeded runs have none (or "
            "control=False, for a script that always has one), got it outside",
            command=["x", "{epochs}", "{run}", "{seed}"],
        ),
        argument(
            "command must have {epochs} or {stop} where half runs take it, got the same command "
            "for them: ['x', '{run}', '[', '{seed}', 'or', '{stop}', ']']",
            command=["x", "{run}", "[", "{seed}", "or", "{stop}", "]"],
        ),
        argument(
            "control must be True or False, got a Unreadable without a repr of type Unreadable",
            control=Unreadable(),
        ),
    ],
)
def test_wrong_arguments(arguments, says, tmp_path):
    given = {"command": COMMAND, "directory": tmp_path / "runs", "epochs": 4, **arguments}
    with pytest.raises((TypeError, ValueError)) as found:
        verify.verify(given.pop("command"), **given)
    assert str(found.value) == f"fastseed.tools.verify: {says}"
    assert ("of type" in says) == (found.type is TypeError) or "callable" in says
    assert not (tmp_path / "runs").exists()


def test_what_the_places_become_in_each_experiment():
    asked = plan(COMMAND, epochs=np.int64(7), seed=5)
    rest = {"total": "7", "run": "/r", "checkpoint": "/r/checkpoint"}
    assert asked.values("whole", RUN) == {"epochs": "7", "seed": "5", **rest}
    assert asked.values("half", RUN) == {"epochs": "3", "stop": "3", "seed": "5", **rest}
    resumed = {"epochs": "7", "seed": "5", "resume": "/r/checkpoint", **rest}
    assert asked.values("resumed", RUN) == resumed
    assert asked.values("unseeded", RUN) == {"epochs": "7", **rest}
    commands = [asked.arguments(name, RUN) for name in asked.experiments()]
    assert [one[1:] for one in commands] == [
        ("7", "/r/checkpoint", "5"),
        ("3", "/r/checkpoint", "5"),
        ("7", "/r/checkpoint", "/r/checkpoint"),
        ("7", "/r/checkpoint"),
    ]


def test_without_a_control_a_seed_may_always_be_there():
    asked = plan(["x", "{epochs}", "{run}", "{seed}"], epochs=2, control=False)
    assert asked.experiments() == ("whole", "half", "resumed")
    assert asked.arguments("half", RUN) == ("x", "1", "/r", "0")


def test_the_environment_of_each_experiment():
    base = {
        "HOME": "/h", "PYTHONHASHSEED": "77", "FASTSEED_MASTER_SEED": "99",
        "FASTSEED_RUN_DIR": "/elsewhere", "PL_GLOBAL_SEED": "11",
    }  # fmt: skip
    kept = dict(base)
    asked = plan(COMMAND, epochs=4, seed=2**32 + 5)
    for experiment in ("whole", "half", "resumed"):
        assert asked.environment(experiment, RUN, base) == {
            "HOME": "/h", "PYTHONHASHSEED": "5", "FASTSEED_MASTER_SEED": str(2**32 + 5),
            "FASTSEED_RUN_DIR": "/r", "PL_GLOBAL_SEED": "11",
        }  # fmt: skip
    assert asked.environment("unseeded", RUN, base) == {
        "HOME": "/h", "PYTHONHASHSEED": "random", "FASTSEED_RUN_DIR": "/r",
    }  # fmt: skip
    assert base == kept
    assert asked.environment("whole", RUN, {})["PYTHONHASHSEED"] == "5"


@pytest.mark.parametrize(("asked", "says"), [(True, "1"), ("warn", "warn")])
def test_determinism_goes_for_all_experiments(asked, says):
    for experiment in verify.EXPERIMENTS:
        new = plan(COMMAND, epochs=4, deterministic=asked).environment(experiment, RUN, {})
        assert new["FASTSEED_DETERMINISTIC"] == says
        assert new["CUBLAS_WORKSPACE_CONFIG"] in (":4096:8", ":16:8")
        assert ("FASTSEED_MASTER_SEED" in new) == (experiment != "unseeded")
    plain = plan(COMMAND, epochs=4).environment("whole", RUN, {})
    assert set(plain) == {"PYTHONHASHSEED", "FASTSEED_MASTER_SEED", "FASTSEED_RUN_DIR"}


def test_logs_below_the_run():
    for log, kept in ((None, None), ("a//b/./c", "a/b/c"), (Path("a[0].jsonl"), "a[0].jsonl")):
        assert plan(COMMAND, epochs=4, log=log).log == kept
    assert plan(COMMAND, epochs=4, log="lightning_logs/**/m*.csv").log is not None


def test_the_plan_as_json_comes_back():
    asked = plan(["x", "é\udc80", "{epochs}", "{run}"], epochs=4, deterministic="warn")
    assert json.loads(json.dumps(asked.document())) == asked.document()
    assert os.fsencode(asked.command[1]) == b"\xc3\xa9\x80"
