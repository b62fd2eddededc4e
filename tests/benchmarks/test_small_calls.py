"""The cases of small calls check their answers, and two checkouts are compared case by case."""

from __future__ import annotations

import pytest
import torch

from benchmarks import compare_checkouts
from benchmarks.case import WrongAnswer
from benchmarks.cases import small_calls

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


def test_checkouts_are_compared_in_turns(monkeypatch, capsys, tmp_path):
    """A case that takes longer is named; one that only one checkout has, too."""
    cases = {"old": ["a/cpu/1 vs x", "b/cpu/1 vs x", "c"], "new": ["a/cpu/1 vs x", "d", "e"]}
    turns = []

    def seconds(checkout, case, quick):
        turns.append(checkout.name)
        return {"old": 1.0, "new": 1.2}[checkout.name] if case[0] == "a" else 1.0

    monkeypatch.setattr(compare_checkouts, "names_of", lambda checkout: cases[checkout.name])
    monkeypatch.setattr(compare_checkouts, "seconds_of", seconds)
    arguments = [str(tmp_path / "old"), str(tmp_path / "new"), "--rounds", "3"]
    assert compare_checkouts.main([*arguments, "--rename", "c=e"]) == 1
    assert turns == ["old", "new", "new", "old", "old", "new"] * 2
    shown = capsys.readouterr().out
    assert " 1.20 x SLOWER a/cpu/1 vs x" in shown and " 1.00 x        e" in shown
    assert "only new  d" in shown and "only old  b/cpu/1 vs x" in shown
    assert "1 of 2 cases are more than 1.05 x as slow" in shown
