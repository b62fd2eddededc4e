"""The test suite itself: hangs become failures, and bounds of pyproject.toml can be installed."""

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from helpers import changed, costs, matrix, mutants, stamps, tiers
from helpers.isolation import unchanged_process
from helpers.paths import ROOT
from helpers.processes import Script, clean_environment
from helpers.ranks import ranks

import fastseed

HANGS = """
import signal, threading, time, pytest

def waits_for_ever():
    threading.Event().wait()

@pytest.mark.timeout(1)
def test_waits():
    threading.Thread(target=waits_for_ever, daemon=True).start()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})  # no handler runs, as in native code
    time.sleep(100)
"""


def test_watchdog_ends_a_test_that_no_signal_ends_with_every_stack(tmp_path):
    (tmp_path / "test_hangs.py").write_text(HANGS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "helpers.watchdog", "-p", "no:xdist"]
    environment = clean_environment()
    environment["PYTHONPATH"] = f"{ROOT / 'tests'}:{environment['PYTHONPATH']}"
    done = subprocess.run(
        [*command, str(tmp_path)], env=environment, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "in waits_for_ever" in done.stderr and "in test_waits" in done.stderr


@pytest.mark.parametrize("fresh", [False, True])
def test_a_script_that_hangs_is_reported_with_its_stack(tmp_path, fresh):
    script = tmp_path / "hangs.py"
    script.write_text(
        "import time\ndef waits_for_ever():\n    time.sleep(1000)\nprint('here', flush=True)\n"
        "waits_for_ever()\n"
    )
    process = Script(script, fresh=fresh)
    with pytest.raises(TimeoutError, match=r"(?s)ran for 2 s\nhere.*in waits_for_ever"):
        process.wait(2)


def fail_or_hang(how):
    if dist.get_rank() == 1:
        assert how != "fail", "of one rank"
        os._exit(3) if how == "end" else time.sleep(100)
    dist.barrier()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("fail", "rank 1:\nTraceback.*AssertionError: of one rank.*rank 0 printed:.*in barrier"),
        ("end", "rank 1:\nended"),
        ("hang", "have not answered in 2 s.*rank 1 printed:.*in fail_or_hang"),
    ],
)
def test_a_rank_that_fails_ends_its_pool_with_its_stack(how, says):
    with pytest.raises(AssertionError, match=f"(?s){says}"):
        ranks(2, fail_or_hang, how, timeout=60 if how == "fail" else 2)
    assert ranks(2, dist.get_rank) == [0, 1]


def initialize():
    fastseed.enforce_reproducibility(7)
    os.environ["RANK"] = "7"


def state():
    switch = torch.are_deterministic_algorithms_enabled()
    return fastseed.derivation.context.seeder, switch, "RANK" in os.environ, torch.rand(3)


def test_a_function_on_ranks_finds_nothing_of_the_one_before():
    before = ranks(2, state)
    ranks(2, initialize)
    assert repr(ranks(2, state)) == repr(before)
    assert before[0][:3] == (None, False, False)


def test_a_test_leaves_no_switch_variable_or_number_behind(monkeypatch):
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    with unchanged_process():
        following = torch.rand(3)
    with unchanged_process():
        fastseed.enforce_reproducibility(7)
        assert torch.are_deterministic_algorithms_enabled()
        assert not torch.equal(torch.rand(3), following)
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    assert not torch.are_deterministic_algorithms_enabled()
    assert "CUBLAS_WORKSPACE_CONFIG" not in os.environ
    assert torch.equal(torch.rand(3), following)


def test_matrix_has_a_lowest_version_of_every_requirement():
    names = {bound.partition("==")[0] for bound in matrix.oldest()}
    pinned = {
        requirement.name
        for requirement in matrix.requirements()
        if any(bound.operator == "==" for bound in requirement.specifier)
    }
    every = {requirement.name for requirement in matrix.requirements()}
    unbounded = {"ninja", "ziglang", "jax"}  # build tools and benchmarks
    assert every - names - pinned == unbounded
    assert "numpy==2.0.*" in matrix.oldest() and "torch==2.10.*" in matrix.oldest()
    assert matrix.oldest_python() == "3.10"


class Item:
    """What `select` asks of a test."""

    def __init__(self, name: str, *marks: str) -> None:
        file, _, inside = name.partition("::")
        self.path, self.nodeid, self.marks = tiers.TESTS / file, f"tests/{name}", [*marks]
        self.add_marker = self.marks.append
        self.name = inside

    def get_closest_marker(self, name: str) -> str | None:
        return name if name in self.marks else None


def config(tier: str, *arguments: str) -> SimpleNamespace:
    return SimpleNamespace(
        getoption=lambda name: tiers._parse(tier),
        args=arguments,
        invocation_params=SimpleNamespace(dir=tiers.TESTS.parent),
        hook=SimpleNamespace(pytest_deselected=lambda items: None),
    )


def selected(*how: str) -> list[str]:
    items = [
        Item("data/test_a.py::fast"),
        Item("data/test_a.py::slow", "slow"),
        Item("csrc/test_b.py::programs"),
        Item("examples/test_c.py::whole"),
        Item("examples/test_c.py::small", "smoke"),
        Item("statistics/test_d.py::proof"),
        Item("statistics/test_d.py::slow", "slow"),
        Item("integrations/test_e.py::trainer"),
    ]
    tiers.select(config(*how), items)
    return [item.name for item in items]


def test_every_folder_of_a_tier_is_there():
    for name in {**tiers.FOLDERS, **tiers.FOLDERS_WITH_SMOKE}:
        assert (tiers.TESTS / name).is_dir(), name


def test_tiers_are_by_mark_then_by_folder_and_the_long_ones_come_first():
    assert selected("fast") == ["fast", "small"]
    assert selected("fast,slow") == ["slow", "whole", "slow", "fast", "small"]
    assert selected("proof") == ["proof"]
    assert selected("native") == ["programs"]
    assert selected("integrations") == ["trainer"]
    assert len(selected("all")) == 8
    with pytest.raises(ValueError, match="--tier must be of fast, slow"):
        tiers._parse("quick")


def test_a_test_that_is_named_runs_whatever_its_tier():
    assert selected("fast", "tests/data/test_a.py::slow") == ["slow", "fast", "small"]
    assert selected("fast", "tests/data/test_a.py") == ["fast", "small"]


@pytest.mark.parametrize(
    "tier, argument, ignored",
    [
        ("fast", "tests", True),
        ("fast", "tests/statistics", None),
        ("fast", "tests/statistics/test_d.py::proof", None),
        ("fast,proof", "tests", None),
    ],
)
def test_folders_of_other_tiers_are_not_imported(tier, argument, ignored):
    asked = config(tier, argument)
    assert tiers.pytest_ignore_collect(tiers.TESTS / "statistics", asked) is ignored
    assert tiers.pytest_ignore_collect(tiers.TESTS / "data", asked) is None
    assert tiers.pytest_ignore_collect(Path("/statistics"), asked) is None


def test_tests_above_the_limit_are_named_the_dearest_first():
    def report(seconds, when="call"):
        properties = [("CPU seconds", seconds)] if seconds else []
        return SimpleNamespace(when=when, user_properties=properties, nodeid=f"{seconds}")

    rows = costs.above([report(0.4), report(0.6), report(2.0), report(9.0, "setup"), report(0)])
    assert rows == [(2.0, "2.0"), (0.6, "0.6")]


@pytest.mark.parametrize("stage", stamps.INPUTS)
def test_a_stamp_holds_until_an_input_changes(stage, tmp_path, monkeypatch):
    monkeypatch.setattr(stamps, "stamp", lambda name: tmp_path / name)
    assert not stamps.holds(stage)
    (tmp_path / stage).write_text(stamps.digest(stage) + "\n")
    assert stamps.holds(stage)
    inputs = stamps.INPUTS[stage]
    monkeypatch.setitem(stamps.INPUTS, stage, (*inputs, "tests/package/test_suite.py"))
    assert not stamps.holds(stage)
    monkeypatch.setitem(stamps.INPUTS, stage, (*inputs, "csrc/gone/*.h"))
    with pytest.raises(FileNotFoundError, match=rf"csrc/gone/\*\.h of {stage}"):
        stamps.digest(stage)


def test_content_changes_a_stamp_but_where_the_name_alone_counts(tmp_path, monkeypatch):
    monkeypatch.setattr(stamps, "ROOT", tmp_path)
    monkeypatch.setitem(stamps.INPUTS, "wheel", ("names of a/**/*", "a/b.py"))
    (tmp_path / "a").mkdir()
    found = []
    for name, text in (("b.py", "1"), ("b.py", "2"), ("c.py", "1"), ("c.py", "2"), ("c.so", "1")):
        (tmp_path / "a" / name).write_text(text)
        found.append(stamps.digest("wheel"))
    assert found[0] != found[1] != found[2] == found[3] == found[4]


SOURCE = '''
LIMIT = 8

def take(a: int = 1, *, b: bool = True) -> int:
    """Return a number."""
    if a < LIMIT and b:
        raise ValueError(f"a must be {1 + 1}")
    (a)  ==  (b)
    note(a)
    return a + 2
'''


def planted(lines: set[int] | None) -> list[str]:
    source = SOURCE.encode()
    found = mutants.faults_of("a.py", source, lines)
    return sorted(fault.planted(source).decode().splitlines()[fault.line - 1] for fault in found)


def test_faults_turn_conditions_move_bounds_and_leave_out_what_happens():
    assert planted(None) == sorted(
        [
            "LIMIT = 9",
            "def take(a: int = 2, *, b: bool = True) -> int:",
            "def take(a: int = 1, *, b: bool = False) -> int:",
            "    if not (a < LIMIT and b):",
            "    if ((a < LIMIT) or (b)):",
            "    if a <= LIMIT and b:",
            "        pass",
            "    (a)  !=  (b)",
            "    pass",
            "    return a - 2",
            "    return a + 3",
        ]
    )
    assert planted({10}) == ["    return a + 3", "    return a - 2"]


def test_a_fault_that_is_not_python_is_not_planted():
    source = b"def f():\n    def g():\n        nonlocal n\n    n = 0\n"
    faults = [fault for fault in mutants.faults_of("a.py", source, {4})]
    assert [mutants.compiles(fault, source) for fault in faults] == [False, True]


@pytest.mark.parametrize(
    "file, tests",
    [
        ("fastseed/data/steps.py", ["tests/data"]),
        ("fastseed/_utils/log.py", ["tests/checkpoint", "tests/package", "tests/utils"]),
        ("fastseed/cli/check.py", ["tests/cli", "tests/debug"]),
        ("tests/nn/test_convert.py", ["tests/nn/test_convert.py"]),
        ("tests/conftest.py", ["tests"]),
        ("README.md", ["tests/docs"]),
        ("CHANGELOG.md", []),
    ],
)
def test_the_tests_of_a_file_are_those_of_its_folder(file, tests):
    assert changed.tests_of([file]) == tests


def test_the_tests_of_a_helper_are_those_that_use_it_also_through_another():
    assert "tests/package/test_suite.py" in changed.tests_of(["tests/helpers/tiers.py"])
    assert "tests/package/test_suite.py" in changed.tests_of(["tests/helpers/matrix.py"])


def test_what_is_tested_elsewhere_is_there():
    for start, folders in changed.ELSEWHERE.items():
        assert (changed.ROOT / start).exists(), start
        assert all((changed.ROOT / "tests" / folder).is_dir() for folder in folders), folders
