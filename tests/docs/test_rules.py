"""The patterns of docs/rules.md: a tool names each wrong line, and not the right one."""

import re
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from helpers.paths import ROOT
from helpers.ranks import ranks
from torch.utils.data import DistributedSampler, random_split

import fastseed
from fastseed import debug
from fastseed.debug.generator_use import WRONG
from fastseed.debug.hashed_seeds import hashed_seeds

PAGE = (ROOT / "docs" / "rules.md").read_text("utf-8")
RULES = {
    int(number): (*(cell.split("`")[1 if "`" in cell else 0] for cell in cells), tool)
    for number, *cells, tool in re.findall(
        r"^\| (\d+) \| (.*?) \| (.*?) \| `(\w+)` \|", PAGE, re.MULTILINE
    )
}
INIT = "fastseed.init(42, rank=0, world_size=1)"
TRAIN = """
optimizer = torch.optim.SGD(torch.nn.Linear(2, 2).parameters())
def train(epoch):
    torch.rand(3)
    optimizer.step()
"""
CHECKED = {  # what stands before and after the line
    1: ("rank = 3; fastseed.init(42, rank=rank, world_size=8)", ""),
    2: ("", ""),
    3: (INIT, "fastseed.reseed(1); torch.rand(3, generator=noise)"),
    5: (INIT + TRAIN, ""),
    6: (INIT, ""),
    7: (f"{INIT}; fastseed.reseed(1)", "evaluate(0)"),
}
DRAWN = "torch.stack([torch.randn(8, generator=torch.Generator().manual_seed(s)) for s in seeds])"
OF_SEEDS = {  # the value of the line, and the verdict
    4: ("rng.random(16)", "unrepeatable"),
    9: ("torch.rand(16)", "unrepeatable"),
    10: ("torch.rand(16, generator=g)", "constant"),
    11: (DRAWN, "shifted"),
    12: (DRAWN, "repeated"),
    13: (DRAWN, "shifted"),
}
OF_EPOCHS = {14: "order", 15: "x"}


def names(**more: Any) -> dict[str, Any]:
    """Return what a line of the page may use."""
    common = {"torch": torch, "np": np, "time": time, "fastseed": fastseed}
    return {
        **common,
        "DistributedSampler": DistributedSampler,
        "random_split": random_split,
        **more,
    }


def both(numbers: object) -> Any:
    """Test the wrong and the right line of rules."""
    cases = [(number, wrong) for number in numbers for wrong in (True, False)]
    return pytest.mark.parametrize(("number", "wrong"), cases)


def line(number: int, wrong: bool) -> str:
    return RULES[number][0 if wrong else 1]


def test_each_rule_has_a_test():
    tested = {"check": {*CHECKED, 8}, "seed_reach": {*OF_SEEDS, *OF_EPOCHS, 17}, "ranks": {16}}
    tests = "test_verify.py::does_not_restore", "test_verify_losses.py::without_the_optimizer"
    tested["verify"] = {18, 19}
    for name in tests:
        file, _, test = name.partition("::")
        assert test in (ROOT / "tests/tools/verify" / file).read_text()
    assert {n for some in tested.values() for n in some} == {*RULES} == {*range(1, 20)}
    assert all(number in tested[tool] for number, (_, _, tool) in RULES.items())


@both(CHECKED)
@pytest.mark.usefixtures("frozen_objects")
def test_check_names_it(number, wrong):
    before, after = CHECKED[number]
    held = names()

    def run() -> None:
        exec(f"{before}\n{line(number, wrong)}\n{after}", held)

    found = [row for row in debug.check(run) if (row.topic, row.status) == ("use", WRONG)]
    assert bool(found) is wrong, found


@pytest.mark.parametrize("wrong", [True, False])
def test_check_names_seeds_by_hash(tmp_path, monkeypatch, wrong):
    monkeypatch.setattr("sys.modules", {})
    script = tmp_path / "train.py"
    script.write_text(line(8, wrong))
    assert bool([*hashed_seeds(str(script))]) is wrong


def verdict(run: Callable[..., object], leaf: str = "x", **options: Any) -> str | None:
    """Return the verdict about a leaf."""
    rows = debug.seed_reach(lambda *given: {"x": run(*given)}, **options).rows
    return next((row.verdict for row in rows if row.leaf == leaf), None)


@both(OF_SEEDS)
def test_seed_reach_names_it(number, wrong):
    value, expected = OF_SEEDS[number]

    def run(seed: int) -> object:
        fastseed.init(seed, rank=0, world_size=1)
        held = names(seed=seed, chunks=[[0, 1, 2, 3], [4, 5, 6, 7]])
        exec(line(number, wrong), held)
        return eval(value, held)

    assert verdict(run) == (expected if wrong else "good")


@both(OF_EPOCHS)
def test_seed_reach_names_what_repeats_in_epochs(number, wrong):
    def run(seed: int, epoch: int) -> object:
        def sample(seed: int, epoch: int) -> torch.Tensor:
            fastseed.init(seed, rank=0, world_size=1)
            fastseed.reseed(1, epoch)
            return torch.rand(8)

        held = names(seed=seed, epoch=epoch, data=range(100), sample=sample)
        exec(line(number, wrong), held)
        return held[OF_EPOCHS[number]]

    found = verdict(run, "x by epoch", seeds=(0, 100, 200), epochs=range(3))
    assert found == ("repeated" if wrong else None)


def splits(wrong: bool) -> list[debug.checkup.Row]:
    fastseed.init(42)
    fastseed.reseed(0)
    held = names(data=range(40))
    exec(line(16, wrong).replace("[3, 1]", "[0.75, 0.25]"), held)
    return debug.check(module=[*held["train"].indices], ranks=True)


@pytest.mark.parametrize("wrong", [True, False])
def test_ranks_that_split_in_another_way_are_named(wrong):
    for rows in ranks(2, splits, wrong):
        assert any(row.topic == "ranks" and row.status == WRONG for row in rows) is wrong


@pytest.mark.parametrize("wrong", [True, False])
def test_shards_with_the_same_numbers_are_named(wrong):
    def run(seed: int) -> object:
        fastseed.init(seed, rank=0, world_size=1)
        key, parts = fastseed.derive_key("weight", task=0), {}
        for rank in range(2):
            torch.manual_seed(seed)  # the same on each rank
            part_of_rank = fastseed.random.Shard((8, 2), (4 * rank, 0))
            held = names(key=key, part_of_rank=part_of_rank)
            exec(line(17, wrong), held)
            parts[f"rank{rank}"] = held["part"]
        return parts

    found = verdict(run, "x.rank1")
    assert found == ("repeated" if wrong else "good")
