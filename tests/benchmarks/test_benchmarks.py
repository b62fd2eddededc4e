"""The benchmarks run, refuse wrong answers, and rewrite nothing else. Nothing is timed here."""

from __future__ import annotations

import dataclasses
import json
import random
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks import laws, report, runner
from benchmarks.baselines import one_stream, stream_each
from benchmarks.case import Case, Contest, Side, Unavailable, WrongAnswer, expect
from benchmarks.cases import all_cases, draws, lineage, pool, reseed, seeds
from fastseed.data import Lineage

ROOT = Path(__file__).resolve().parents[2]


# ---------------------------------------------------------------------------- the command


def run_command(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def test_command_quick_run_writes_all_fields(tmp_path: Path) -> None:
    out = tmp_path / "deeper" / "result.json"
    done = run_command("--quick", "--only", "reseed", "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert "reseed/cpu/3-generators" in done.stdout
    assert "seed has been generated more than once" not in done.stderr
    result = json.loads(out.read_text())
    assert result["schema"] == 1 and result["quick"] is True
    assert {"cpu", "cores", "compiler", "simd", "commit", "other_load"} <= set(result["machine"])
    assert {"python", "torch", "numpy", "fastseed"} <= set(result["machine"]["versions"])
    assert str(ROOT) not in out.read_text() and sys.prefix not in out.read_text()
    rows = {(row["name"], row["against"]): row for row in result["cases"]}
    row = rows["reseed/cpu/3-generators", f"fwr13y, {reseed.SHALLOW} frames deep"]
    assert row["status"] == "ok" and row["target"] == 20 and row["frames"] == reseed.SHALLOW
    assert row["met"] is (row["ratio"] >= 20) and "other_load" in row
    for side in (row["fastseed"], row["baseline"]):
        assert side["median_s"] > 0 and side["iqr_s"] >= 0
        assert len(side["rounds_s"]) == runner.QUICK.rounds
    assert row["ratio"] == pytest.approx(row["baseline"]["median_s"] / row["fastseed"]["median_s"])
    low, high = row["ratio_range"]
    assert low <= high


def test_cases_have_names_of_their_own() -> None:
    ids = [case.id for case in all_cases()]
    assert len(set(ids)) == len(ids)
    for case in all_cases():
        assert re.fullmatch(r"[a-z_.]+/cpu(-[a-z0-9]+)?/[a-z0-9-]+", case.name), case.name


# ---------------------------------------------------------------------------- wrong answers


def contest(answer: int, baselines: tuple[Side, ...] = ()) -> Contest:
    def check(made: Contest) -> None:
        expect(made.fastseed.run() == 2, "one and one")

    side = Side("fastseed", "answer + 0", {"answer": answer})
    return Contest(side, baselines or (Side("baseline", "1 + 1", {}),), check)


def test_run_case_right_answer_is_timed() -> None:
    row = runner.run_case(Case("add/cpu/1", "baseline", None, lambda: contest(2)), runner.QUICK)
    assert row["status"] == "ok" and row["met"] is None and row["ratio"] > 0


def test_run_case_wrong_answer_is_not_timed() -> None:
    row = runner.run_case(Case("add/cpu/1", "baseline", 2, lambda: contest(3)), runner.QUICK)
    assert row["status"] == "wrong" and row["reason"] == "one and one"
    assert "ratio" not in row


def test_command_wrong_answer_fails_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks import __main__ as command

    for answer, code in ((2, 0), (3, 1)):
        case = Case("add/cpu/1", "baseline", 1e9, lambda answer=answer: contest(answer))
        monkeypatch.setattr(command, "all_cases", lambda case=case: [case])
        assert command.main(["--quick"]) == code  # a target that is not met changes nothing


def test_run_case_unavailable_shows_why() -> None:
    def build() -> Contest:
        raise Unavailable("the baseline is not installed")

    row = runner.run_case(Case("add/cpu/1", "baseline", 2, build), runner.QUICK)
    assert row["status"] == "unavailable"
    assert "unavailable: the baseline is not installed" in report.row_cells(row)


def then(spoil: Callable[[], object]) -> Callable[[Any], Any]:
    """Return a function that does its work and then spoils the result."""

    def wrap(right: Any) -> Any:
        def wrong(*arguments: Any, **keywords: Any) -> Any:
            value = right(*arguments, **keywords)
            spoil()
            return value

        return wrong

    return wrap


def one_bit_off(right: Any) -> Any:
    def wrong(*arguments: Any, **keywords: Any) -> Any:
        value = right(*arguments, **keywords)
        return spoilt(value) if isinstance(value, torch.Tensor) else value ^ 1

    return wrong


def spoilt(value: torch.Tensor) -> torch.Tensor:
    """The last element by one bit."""
    value.view(WORDS[value.element_size()]).reshape(-1)[-1] ^= 1
    return value


WORDS = {4: torch.int32, 8: torch.int64}


class SpoiltBank:
    """Hands on all calls; what is drawn, or the keys of a reseed, are one bit off."""

    def __init__(self, bank: Any) -> None:
        self._bank = bank

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._bank, name)
        if not callable(value) or isinstance(value, torch.Tensor):
            return value

        def wrong(*arguments: Any, **keywords: Any) -> Any:
            made = value(*arguments, **keywords)
            spoilt(self._bank.keys if made is None else made)
            return made

        return wrong


class PoolThatForgetsTheLast:
    """Hands on all calls, and then seeds the last member with something else."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._pool, name)
        return then(lambda: self._pool[len(self._pool) - 1].manual_seed(99))(method)

    def __getitem__(self, i: int) -> torch.Generator:
        return self._pool[i]

    def __len__(self) -> int:
        return len(self._pool)


def another_job(_: Lineage) -> Lineage:
    return Lineage.load(lineage.contract(master_seed=43))


WRONG: dict[str, tuple[Callable[[], Contest], str, Callable[[Any], Any]]] = {
    "python": (reseed.against_by_hand, "reseed", then(random.random)),
    "numpy": (reseed.against_by_hand, "reseed", then(np.random.random_sample)),
    "numpy-gauss": (reseed.against_by_hand, "reseed", then(np.random.standard_normal)),
    "torch": (reseed.against_by_hand, "reseed", then(lambda: torch.rand(1))),
    "no-generators": (reseed.against_itself_without_generators, "reseed", then(random.random)),
    "seed": (seeds.one_seed, "seed", one_bit_off),
    "numpy-sfc64": (lambda: seeds.against_numpy("SFC64", 999), "derive_seeds", one_bit_off),
    "fresh": (lambda: seeds.fresh_against_numpy("SFC64", 1), "derive_seeds", one_bit_off),
    "random123": (lambda: seeds.against_random123(999), "derive_seeds", one_bit_off),
    "multiplies": (lambda: seeds.against_multiplies(999), "derive_seeds", one_bit_off),
    "threads": (lambda: seeds.two_threads(10**5), "derive_seeds", one_bit_off),
    "pool.reseed": (lambda: pool.reseed(40, 1), "pool", PoolThatForgetsTheLast),
    "pool-no-generators": (
        lambda: pool.reseed_without_generators(40),
        "pool",
        PoolThatForgetsTheLast,
    ),
    "pool.manual_seed": (lambda: pool.manual_seed(40, 1, list), "pool", PoolThatForgetsTheLast),
    "uniform": (
        lambda: draws.from_keys("uniform", 40, 64, stream_each.numpy_philox),
        "uniform",
        one_bit_off,
    ),
    "randint": (
        lambda: draws.from_keys("randint", 40, 64, one_stream.numpy_philox),
        "randint",
        one_bit_off,
    ),
    "normal_": (
        lambda: draws.in_place("normal", 9999, one_stream.numpy_philox),
        "normal_",
        one_bit_off,
    ),
    "bank.uniform": (lambda: draws.bank_beside_jax("uniform", 40, 64), "bank", SpoiltBank),
    "bank.reseed": (lambda: draws.reseed_beside_memset(99), "bank", SpoiltBank),
    "lineage.at": (lineage.samples_of_step, "lineage", another_job),
    "lineage.where": (lineage.steps_of_sample, "lineage", another_job),
    "lineage.where-mixture": (lineage.steps_in_mixture, "lineage", another_job),
    "lineage.where-many": (lambda: lineage.steps_of_samples(99, 9), "lineage", another_job),
}


@pytest.mark.parametrize("name", WRONG)
def test_check_accepts_fastseed_and_refuses_a_wrong_one(name: str) -> None:
    build, callee, spoil = WRONG[name]
    try:
        made = build()
    except Unavailable as reason:
        pytest.skip(str(reason))
    made.check(made)
    names = {**made.fastseed.names, callee: spoil(made.fastseed.names[callee])}
    spoilt = dataclasses.replace(made, fastseed=dataclasses.replace(made.fastseed, names=names))
    with pytest.raises(WrongAnswer):
        made.check(spoilt)


def test_check_refuses_a_baseline_that_writes_nothing() -> None:
    made = WRONG["normal_"][0]()
    idle = tuple(dataclasses.replace(baseline, statement="pass") for baseline in made.baselines)
    with pytest.raises(WrongAnswer, match="values in"):
        made.check(dataclasses.replace(made, baselines=idle))


FAIR = torch.rand(5000, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (FAIR + 0.1, "values in"),
        (FAIR.square(), "a mean of"),
        (FAIR.round() * 0.98 + 0.01, "a standard deviation of"),
        (FAIR[:4999], "of shape"),
        (FAIR.double(), "of dtype"),
    ],
)
def test_expect_baseline_refuses_what_is_no_uniform_draw(values, message) -> None:
    with pytest.raises(WrongAnswer, match=message):
        laws.expect_baseline(laws.UNIFORM, values, (5000,), "baseline")


# ---------------------------------------------------------------------------- timing


@pytest.mark.parametrize("frames", [reseed.SHALLOW, reseed.DEEP])
def test_measure_runs_at_exactly_that_depth(frames: int) -> None:
    seen: list[int] = []
    names = {"seen": seen, "stack_depth": runner.stack_depth}
    runner.measure(Side("probe", "seen.append(stack_depth())", names), 1e-4, frames)
    assert seen[-1] == frames


def test_contend_takes_the_fastest_baseline() -> None:
    baselines = (Side("slow", "sum(range(10**5))", {}), Side("fast", "1 + 1", {}))
    row = runner.contend(contest(2, baselines), runner.QUICK)
    assert row["baseline"]["label"] == "fast"


# ---------------------------------------------------------------------------- the report


def made_up_result() -> dict[str, Any]:
    side = {"median_s": 2e-6}
    targets = [(2, True, 3.0), (50, False, 12.0), (None, None, 0.1)]
    rows = [
        {"name": f"op/cpu/{i}", "against": "baseline", "target": target, "status": "ok", "met": met,
         "fastseed": side, "baseline": side, "ratio": ratio, "ratio_range": [ratio, ratio]}
        for i, (target, met, ratio) in enumerate(targets)
    ]  # fmt: skip
    rows.append({"name": "op/cpu/4", "against": "other", "target": 2, "status": "unavailable",
                 "reason": "not installed"})  # fmt: skip
    machine = {
        "cpu": "a CPU", "cores": 2, "simd": "avx2", "compiler": "g++ 12", "date": "2026-01-01",
        "versions": {"python": "3.11", "torch": "2.13", "numpy": "2.0"},
    }  # fmt: skip
    return {"schema": 1, "quick": False, "machine": machine, "cases": rows}


def test_report_rewrites_only_between_its_markers(tmp_path: Path) -> None:
    result, page = tmp_path / "result.json", tmp_path / "page.md"
    chart = tmp_path / "docs" / "chart.png"
    result.write_text(json.dumps(made_up_result()))
    before, after = "# Title\n\n| a | table |\n\n", "\n\nThe end: µ.\n"
    page.write_text(f"{before}{report.BEGIN}\nold figures\n{report.END}{after}", "utf-8")
    arguments = [str(result), "--page", str(page), "--chart", str(chart)]
    assert report.main(arguments) == 0
    text = page.read_text("utf-8")
    assert text.startswith(before + report.BEGIN) and text.endswith(report.END + after)
    assert "old figures" not in text
    for part in ("| `op/cpu/0` |", "**3.00x**", "| 0.10x |", "not installed"):
        assert part in text
    assert "](docs/chart.png)" in text
    assert chart.read_bytes().startswith(b"\x89PNG")
    assert report.main(arguments) == 0
    assert page.read_text("utf-8") == text


@pytest.mark.parametrize(
    "text",
    [
        "no markers",
        report.BEGIN,
        f"{report.END}{report.BEGIN}",
        f"{report.BEGIN}{report.END}" * 2,
    ],
)
def test_report_without_one_pair_of_markers_changes_nothing(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result, readme = tmp_path / "result.json", tmp_path / "README.md"
    result.write_text(json.dumps(made_up_result()))
    readme.write_text(text)
    assert report.main([str(result), "--readme", str(readme)]) == 1
    assert readme.read_text() == text
    assert "must have one" in capsys.readouterr().err
