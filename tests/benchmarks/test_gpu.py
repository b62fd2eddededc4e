"""The run on a GPU, without one: all of its logic on the CPU, and how each stage fails alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from helpers.paths import ROOT
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.gpu import programs, stages, table, times
from benchmarks.gpu.case import Case, moved
from benchmarks.gpu.cases import cases
from fastseed._backend.ops.register import REFERENCES

WITHOUT_CASE = {"advise_huge_pages", "shuffle_of_key"}  # of the CPU; calls another


class Names(TorchDispatchMode):
    """Notes which operators are called."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.add(func.name())
        return func(*args, **(kwargs or {}))


def test_rehearsal_compares_all_bits(tmp_path):
    command = [sys.executable, "-m", "benchmarks.gpu", "--rehearse", "--out", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    last = done.stdout.splitlines()[-1]
    assert last.startswith(f"bits: {len(cases())} of {len(cases())} comparisons equal; a rehearsal")
    screen = done.stdout[done.stdout.index("stages: ") :].splitlines()
    assert len(screen) <= 48 and max(map(len, screen)) <= 110
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["log.txt", "rows.jsonl", "summary.txt"]
    machine = json.loads((tmp_path / "rows.jsonl").read_text().splitlines()[0])
    assert machine["rehearsal"] is True and str(ROOT) not in str(machine)
    assert (tmp_path / "summary.txt").read_text().rstrip().endswith(last)


def test_every_operator_has_a_case():
    with Names() as mode:
        for case in cases():
            case.call(*case.inputs(min(case.small, 5001 if case.small % 5001 else case.small)))
    seen = {name.removeprefix("fastseed::") for name in mode.seen if name.startswith("fastseed::")}
    assert set(REFERENCES) - WITHOUT_CASE - seen == set()


def test_other_bits_are_noticed(tmp_path):
    def wrong(x: torch.Tensor) -> None:
        x[7] += x.is_pinned() + len(noticed)
        noticed.append(1)

    noticed: list[int] = []
    case = Case("wrong", 100, 8, lambda n: (torch.zeros(n, dtype=torch.int64),), wrong, small=10)
    line = times.time_case(case, "cpu", times.Clock("cpu"), (1.0, 1.0), True)
    assert line["bits"] == "1 of 80 BYTES DIFFER"
    (tmp_path / "rows").write_text(json.dumps(line) + "\n")
    assert table.failed([], tmp_path / "rows")
    assert "bits: 0 of 1 comparisons equal" in table.text([], tmp_path / "rows")
    assert moved([torch.ones(1)], "cpu")[0].tolist() == [1]


def test_a_case_that_fails_keeps_no_other_from_running(tmp_path):
    lines = times.Lines(tmp_path / "rows")
    times.attempt(lines, {"case": "first"}, lambda: {}["missing"])
    times.attempt(lines, {"case": "second"}, lambda: {"bits": "equal"})
    first, second = table.read(tmp_path / "rows")
    assert first["bits"] == "FAILED" and first["error"] == "KeyError: 'missing'"
    assert second["bits"] == "equal" and table.failed([], tmp_path / "rows")


@pytest.mark.parametrize(
    ("line", "shown", "fails"),
    [
        ({"us": 2.0, "share": 0.8, "share_target": 0.9, "bits": "equal"}, "missed (0.9)", False),
        ({"us": 2.0, "ratio": 3.0, "against": "memset", "ratio_target": 2, "bits": "equal"},
         "3.00x memset", False),
        ({"error": "Unavailable: JAX is not installed", "bits": "FAILED"}, "case", False),
        ({"error": "RuntimeError: no kernel", "bits": "FAILED"}, "no kernel", True),
        ({"error": "no time left", "bits": "NOT COMPARED"}, "no time left", True),
    ],
)  # fmt: skip
def test_table(line, shown, fails, tmp_path):
    good = {"case": "good", "us": 1.0, "bits": "equal"}
    rows = tmp_path / "rows"
    lines = [{"case": "machine"}, good, {"case": "x", "headline": True, **line}]
    rows.write_text("".join(json.dumps(made) + "\n" for made in lines) + '{"case": "half')
    assert shown in table.text([], rows) and table.failed([], rows) is fails
    assert table.failed([stages.Ended("tests", "timed out", "")], rows)


def executable(path: Path, text: str) -> None:
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)


@pytest.mark.skipif(torch.cuda.is_available(), reason="here every stage has its device")
def test_without_a_gpu_each_stage_fails_alone(tmp_path, monkeypatch):
    made = tmp_path / "programs"
    made.mkdir()
    for name in programs.ON_GPU:
        executable(made / name, "echo FAILED: no device\necho at: row\nexit 1\n")
    executable(made / "cuda", f"sleep 60 & echo $! >{tmp_path}/child\nwait\n")
    monkeypatch.setattr(stages.Run, "_has_cuda", lambda run: True)  # so that nothing is built
    monkeypatch.setattr(stages, "TESTS", ("tests/cuda/test_graphs.py",))
    run = stages.Run(tmp_path / "out", 75, made)
    monkeypatch.setattr(run, "left", lambda limit=0, reserve=0: 3 if limit == 90 else 60)
    run.environment()
    run.native_programs()
    run.tests("tests", "fast", "captured", 120)
    run.sanitizer()
    run.times()
    how = {ended.name: ended for ended in run.ended}
    assert how["libraries"].status == "failed (1)" and "no device" in how["libraries"].last_line
    assert how["program cuda"].status == "timed out"
    assert how["program perturb"] == stages.Ended(
        "program perturb", "failed (1)", "FAILED: no device"
    )
    assert how["tests"].status == "failed (1)" and "2 error" in how["tests"].last_line
    assert how["memcheck exact_sum"].status != "ok"
    assert how["bits and times"].last_line == "there is no CUDA device"
    summary = (tmp_path / "out" / "summary.txt").read_text()
    assert all(f"{ended.name}: {ended.status}" in summary for ended in run.ended)
    assert table.failed(run.ended, run.rows)
    child = int((tmp_path / "child").read_text())
    for _ in range(50):  # what a process has started ends with it
        if not Path(f"/proc/{child}").exists():
            return
        time.sleep(0.1)
    os.kill(child, 9)
    pytest.fail("a process of a stage goes on")


def test_nothing_begins_without_time(tmp_path):
    run = stages.Run(tmp_path, 0, tmp_path)
    run.tests("rest", "slow", "", 90)
    assert [ended.status for ended in run.ended] == ["no time left"]


def test_a_sanitizer_gets_some_rows_of_each_kind(tmp_path):
    made = programs.some_rows(ROOT / "tests/vectors/perturb.txt", 2, tmp_path)
    kinds = [line.split(" ")[0] for line in made.read_text("utf-8").splitlines()]
    assert kinds == ["add", "add", "undo", "undo"]
    assert {name for _, name, _ in programs.SANITIZED} < set(programs.ON_GPU)
