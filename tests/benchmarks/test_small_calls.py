"""The cases of small calls check their answers, and two checkouts are compared case by case."""

from __future__ import annotations

import pytest
import torch

from benchmarks import compare_checkouts
from benchmarks.case import WrongAnswer
from benchmarks.cases import keyed, small_calls

CASES = {case.name: case for case in small_calls.cases()}


@pytest.mark.parametrize("name", CASES)
def test_a_wrong_answer_is_noticed(name):
    contest = CASES[name].build()
    contest.check(contest)
    names = dict(contest.fastseed.names)
    wrong = type(contest.fastseed)("fastseed", "torch.zeros(3)", names)
    with pytest.raises(WrongAnswer):
        contest.check(type(contest)(wrong, contest.baselines, contest.check))
    assert all(side.run() is not None for side in contest.baselines)
    assert torch.equal(names["ones"], torch.ones(64))


@pytest.mark.parametrize("name", ["block/cpu/empty", "randn/cpu/100x64", "add/cpu/100x64"])
def test_a_wrong_answer_of_a_block_is_noticed(name):
    case = next(case for case in keyed.cases() if case.name == f"keyed.{name}")
    contest = case.build()
    contest.check(contest)
    names = contest.fastseed.names
    wrong = type(contest.fastseed)("fastseed", "found[0] = torch.randn(64)", names)
    with pytest.raises(WrongAnswer):
        contest.check(type(contest)(wrong, contest.baselines, contest.check))


def test_checkouts_are_compared_in_turns(monkeypatch, capsys, tmp_path):
    """A case that takes longer runs again, alone; one that only one checkout has is named."""
    turns = []
    cases = {"old": {"a/1 vs x": 1.0, "b vs x": 1.0, "c vs x": 1.0, "d": 1.0}}
    cases["new"] = {"a/1 vs x": 1.2, "b vs x": 1.2, "e vs x": 1.0, "f": 1.0}

    def seconds(checkout, only, *how):
        turns.append(checkout.name)
        found = {name: s for name, s in cases[checkout.name].items() if only in name}
        return found if how else {name: 1.0 for name in found} if only == "b vs x" else found

    monkeypatch.setattr(compare_checkouts, "seconds_of", seconds)
    arguments = [str(tmp_path / "old"), str(tmp_path / "new"), "--rounds", "3"]
    assert compare_checkouts.main([*arguments, "--rename", "c=e"]) == 1
    assert turns == ["old", "new", "new", "old", "old", "new"] * 3
    shown = capsys.readouterr().out
    assert " 1.20 x SLOWER a/1 vs x" in shown and " 1.00 x        e vs x" in shown
    assert " 1.00 x        b vs x" in shown
    assert "only new  f" in shown and "only old  d" in shown
    assert "1 of 3 cases are more than 1.05 x as slow" in shown
