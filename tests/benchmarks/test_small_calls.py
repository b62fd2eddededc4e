"""The cases of small calls and of blocks check their answers."""

import dataclasses

import pytest
import torch

from benchmarks.case import WrongAnswer
from benchmarks.cases import keyed, small_calls

CASES = {case.name("cpu"): case for case in (*small_calls.cases(), *keyed.cases())}


@pytest.mark.parametrize("name", CASES)
def test_a_wrong_answer_is_noticed(name):
    contest = CASES[name].build("cpu")
    side = contest.fastseed
    contest.check(side)
    draw = "found[0] = torch.randn(64)" if "found" in side.names else "torch.zeros(3)"
    with pytest.raises(WrongAnswer):
        contest.check(dataclasses.replace(side, statement=draw))
    label = next(iter(CASES[name].beside))
    assert list(contest.beside) == list(CASES[name].beside)
    contest.beside[label]()[0].run()
    assert torch.equal(side.names.get("ones", torch.ones(64)), torch.ones(64))
