"""The benchmarks run, refuse wrong answers, and rewrite nothing else. Nothing is timed here."""

import dataclasses
import json
import os
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
from helpers.paths import ROOT

from benchmarks import __main__ as command
from benchmarks import laws, machine, report, runner, table
from benchmarks.baselines import numpy_bits
from benchmarks.case import Case, Contest, Side, Unavailable, WrongAnswer, expect
from benchmarks.cases import all_cases, draws, pool, reseed, seeds

# ---------------------------------------------------------------------------- the command


def test_command_quick_run_writes_a_line_a_row(tmp_path: Path) -> None:
    out = tmp_path / "deeper" / "result.jsonl"
    arguments = ["--quick", "--only", "reseed/cpu/3-generators", "--out", str(out)]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", *arguments], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "answers: 2 of 2 right" in done.stdout
    assert "seed has been generated more than once" not in done.stderr
    (machine,), *rows = ([line["machine"]] if "machine" in line else line
                         for line in map(json.loads, out.read_text().splitlines()))  # fmt: skip
    assert machine["rough"] is True
    assert {"date", "cpu", "cores", "compiler", "simd", "commit"} <= set(machine)
    assert {"python", "torch", "numpy", "fastseed"} <= set(machine["versions"])
    assert str(ROOT) not in out.read_text() and sys.prefix not in out.read_text()
    labels = [row["beside"] for row in rows if row["case"] == "reseed/cpu/3-generators"]
    assert labels == [f"fwr13y, {n} frames deep" for n in (reseed.SHALLOW, reseed.DEEP)] + [
        "three seed calls by hand", "fastseed without _generators",
    ]  # fmt: skip
    for row in rows:
        assert row["status"] == "ok" and row["us"] > 0 and "target" not in row
        assert row["ratio"] == pytest.approx(row["beside_us"] / row["us"])
        low, high = row["range"]
        assert low <= high
    with pytest.raises(ValueError, match="of a quick run"):
        report.Result(out)


def test_cases_have_names_of_their_own() -> None:
    for device in ("cpu", "cuda"):
        names = [case.name(device) for case in all_cases() if device in case.devices]
        assert len(set(names)) == len(names)
    for case in (case for case in all_cases() if "cpu" in case.devices):
        name = case.name("cpu")
        assert re.fullmatch(r"[a-z_.]+/cpu(-[a-z0-9]+)?/[a-z0-9-]+", name), name
        assert case.beside


def test_command_without_options_runs_the_headline_cases() -> None:
    headline = command.chosen(command.parse([]))
    every = command.chosen(command.parse(["--all"]))
    assert {case.operation for case in headline} == {
        "reseed", "derive_seeds", "derive_keys", "pool.reseed", "bank.reseed", "uniform",
        "bank.uniform", "random.normal", "sampler.order", "loader.pass", "per_sample",
    }  # fmt: skip
    assert len(headline) < len(every) and all("cpu" in case.devices for case in every)
    rehearsed = command.chosen(command.parse(["--rehearse", "--all"]))
    assert all(case.devices == ("cuda",) for case in rehearsed)
    of_cuda = command.chosen(command.parse(["--device", "cuda", "--all"]))
    assert {"reseed", "kernel.derive_keys"} <= {case.operation for case in of_cuda}


# ---------------------------------------------------------------------------- wrong answers


def contest(answer: int, **beside: str) -> Contest:
    def check(side: Side) -> None:
        expect(side.run() == 2, "one and one")

    def ways(statement: str) -> list[Side]:
        if not statement:
            raise Unavailable("it is not installed")
        return [Side(each, each, {}) for each in statement.split(" or ")]

    contenders = {name: lambda text=text: ways(text) for name, text in beside.items()}
    return Contest(Side("fastseed", "answer + 0", {"answer": answer}), check, contenders, check)


def rows_of(made: Callable[[], Contest], *labels: str) -> list[dict[str, Any]]:
    case = Case("add", "1", dict.fromkeys(labels, 1e9), lambda device: made())
    return runner.run_case(case, "cpu", runner.QUICK)


def test_every_contender_is_a_row_and_none_keeps_another_from_running() -> None:
    ways = {"good": "1 + 1", "wrong": "1 + 2", "missing": "", "failing": "1 / 0"}
    good, wrong, missing, failing = rows_of(lambda: contest(2, **ways), *ways)
    assert good["status"] == "ok" and table.verdicts(good) == ["missed (1e+09)"]
    assert good["ratio"] == pytest.approx(good["beside_us"] / good["us"])
    assert (wrong["status"], wrong["reason"]) == ("wrong", "one and one")
    assert (missing["status"], missing["reason"]) == ("unavailable", "it is not installed")
    assert failing["status"] == "failed" and "ZeroDivisionError" in failing["reason"]
    assert [table.is_bad(row) for row in (good, wrong, missing, failing)] == [
        False, True, False, True,
    ]  # fmt: skip
    for row in (wrong, missing, failing):  # fastseed's own time is there
        assert row["us"] > 0 and "ratio" not in row and row["reason"] in table.line(row)


def test_a_wrong_answer_is_not_timed_and_fails_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    (row,) = rows_of(lambda: contest(3, good="1 + 1"), "good")
    assert row["status"] == "wrong" and "us" not in row
    for answer, code in ((2, 0), (3, 1)):
        case = Case("add", "1", {"good": 1e9}, lambda _, n=answer: contest(n, good="1 + 1"))
        monkeypatch.setattr(command, "all_cases", lambda case=case: [case])
        assert command.main(["--quick", "--all"]) == code  # a target that is missed changes nothing


def test_cases_that_begin_too_late_do_not_run(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    case = Case("add", "1", {"good": None}, lambda _: contest(2, good="1 + 1"))
    monkeypatch.setattr(command, "all_cases", lambda: [case])
    out = tmp_path / "rows"
    assert command.main(["--quick", "--all", "--seconds", "1", "--out", str(out)]) == 1
    assert json.loads(out.read_text().splitlines()[-1])["reason"] == "no time left"


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
    """Hands on all calls; the keys of a reseed are one bit off."""

    def __init__(self, bank: Any) -> None:
        self._bank = bank

    def reseed(self, task: int) -> None:
        self._bank.reseed(task)
        spoilt(self._bank.keys)


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


WRONG: dict[str, tuple[Callable[[str], Contest], str, Callable[[Any], Any]]] = {
    "python": (reseed.warm, "reseed", then(random.random)),
    "numpy": (reseed.warm, "reseed", then(np.random.random_sample)),
    "numpy-gauss": (reseed.warm, "reseed", then(np.random.standard_normal)),
    "torch": (reseed.in_a_loop, "reseed", then(lambda: torch.rand(1))),
    "seed": (seeds.one_seed, "seed", one_bit_off),
    "seeds": (lambda d: seeds.seeds(999, d), "derive_seeds", one_bit_off),
    "keys": (lambda d: seeds.keys(999, d), "derive_keys", one_bit_off),
    "pool.reseed": (lambda d: pool.reseed(40, 1, d), "pool", PoolThatForgetsTheLast),
    "pool.manual_seed": (lambda d: pool.reseed_from_seeds(40, d), "pool", PoolThatForgetsTheLast),
    "uniform": (lambda d: draws.from_keys("uniform", 40, 64, d), "draw", one_bit_off),
    "bank.normal": (lambda d: draws.from_bank("normal", 40, 64, d), "draw", one_bit_off),
    "normal_": (lambda d: draws.one_stream("normal", 9999, (), d), "fill", one_bit_off),
    "bank.reseed": (lambda d: draws.reseed(99, 1, d), "bank", SpoiltBank),
}


@pytest.mark.parametrize("name", WRONG)
def test_check_accepts_fastseed_and_refuses_a_wrong_one(name: str) -> None:
    build, callee, spoil = WRONG[name]
    made = build("cpu")
    made.check(made.fastseed)
    names = {**made.fastseed.names, callee: spoil(made.fastseed.names[callee])}
    with pytest.raises(WrongAnswer):
        made.check(dataclasses.replace(made.fastseed, names=names))


@pytest.mark.parametrize("name", WRONG)
def test_contenders_give_right_answers_or_are_not_here(name: str) -> None:
    made = WRONG[name][0]("cpu")
    for ways in made.beside.values():
        try:
            sides = ways()
        except Unavailable:
            continue
        for side in sides:
            made.check_beside(side)


@pytest.mark.parametrize(
    ("build", "label", "message"),
    [
        (lambda: draws.one_stream("normal", 9999, ("torch",), "cpu"), "torch", "values in"),
        (lambda: draws.from_keys("uniform", 40, 64, "cpu"), draws.LOOP, "values in"),
        (lambda: seeds.seeds(999, "cpu"), "NumPy SFC64", "not 64 bits each"),
    ],
)
def test_check_refuses_a_contender_that_writes_nothing(build, label, message) -> None:
    made = build()
    idle = dataclasses.replace(made.beside[label]()[0], statement="pass")
    with pytest.raises(WrongAnswer, match=message):
        made.check_beside(idle)


def test_numpy_is_asked_in_every_way() -> None:
    for side in numpy_bits.sides("SFC64", np.ones(70_000, np.uint64)):
        numpy_bits.check(side)


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
def test_clock_runs_a_statement_at_exactly_that_depth(frames: int) -> None:
    seen: list[int] = []
    names = {"seen": seen, "stack_depth": runner.stack_depth}
    runner.Clock("cpu")(Side("probe", "seen.append(stack_depth())", names, frames=frames), 3)
    assert seen == [frames] * 3


def test_the_fastest_way_of_a_contender_counts() -> None:
    (row,) = rows_of(lambda: contest(2, both="len(list(range(10**5))) // 50000 or 1 + 1"), "both")
    assert row["beside_us"] < 50


def test_load_is_that_of_other_processes_on_own_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """In 10 seconds core 1 was busy for 8: 3 of user, 2 of the kernel, 3 of a guest; we had 5."""
    tick = os.sysconf("SC_CLK_TCK")

    def at(seconds: float, stat: list[int], own: float) -> None:
        words = " ".join(str(each * tick) for each in stat)
        text = f"cpu 7 7 7 7 7 7 7 7 7\ncpu0 {9 * seconds:.0f} 0 0 0 0 0 0 0\ncpu1 {words}\nintr 1"
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1})
        monkeypatch.setattr(Path, "read_text", lambda *_: text)
        monkeypatch.setattr(os, "times", lambda: (own, 0.0, 0.0, 0.0, 0.0))
        monkeypatch.setattr(machine.time, "monotonic", lambda: seconds)

    at(0, [10, 0, 10, 100, 100, 0, 0, 0], own=2)
    load = machine.OtherLoad()
    assert load.processes() is None  # too short
    at(10, [13, 0, 12, 101, 101, 0, 0, 3], own=7)
    assert load.processes() == 0.3


def test_sides_take_turns() -> None:
    order: list[str] = []
    sides = [Side(name, f"order.append({name!r})", {"order": order}) for name in "ab"]
    clock = runner.Clock("cpu")
    clock.repeats = lambda side, seconds: 1  # type: ignore[method-assign]
    times = clock.in_turns(sides, runner.Effort(3, 0.0))
    assert order == list("ab" + "ba" + "ab") and [len(each) for each in times] == [3, 3]


def test_a_clock_that_stops_leaves_out_a_part() -> None:
    made = reseed.in_a_loop("cpu")
    side = made.fastseed
    assert side.statement.startswith("train(); ") and side.clock.__self__._spent == 0
    runner.Clock("cpu")(side, 2)
    assert side.clock.__self__._spent > 0
