"""Planted faults are found at their lines, and nothing else is."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest
import torch

from fastseed.tools import lint

ROOT = Path(__file__).resolve().parents[3]
DATA = ROOT / "tests" / "tools" / "lint" / "cases"
_FAULT = re.compile(r"# fault:((?: FS\d{3})+)\s*$")


def planted(path: Path) -> list[tuple[int, str]]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return sorted(
        (number, rule)
        for number, line in enumerate(lines, 1)
        for match in _FAULT.finditer(line)
        for rule in match[1].split()
    )


def found(*paths: Path, **options) -> list[tuple[int, str]]:
    return sorted((one.line, one.rule) for one in lint.check(paths, **options).findings)


@pytest.mark.parametrize("name", sorted(p.name for p in DATA.glob("*.py")))
def test_planted_faults_are_found_and_nothing_else(name):
    expected = planted(DATA / name)
    assert expected
    assert found(DATA / name) == expected


def test_every_rule_has_a_planted_fault():
    rules = {rule for path in DATA.rglob("*.py") for _, rule in planted(path)}
    rules |= {rule for _, rule in planted(ROOT / "examples" / "train_digits_broken.py")}
    # FS001 and FS002 have no line to be written on: see test_lint_files.py and _comments.py.
    assert rules | {"FS001", "FS002"} == set(lint.RULES)


def test_the_broken_example_is_told_all_its_faults_and_the_good_one_none():
    broken = ROOT / "examples" / "train_digits_broken.py"
    assert found(broken) == planted(broken)
    assert len({rule for _, rule in planted(broken)}) >= 8
    assert lint.check([ROOT / "examples" / "train_digits.py"]).findings == ()


def test_nothing_else_of_ours_has_a_fault():
    report = lint.check([ROOT / "fastseed", ROOT / "examples"])
    assert report.files > 100
    assert {Path(f.path).name for f in report.findings} == {"train_digits_broken.py"}


def test_the_broken_example_runs(monkeypatch, capsys):
    """Its faults are of the kind that shows no error."""
    path = ROOT / "examples" / "train_digits_broken.py"
    monkeypatch.setattr(sys, "argv", [str(path), "--epochs", "1"])
    torch.set_num_threads(1)  # 8x8 images: more threads only wait for each other
    runpy.run_path(str(path), run_name="__main__")
    assert re.fullmatch(r"epoch 0  held-out accuracy \d+\.\d%\n", capsys.readouterr().out)
