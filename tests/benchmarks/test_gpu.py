"""The harness of the GPU's benchmarks, on the CPU: clocks are fake, or rehearsals are run."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from benchmarks.case import Unavailable, WrongAnswer, expect
from benchmarks.gpu import __main__ as command
from benchmarks.gpu import bench_device, contenders, report, run_contender, targets, timing
from benchmarks.gpu.contenders import curand
from benchmarks.gpu.timing import Call, Effort, Entry

EFFORT = Effort(rounds=4, sample=0.02, group=1e9, least=2)


class FakeClock:
    """Says that every call takes ``seconds``, and remembers who asked."""

    method = "fake"

    def __init__(self, seconds: float, asked: list[tuple[str, int]] | None = None, name: str = ""):
        self.seconds, self.asked, self.name = seconds, [] if asked is None else asked, name

    def __call__(self, calls: Sequence[Call], repeats: int) -> float:
        self.asked.append((self.name, repeats))
        return self.seconds


def entry(clock: Any, contender: str = targets.FASTSEED, right: bool = True, **more: Any) -> Entry:
    def check() -> None:
        expect(right, "what it should be")

    given: dict[str, Any] = {"case": "op/cuda/1", "form": "f", "calls": [lambda: None], **more}
    return Entry(contender=contender, check=check, clock=clock, **given)


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


# ---------------------------------------------------------------------------- timing


def test_measure_takes_turns_and_starts_with_another_each_round() -> None:
    asked: list[tuple[str, int]] = []
    both = [entry(FakeClock(1e-3, asked, name)) for name in "ab"]
    timing.measure(both, Effort(rounds=2, sample=0.02, group=1e9, least=2))
    warmed, rounds = asked[:4], asked[4:]
    assert [name for name, _ in warmed] == ["a", "a", "b", "b"]
    assert rounds == [("a", 20), ("b", 20), ("b", 20), ("a", 20)]
    assert both[0].samples == [1e-3] * 2


def test_measure_stops_after_the_groups_time_but_not_before_the_least() -> None:
    one = entry(FakeClock(1e-3))
    timing.measure([one], Effort(rounds=9, sample=0.02, group=-1.0, least=3))
    assert len(one.samples) == 3


@pytest.mark.parametrize(
    "seconds, expected", [(1e-3, 20), (1.0, 1), (0.0, 1000), (1e-9, 1000), (0.013, 2)]
)
def test_repeats_fill_a_sample(seconds: float, expected: int) -> None:
    assert timing.repeats_for(seconds, 0.02) == expected


def test_look_divides_by_what_a_call_holds_and_multiplies_what_was_left_out() -> None:
    assert entry(FakeClock(0.5), unit=10).look(1) == pytest.approx(0.05)
    assert entry(FakeClock(0.5), scale=128.0).look(1) == 64.0


def test_summary_of_one_and_of_many() -> None:
    assert timing.summary([2.0])["median_s"] == 2.0
    many = timing.summary([5.0, 1.0, 3.0, 2.0, 4.0])
    assert many == {"median_s": 3.0, "quartiles_s": [2.0, 4.0], "samples": 5}


def test_wall_clock_waits_before_and_after() -> None:
    seen: list[str] = []
    clock = timing.WallClock(lambda: seen.append("wait"))
    calls: list[Call] = [lambda: seen.append("a"), lambda: seen.append("b")]
    assert clock(calls, 3) >= 0
    assert seen == ["wait", "a", "b", "a", "wait"]


def test_event_clock_divides_milliseconds_by_calls() -> None:
    class Event:
        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None: ...
        def synchronize(self) -> None: ...
        def elapsed_time(self, end: Any) -> float:
            return 8.0

    cuda = SimpleNamespace(Event=Event, synchronize=lambda: None)
    clock = timing.EventClock(SimpleNamespace(cuda=cuda))
    assert clock([lambda: None], 4) == pytest.approx(2e-3)


@pytest.mark.parametrize("size", [1, 24_000_000, 400_000_000])
def test_rotating_buffers_are_larger_than_the_cache(size: int) -> None:
    l2 = 60 << 20
    bench = bench_device.BenchDevice("cuda", False, FakeClock(1), l2)
    count = bench.buffers(size)
    assert count >= 2 and count * size >= bench_device.CACHES * l2


# ---------------------------------------------------------------------------- one contender


def run_entries(monkeypatch: pytest.MonkeyPatch, out: Path, *groups: Any) -> int:
    monkeypatch.setattr(contenders, "groups_of", lambda name: lambda bench: list(groups))
    return run_contender.run("fastseed-bulk", bench_device.rehearsal(), out, EFFORT)


def test_contender_writes_a_line_for_each_entry(monkeypatch, tmp_path) -> None:
    out = tmp_path / "lines"
    first = entry(FakeClock(2e-3), size=8, note="n")
    assert run_entries(monkeypatch, out, lambda: [first, entry(FakeClock(1e-3), "memset")]) == 0
    first, second = lines(out)
    assert first["kind"] == "entry" and first["status"] == "ok"
    assert first["process"] == "fastseed-bulk"
    assert (first["median_s"], first["bytes"], first["note"]) == (2e-3, 8, "n")
    assert first["rehearsal"] is True and first["method"] == "fake" and first["samples"] == 4
    assert second["contender"] == "memset"


def test_contender_times_nothing_of_a_case_with_a_wrong_answer(monkeypatch, tmp_path) -> None:
    out, clock = tmp_path / "lines", FakeClock(1e-3)
    groups = (lambda: [entry(clock), entry(clock, right=False)], lambda: [entry(FakeClock(1))])
    assert run_entries(monkeypatch, out, *groups) == 1
    wrong, after = lines(out)
    assert wrong["status"] == "wrong" and wrong["reason"] == "what it should be"
    assert wrong["case"] == "op/cuda/1" and not clock.asked
    assert after["status"] == "ok"


def test_contender_continues_after_a_case_that_breaks(monkeypatch, tmp_path, capsys) -> None:
    def broken() -> list[Entry]:
        raise RuntimeError("no memory\nand more")

    def missing() -> list[Entry]:
        raise Unavailable("not installed")

    out = tmp_path / "lines"
    assert run_entries(monkeypatch, out, broken, missing, lambda: [entry(FakeClock(1))]) == 1
    records = lines(out)
    assert [record["status"] for record in records] == ["failed", "unavailable", "ok"]
    assert records[0]["reason"] == "RuntimeError no memory"
    assert "no memory" in capsys.readouterr().err


def test_contender_without_a_gpu_is_unavailable(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    out = tmp_path / "lines"
    assert run_contender.main(["fastseed-bulk", "--out", str(out)]) == 0
    assert lines(out)[0]["status"] == "unavailable"


# Who is timed in which processes.
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


def test_contenders_of_fastseed_cover_every_case() -> None:
    names = [name for name in contenders.NAMES if name.startswith("fastseed")]
    count = sum(len(contenders.groups_of(name)(bench_device.rehearsal())) for name in names)
    assert count == len(targets.cases())


def test_curand_calls_the_library_as_its_header_says() -> None:
    """With its host generators, which need no GPU."""
    try:
        library = curand.library()
    except Unavailable as reason:
        pytest.skip(str(reason))
    on_host = SimpleNamespace(
        curandCreateGenerator=library.curandCreateGeneratorHost,
        curandSetStream=lambda *_: 0,
        **{name: getattr(library, name) for name in (
            "curandSetGeneratorOrdering", "curandSetPseudoRandomGeneratorSeed",
            "curandGenerateUniform", "curandGenerateNormal")},
    )  # fmt: skip
    for kind in curand.GENERATORS.values():
        generator = curand.Generator(on_host, kind, curand.ORDERINGS["default"], 0)
        out = torch.zeros(10_000)
        curand._check(generator, curand.UNIFORM, "uniform", [out])
        curand._check(generator, curand.NORMAL, "normal", [out])
    with pytest.raises(curand.Failed, match="curandSetGeneratorOrdering failed with"):
        curand.Generator(on_host, kind, 9999, 0)


@pytest.mark.parametrize("value, right", [(2.0**-33, True), (1.0, True), (0.0, False)])
def test_curand_uniform_numbers_are_above_zero_and_up_to_one(value: float, right: bool) -> None:
    """The least of them, of which there are a few in 1e8, is no wrong answer."""

    def uniform(out: torch.Tensor) -> None:
        out.copy_(torch.rand(len(out), generator=torch.Generator().manual_seed(1)).clamp_min(1e-9))
        out[7] = value

    generator: Any = SimpleNamespace(uniform=uniform)
    with contextlib.nullcontext() if right else pytest.raises(WrongAnswer, match="values in"):
        curand._check(generator, curand.UNIFORM, "uniform", [torch.zeros(10_000)])


# ---------------------------------------------------------------------------- all of them


def options(tmp_path: Path, *more: str) -> Any:
    return command.parse(["--out", str(tmp_path / "lines"), "--log", str(tmp_path / "log"), *more])


def test_run_one_says_how_a_process_ended(monkeypatch, tmp_path) -> None:
    programs = {
        "ok": "print('hello')", "failed": "raise SystemExit(1)",
        "ended by signal 9": "import os; os.kill(os.getpid(), 9)",
        "timed out": "import time; time.sleep(60)",
    }  # fmt: skip
    given = options(tmp_path)
    for status, program in programs.items():
        monkeypatch.setattr(command, "command", lambda *_, p=program: [sys.executable, "-c", p])
        ended = command.run_one("torch", given, 2.0 if status == "timed out" else 60.0)
        assert ended["status"] == status and ended["process"] == "torch"
    assert "hello" in given.log.read_text()


def test_run_keeps_to_its_time_and_names_who_had_none(monkeypatch, tmp_path) -> None:
    given = options(tmp_path, "--seconds", "1")
    command.run(given)
    machine, *processes = lines(given.out)
    assert machine["kind"] == "machine" and machine["rehearsal"] is False
    assert [p["process"] for p in processes] == list(contenders.NAMES)
    assert {p["status"] for p in processes} == {"no time left"}


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


def test_command_lists_contenders_and_targets(capsys) -> None:
    assert command.main(["--list"]) == 0
    printed = capsys.readouterr().out
    assert "fastseed-bulk" in printed and "normal_/cuda/1e8  vs cuRAND host API  1x" in printed
    assert command.main([]) == 2


# ---------------------------------------------------------------------------- the report


PROMISED = {
    ("derive_keys/cuda/1e8", targets.MEMSET): 0.90,
    ("bank.rand/cuda/65536x1024", targets.MEMSET): 0.90,
    ("uniform_/cuda/1e8", targets.MEMSET): 0.90,
    ("derive_seeds/cuda/1e8", targets.MEMSET): 0.75,
    ("bank.randn/cuda/65536x1024", targets.MEMSET): 0.55,
    ("normal_/cuda/1e8", targets.MEMSET): 0.55,
    ("bank.rand/cuda/65536x1024", targets.JAX): 1.5,
    ("bank.randn/cuda/65536x1024", targets.JAX): 1.5,
    ("bank.rand/cuda/65536x1024", targets.LOOP): 1000,
    ("bank.randn/cuda/65536x1024", targets.LOOP): 1000,
    ("uniform_/cuda/1e8", targets.TORCH): 1.2,
    ("normal_/cuda/1e8", targets.TORCH): 1.2,
    ("uniform_/cuda/1e8", targets.CURAND): 1.0,
    ("normal_/cuda/1e8", targets.CURAND): 1.0,
    ("derive_keys/cuda/1e8", targets.SPLIT): 3,
    ("bank.reseed_in_graph/cuda/1e6", targets.MEMSET): 1 / 1.3,
    ("pool.reseed/cuda/1e4", targets.MANUAL_SEED): 5,
    ("digest/cuda/1e8", targets.SUM): 0.85,
}


def test_targets_are_listed_once() -> None:
    promised = {(b.case, b.against): b.at_least for b in targets.TARGETS if b.at_least is not None}
    assert promised == PROMISED
    assert len({(b.case, b.against) for b in targets.TARGETS}) == len(targets.TARGETS)
    aims = {b.case for b in targets.TARGETS if b.aim == 0.80}
    assert aims == {"bank.randn/cuda/65536x1024", "normal_/cuda/1e8"}


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


def test_read_passes_over_a_line_that_was_cut(tmp_path) -> None:
    case = "derive_seeds/cuda/1e8"
    result = written(tmp_path, made(case, targets.FASTSEED, 1.0), tail='{"kind": "ent')
    assert len(result.entries) == 1 and not report.failed(result)


@pytest.mark.parametrize(
    "record, expected",
    [
        ({"kind": "entry", "status": "wrong", "process": "jax-rbg"}, True),
        ({"kind": "entry", "status": "failed", "process": "fastseed-banks"}, True),
        ({"kind": "entry", "status": "failed", "process": "jax-rbg"}, False),
        ({"kind": "entry", "status": "unavailable", "process": "curand"}, False),
        ({"kind": "process", "status": "failed", "process": "fastseed-banks"}, True),
        ({"kind": "process", "status": "ended by signal 11", "process": "fastseed-banks"}, True),
        ({"kind": "process", "status": "timed out", "process": "fastseed-banks"}, False),
        ({"kind": "process", "status": "failed", "process": "jax-rbg"}, False),
    ],
)
def test_failed_is_a_wrong_answer_or_something_of_fastseed(record, expected, tmp_path) -> None:
    extra = {"reason": "why", "seconds": 1.0, "case": None, **record}
    result = written(tmp_path, made("uniform_/cuda/1e8", targets.FASTSEED, 1.0), extra)
    assert report.failed(result) is expected
    assert record["status"] in report.text(result)


def test_failed_when_there_is_nothing_of_fastseed(tmp_path, capsys) -> None:
    assert report.failed(written(tmp_path, made("uniform_/cuda/1e8", targets.MEMSET, 1.0)))
    assert report.main([str(tmp_path / "result"), "--markdown"]) == 0
    assert "| case | fastseed |" in capsys.readouterr().out


def test_missed_targets_fail_nothing_and_scaled_times_are_said(tmp_path) -> None:
    case = "bank.randn/cuda/65536x1024"
    loop = made(case, targets.LOOP, 2.0, note="timed over 512 streams")
    result = written(tmp_path, made(case, targets.FASTSEED, 1.0), loop)
    assert not report.failed(result)
    assert "timed over 512 streams" in report.text(result)
