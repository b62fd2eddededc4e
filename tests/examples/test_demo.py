"""The demo tells repeatable runs from others, cleans up after itself, and works as a whole."""

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
        ("d1", {"digests": ("bb", "b0")}, "all ranks ended with the same"),
        ("c", {"losses": {0: 1.6, 1: 0.25}}, "(c) equals (a)"),
        ("a", {"digests": ()}, "on 2 ranks"),
        ("e", {"master_seeds": (6,)}, "used the seed they were given"),
        ("b", {"resumed_at": None}, "were stopped mid-epoch"),
        ("e", {"samples": "others"}, "trained on the samples of (a)"),
        ("d2", {"digests": ("bb", "bb")}, "three different seeds"),
        ("d2", {"accuracy": 0.1}, "held-out images"),
    ],
)
def test_verdict_fails_changed_results(good, name, change, claim):
    good[name] = dataclasses.replace(good[name], **change)
    assert any(claim in failed for failed in failures(good))


@pytest.mark.parametrize("name", ["a", "d2"])
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


@pytest.mark.slow
def test_demo_passes(tmp_path):
    """A short demo, on the fastseed that this test imports."""
    package = str(Path(fastseed.__file__).resolve().parents[1])
    path = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")]))
    command = [sys.executable, str(EXAMPLES / "demo.py"), "--quick", "--out", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": path}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            stdout, stderr = process.communicate()
        except BaseException:
            process.terminate()  # not kill: it still has to end what it started
            raise
    assert process.returncode == 0, stdout + stderr
    assert "VERDICT: repeatable" in stdout
    assert (tmp_path / "loss-curves.png").read_bytes().startswith(b"\x89PNG")
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["repeatable"] is True and all(check["holds"] for check in results["checks"])
    a, b, c, d1, d2, e = results["runs"]
    assert b["resumed_at"] == e["resumed_at"] == [2, 11] and len(a["losses"]) == 4
    assert a["digests"] == b["digests"] == c["digests"] and len(a["digests"]) == 2
    assert len({run["digests"][0] for run in (a, d1, d2)}) == 3
