"""The run on a GPU, without one: all of its logic on the CPU, and how each stage fails alone."""

from __future__ import annotations

import dataclasses
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

from benchmarks import runner, table
from benchmarks.case import Side
from benchmarks.cases import all_cases
from benchmarks.gpu import programs, stages
from benchmarks.gpu.case import Kernel, as_case, moved
from benchmarks.gpu.cases import kernels
from fastseed._backend.ops.register import REFERENCES

WITHOUT_CASE = {
    "advise_huge_pages",
    "mt19937_states",
    "shuffle_of_key",
}  # of the CPU; calls another


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
    count = len([case for case in all_cases() if "cpu" not in case.devices])
    assert count > len(kernels())
    assert last.startswith(f"answers: {count} of {count} right; a rehearsal")
    screen = done.stdout[done.stdout.index("stages: ") :].splitlines()
    assert len(screen) <= 48 and max(map(len, screen)) <= 130
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["log.txt", "rows.jsonl", "summary.txt"]
    machine = json.loads((tmp_path / "rows.jsonl").read_text().splitlines()[0])["machine"]
    assert machine["rough"] is True and str(ROOT) not in str(machine)
    assert (tmp_path / "summary.txt").read_text().rstrip().endswith(last)


def test_every_operator_has_a_case():
    with Names() as mode:
        for kernel in kernels():
            small = kernel.small
            kernel.call(*kernel.inputs(min(small, 5001 if small % 5001 else small)))
    seen = {name.removeprefix("fastseed::") for name in mode.seen if name.startswith("fastseed::")}
    assert set(REFERENCES) - WITHOUT_CASE - seen == set()


def test_other_bits_are_noticed(tmp_path):
    def wrong(x: torch.Tensor) -> None:
        x[7] += x.is_pinned() + len(noticed)
        noticed.append(1)

    noticed: list[int] = []
    kernel = Kernel(
        "wrong", 100, 8, lambda n: (torch.zeros(n, dtype=torch.int64),), wrong, small=10
    )
    (row,) = runner.run_case(as_case(kernel), "cpu", runner.QUICK)
    assert (row["status"], row["reason"]) == ("wrong", "1 of 80 BYTES DIFFER")
    run = ended(tmp_path, row)
    assert run.failed() and "answers: 0 of 1 right" in run.summary()
    assert moved([torch.ones(1)], "cpu")[0].tolist() == [1]


def ended(out: Path, *rows: dict[str, object]) -> stages.Run:
    """Return a run that found such rows, before it was killed while it wrote another one."""
    run = stages.Run(out, 60, out)
    lines = [{"machine": {}}, *({"beside": "", **row} for row in rows)]
    run.rows.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"case": "half')
    return run


def test_a_kernel_says_what_share_of_its_ceiling_it_reaches():
    """Its time is that of all sets of its inputs in turns, beside the other call."""
    used: list[int] = []
    kernel = Kernel(
        "zero", 1000, 8, lambda n: (torch.ones(n, dtype=torch.int64),),
        lambda x: used.append(x.data_ptr()), "memset", lambda x: x.zero_(), sets=3, reads=True,
        share=0.5, ratio=2.0, headline=True,
    )  # fmt: skip
    (row,) = runner.run_case(as_case(kernel), "cpu", runner.QUICK, {True: 1e9, False: 1.0})
    assert row["status"] == "ok" and len(set(used[2:])) == 3
    assert row["tbs"] == pytest.approx(8e3 / row["us"] * 1e-6)
    assert row["share"] == pytest.approx(row["tbs"] * 1e3)
    assert row["target"] == 2.0 and row["share_target"] == 0.5 and len(table.verdicts(row)) == 2
    assert row["case"] == "kernel.zero/cpu/1000" and row["beside"] == "memset"


class FakeEvent:
    """What stands in for an event of a device that takes a second for each run."""

    def __init__(self, enable_timing: bool) -> None:
        self.at: int | None = None

    def record(self) -> None:
        self.at = len(RUNS)

    def synchronize(self) -> None:
        assert self.at is not None

    def elapsed_time(self, end: FakeEvent) -> float:
        return 1e3 * (end.at - self.at)


RUNS: list[int] = []


def test_kernels_are_timed_by_the_device_and_calls_until_it_has_finished(monkeypatch):
    waits: list[int] = []
    monkeypatch.setattr(torch.cuda, "Event", FakeEvent)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: waits.append(len(RUNS)))
    RUNS.clear()
    kernel = Side("kernel", "runs.append(1)", {"runs": RUNS}, is_kernel=True)
    clock = runner.Clock("cuda")
    assert clock(kernel, 5) == 1.0 and waits == [0]
    assert clock(dataclasses.replace(kernel, is_kernel=False), 3) < 1.0 and waits == [0, 5, 8]


def test_a_copy_reads_as_much_as_it_writes(monkeypatch):
    clock = runner.Clock("cpu")
    monkeypatch.setattr(clock, "in_turns", lambda sides, effort: [[2.0], [5.0]])
    assert runner.ceilings(clock, "cpu", runner.QUICK, 20) == {False: 10.0, True: 8.0}


OK = {"status": "ok", "us": 2.0}


@pytest.mark.parametrize(
    ("row", "shown", "fails"),
    [
        ({**OK, "tbs": 1.0, "share": 0.8, "share_target": 0.9}, "missed (0.9)", False),
        ({**OK, "ratio": 3.0, "beside": "memset", "target": 2}, "3.00x memset  met", False),
        ({"status": "unavailable", "reason": "JAX is not installed"}, "2 of 2", False),
        ({"status": "failed", "reason": "RuntimeError: no kernel"}, "no kernel", True),
        ({"status": "late", "reason": "no time left"}, "no time left", True),
    ],
)
def test_what_fails_a_run(row, shown, fails, tmp_path):
    good = [{"case": name, **OK} for name in ("good", "better")]
    run = ended(tmp_path, *good, {"case": "x", "headline": True, **row})
    assert shown.replace("2 of 2", "answers: 2 of 2") in run.summary() and run.failed() is fails
    run.ended.append(stages.Ended("tests", "timed out", ""))
    assert run.failed() and "tests: timed out" in run.summary()


def test_a_run_without_a_right_answer_fails(tmp_path):
    assert ended(tmp_path).failed()


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
    assert how["tests"].status == "failed (1)" and "3 error" in how["tests"].last_line
    assert how["memcheck exact_sum"].status != "ok"
    assert how["bits and times"].last_line == "there is no CUDA device"
    summary = (tmp_path / "out" / "summary.txt").read_text()
    assert all(f"{ended.name}: {ended.status}" in summary for ended in run.ended)
    assert run.failed()
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
