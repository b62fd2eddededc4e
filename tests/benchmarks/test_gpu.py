"""The harness of the GPU's benchmarks, rehearsed on the CPU."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu import __main__ as command
from benchmarks.gpu import bench_device, contenders, report, run_contender, targets


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


BASELINES = {
    "fastseed": (targets.MEMSET, targets.STORES, targets.SUM),
    "torch": (targets.TORCH,),
    "curand": (targets.CURAND,),
    "jax": (targets.JAX, targets.SPLIT, targets.SPLIT_OTHERS),
    "loop": (targets.LOOP, targets.MANUAL_SEED),
}


@pytest.mark.parametrize("name", contenders.NAMES)
def test_every_contender_rehearses(name: str, monkeypatch, tmp_path) -> None:
    """Real answers are checked, at small sizes on the CPU."""
    monkeypatch.setattr(bench_device, "SMALLER", 10**4)
    out = tmp_path / "lines"
    assert run_contender.run(name, bench_device.rehearsal(), out, run_contender.QUICK) == 0, (
        out.read_text()
    )
    records = lines(out)
    timed = {(r["case"], r["contender"]) for r in records if r["status"] == "ok"}
    if not timed:
        pytest.skip(str({record["reason"] for record in records}))
    cases = {case for case, _ in timed}
    assert cases <= set(targets.cases())
    wanted = [
        target for target in targets.TARGETS if target.against in BASELINES[name.partition("-")[0]]
    ]
    if name.startswith("fastseed"):
        wanted = [target for target in wanted if target.case in cases]
        assert {(case, targets.FASTSEED) for case in cases} <= timed
    else:
        wanted = [
            target
            for target in wanted
            if (target.against == targets.MANUAL_SEED) == ("seed" in name)
        ]
    if name.startswith("jax"):
        other = targets.SPLIT if name != "jax-threefry2x32" else targets.SPLIT_OTHERS
        wanted = [target for target in wanted if target.against != other]
    assert {(target.case, target.against) for target in wanted} <= timed


def test_command_rehearses_in_processes_of_their_own(tmp_path, capsys) -> None:
    arguments = ["--out", str(tmp_path / "lines"), "--rehearse", "--only", "fastseed-pool"]
    assert command.main(arguments) == 0
    machine, made, process = lines(tmp_path / "lines")
    assert machine["rehearsal"] is True and made["case"] == "pool.reseed/cuda/1e4"
    assert process["status"] == "ok"
    printed = capsys.readouterr().out
    assert "rehearsal" in printed and "0 targets met, 0 missed" in printed
    text = (tmp_path / "lines").read_text()
    assert str(command.ROOT) not in text and sys.prefix not in text


def made(case: str, contender: str, seconds: float, form: str = "f", **more: Any) -> dict[str, Any]:
    return {"kind": "entry", "status": "ok", "case": case, "contender": contender, "form": form,
            "median_s": seconds, "bytes": 8 * 10**9, "note": "", "process": "fastseed-bulk",
            **more}  # fmt: skip


def written(tmp_path: Path, *records: dict[str, Any], tail: str = "") -> report.Result:
    file = tmp_path / "result"
    machine = {"kind": "machine", "rehearsal": False, "card": {"name": "a card", "driver": "1"},
               "versions": {"torch": "2"}, "clocks": {"sm_mhz": "9 MHz"}, "commit": "c",
               "date": "d"}  # fmt: skip
    text = "".join(json.dumps(record) + "\n" for record in (machine, *records))
    file.write_text(text + tail)
    return report.read(file)


def test_judge_takes_the_fastest_form_of_the_baseline(tmp_path) -> None:
    case = "derive_seeds/cuda/1e8"
    slow, fast = made(case, targets.MEMSET, 0.8, "slow"), made(case, targets.MEMSET, 0.7, "fast")
    result = written(tmp_path, made(case, targets.FASTSEED, 1.0), slow, fast)
    row = report.judge(result, targets.Target(case, targets.MEMSET, 0.75))
    assert row["ratio"] == pytest.approx(0.7) and row["met"] is False
    assert report.judge(result, targets.Target(case, targets.MEMSET, 0.7))["met"] is True
    assert report.judge(result, targets.Target(case, targets.MEMSET))["met"] is None
    assert report.judge(result, targets.Target(case, targets.STORES, 0.5))["met"] is None
    printed = report.text(result)
    assert "memset (fast)" in printed and "0 targets met, 1 missed" in printed
    assert "a card, driver 1 (sm_mhz 9 MHz before the run)" in printed
    assert f"| {case} | 1 s | 8 | memset (fast) | 700 ms | 0.70x | 0.75x | no |" in (
        report.markdown(result)
    )


@pytest.mark.parametrize(
    "record, expected",
    [
        ({"kind": "entry", "status": "wrong", "process": "jax-rbg"}, True),
        ({"kind": "entry", "status": "failed", "process": "fastseed-banks"}, True),
        ({"kind": "entry", "status": "failed", "process": "jax-rbg"}, False),
        ({"kind": "process", "status": "ended by signal 11", "process": "fastseed-banks"}, True),
    ],
)
def test_failed_is_a_wrong_answer_or_something_of_fastseed(record, expected, tmp_path) -> None:
    extra = {"reason": "why", "seconds": 1.0, "case": None, **record}
    result = written(tmp_path, made("uniform_/cuda/1e8", targets.FASTSEED, 1.0), extra)
    assert report.failed(result) is expected
    assert record["status"] in report.text(result)
