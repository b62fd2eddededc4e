"""The demo tells repeatable runs from others, cleans up after itself, and works as a whole."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import fastseed

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES))
from demolib.launch import Command, JobFailed, members, run_job  # noqa: E402
from demolib.results import Run, verdict  # noqa: E402

EXPECTED = {"seed": 5, "epochs": 2, "ranks": 2, "stop": (1, 11), "least_accuracy": 0.9}


def crafted(name: str, seed: int, digest: str, *, loss: float = 0.25, ranks: int = 2) -> Run:
    return Run(
        name=name,
        how="crafted",
        ranks=ranks,
        master_seeds=(seed, seed),
        digests=(digest,) * ranks,
        losses={0: 1.5, 1: loss},
        accuracy=0.95,
        samples=f"samples of {seed}",
        resumed_at=(1, 11) if name in ("b", "e") else None,
        seconds=1.0,
    )


@pytest.fixture
def good() -> dict[str, Run]:
    """Results of which every claim holds."""
    seeded = [crafted(name, 5, "aa") for name in "abc"]
    unseeded = [crafted("d1", 6, "bb"), crafted("d2", 7, "cc")]
    # On one rank gradients are added in another order: the samples agree, the last bits do not.
    runs = [*seeded, *unseeded, crafted("e", 5, "ee", loss=0.26, ranks=1)]
    return {run.name: run for run in runs}


def failures(runs: dict[str, Run]) -> list[str]:
    return [check.claim for check in verdict(runs, **EXPECTED) if not check.holds]


def test_verdict_passes_good_results(good):
    assert failures(good) == []


@pytest.mark.parametrize(
    ("name", "change", "claim"),
    [
        ("b", {"digests": ("ab", "ab")}, "(b) equals (a)"),
        ("c", {"digests": ("ab", "ab")}, "(c) equals (a)"),
        ("b", {"digests": ("aa", "ab")}, "all ranks ended with the same"),
        ("d1", {"digests": ("bb", "b0")}, "all ranks ended with the same"),
        ("b", {"losses": {0: 1.5, 1: 0.25000000000000006}}, "(b) equals (a)"),
        ("c", {"losses": {0: 1.6, 1: 0.25}}, "(c) equals (a)"),
        ("c", {"losses": {0: 1.5}}, "trained 2 epochs"),
        ("a", {"digests": ("aa",)}, "on 2 ranks"),
        ("a", {"digests": ()}, "on 2 ranks"),
        ("c", {"master_seeds": (5, 6)}, "used the seed they were given"),
        ("e", {"master_seeds": (6,)}, "used the seed they were given"),
        ("b", {"resumed_at": None}, "were stopped mid-epoch"),
        ("e", {"resumed_at": (1, 0)}, "were stopped mid-epoch"),
        ("e", {"samples": "others"}, "trained on the samples of (a)"),
        ("b", {"samples": "others"}, "trained on the samples of (a)"),
        ("e", {"ranks": 2}, "(e) ended on one"),
        ("d1", {"samples": "samples of 5"}, "three different seeds"),
        ("d1", {"master_seeds": (6, 8)}, "agreed on a drawn one"),
        ("d2", {"master_seeds": (6, 6)}, "three different seeds"),
        ("d2", {"digests": ("bb", "bb")}, "three different seeds"),
        ("d1", {"digests": ("aa", "aa")}, "three different seeds"),
        ("d2", {"accuracy": 0.1}, "held-out images"),
    ],
)
def test_verdict_fails_changed_results(good, name, change, claim):
    good[name] = dataclasses.replace(good[name], **change)
    assert any(claim in failed for failed in failures(good))


@pytest.mark.parametrize("name", ["a", "b", "c", "d1", "d2", "e"])
def test_verdict_fails_absent_run(good, name):
    del good[name]
    assert failures(good)


def python(code: str, **environment: str) -> Command:
    return Command([sys.executable, "-c", code], environment)


def test_run_job_shows_output_of_failed_process(tmp_path):
    commands = [
        python("print('all is well')"),
        python("import time; time.sleep(60)"),
        python("raise SystemExit('rank 2 lost its way')"),
    ]
    begin = time.monotonic()
    with pytest.raises(JobFailed, match="rank 2 lost its way"):
        run_job(commands, tmp_path / "output", timeout=50)
    assert time.monotonic() - begin < 30  # it did not wait for the one that sleeps


@pytest.mark.skipif(sys.platform != "linux", reason="finds grandchildren through /proc")
def test_run_job_leaves_no_process_after_timeout(tmp_path):
    """Not even a grandchild in a session of its own, which is how torchrun starts its ranks."""
    grandchild = "import time; print('started', flush=True); time.sleep(60)"
    parent = (
        "import os, signal, subprocess, sys, time\n"
        f"subprocess.Popen([sys.executable, '-c', {grandchild!r}], start_new_session=True)\n"
        "print(os.environ['FASTSEED_DEMO_JOB'], flush=True)\n"
        "time.sleep(60)\n"
    )
    with pytest.raises(JobFailed, match="not done after 4 s") as failure:
        run_job([python(parent)], tmp_path / "output", timeout=4)
    printed = str(failure.value).splitlines()[-2:]
    assert "started" in printed
    (mark,) = set(printed) - {"started"}
    assert members(mark) == []


def test_run_job_gives_ranks_their_environment_only(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "7")
    monkeypatch.setenv("LOCAL_RANK", "7")
    code = "import os; print(os.environ.get('RANK'), os.environ.get('LOCAL_RANK'))"
    run_job([python(code, RANK="1")], tmp_path / "output", timeout=50)
    assert (tmp_path / "output").read_text().split() == ["1", "None"]


@pytest.fixture(scope="module")
def demo(tmp_path_factory) -> tuple[subprocess.CompletedProcess, Path]:
    """A short demo, on the fastseed that this test imports."""
    out = tmp_path_factory.mktemp("demo")
    package = str(Path(fastseed.__file__).resolve().parents[1])
    path = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")]))
    command = [sys.executable, str(EXAMPLES / "demo.py"), "--quick", "--out", str(out)]
    environment = {**os.environ, "PYTHONPATH": path}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            stdout, stderr = process.communicate()
        except BaseException:
            process.terminate()  # not kill: it still has to end what it started
            raise
    return subprocess.CompletedProcess(command, process.returncode, stdout, stderr), out


@pytest.mark.slow
def test_demo_passes(demo):
    done, _ = demo
    assert done.returncode == 0, done.stdout + done.stderr
    assert "VERDICT: repeatable" in done.stdout


@pytest.mark.slow
def test_demo_draws_chart(demo):
    _, out = demo
    assert (out / "loss-curves.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_demo_writes_results(demo):
    _, out = demo
    results = json.loads((out / "results.json").read_text())
    assert results["repeatable"] is True
    assert all(check["holds"] for check in results["checks"])
    a, b, c, d1, d2, e = results["runs"]
    assert a["samples"] == b["samples"] == c["samples"] == e["samples"]
    assert b["resumed_at"] == e["resumed_at"] == [2, 11]
    assert e["ranks"] == 1 and len(e["digests"]) == 1
    assert a["digests"] == b["digests"] == c["digests"]
    assert len(a["digests"]) == 2 and len(a["digests"][0]) == 64
    assert a["losses"] == b["losses"] == c["losses"]
    assert len(a["losses"]) == 4
    assert len({run["digests"][0] for run in (a, d1, d2)}) == 3
    assert len({seed for run in (a, d1, d2) for seed in run["master_seeds"]}) == 3
