"""docs/lint.md lists the rules as they are, and its console session is what the command prints."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fastseed import cli
from fastseed.tools import lint

TEXT = (Path(__file__).resolve().parents[3] / "docs" / "lint.md").read_text(encoding="utf-8")


def test_every_rule_is_documented_as_it_is():
    table = TEXT.split("## Rules")[1].split("\n## ")[0]
    row = re.compile(r"^\| \[(FS\d{3})\]\((.*)\) \| ([\w-]+)( \(\*\w+\*\))? \| (.*) \|$", re.M)
    rows = row.findall(table)
    found = [(id, name, message) for id, _, name, _, message in rows]
    assert found == [(r.id, r.name, r.message) for r in lint.RULES.values()]
    assert all(link == f"lint-rules.md#{id.lower()}-{name}" for id, link, name, _, _ in rows)
    marks = {id: mark.strip(" (*)") for id, _, _, mark, _ in rows}
    for rule in lint.RULES.values():
        expected = {"fastseed": "adopted", "train": "training"}
        assert marks[rule.id] == next((m for w, m in expected.items() if w in rule.when), "")


@pytest.mark.parametrize("rule", lint.RULES)
def test_the_example_of_a_rule_has_its_fault_and_the_fix_has_none(rule, tmp_path):
    text = lint.explain(rule)
    assert text.splitlines()[0] == f"{rule} {lint.RULES[rule].name}"
    headings = ["**What it does.**", "**Why is this bad?**", "**Example**", "**Use instead**"]
    assert [
        line[: len(h)] for line in text.splitlines() for h in headings if line.startswith(h)
    ] == headings
    (example, fixed) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    for code, expected in ((example, {rule}), (fixed, set())):
        (tmp_path / "a.py").write_text(code)
        assert {one.rule for one in lint.check([tmp_path]).findings} == expected


def test_explain_prints_the_text_of_one_rule(capsys):
    assert cli.main(["lint", "--explain", "fs401"]) == 0
    assert capsys.readouterr().out.startswith(lint.explain("FS401"))
    assert cli.main(["lint", "--explain", "FS999"]) == 2
    assert "rule must be the id of a rule, such as FS101, got 'FS999'" in capsys.readouterr().err


def test_every_option_is_documented(capsys):
    assert cli.main(["lint", "--help"]) == 0
    options = set(re.findall(r"--[a-z]+", capsys.readouterr().out)) - {"--help"}
    assert options == set(re.findall(r"`(--[a-z]+)", TEXT))


def test_the_session_is_what_the_command_prints(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    lines = ["import fastseed", "import torch", "fastseed.init(3)", *[""] * 36, "if True:"]
    (tmp_path / "train.py").write_text("\n".join([*lines, "    torch.manual_seed(0)\n"]))
    (tmp_path / "src").mkdir()
    for i in range(11):
        (tmp_path / "src" / f"{i}.py").touch()
    assert cli.main(["lint", "train.py", "src"]) == 1
    session = TEXT.split("```console\n$ fastseed lint train.py src\n")[1].split("```")[0]
    assert capsys.readouterr().out == session


def test_the_comments_are_understood(tmp_path):
    block = TEXT.split("## Comments\n\n```python\n")[1].split("```")[0]
    (tmp_path / "a.py").write_text(f"import os, torch, fastseed\nfastseed.init(3)\n{block}")
    report = lint.check([tmp_path])
    assert report.findings == () and report.ignored == 1  # the listing goes nowhere
