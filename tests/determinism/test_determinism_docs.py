"""docs/determinism.md: its programs run, and its tables match the code."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import fastseed
from fastseed._utils import environ
from fastseed.cli import main
from fastseed.determinism import apply_config, variables
from fastseed.determinism.report import STATUSES

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "determinism.md").read_text()


@pytest.fixture(autouse=True)
def no_variables(monkeypatch):
    for name in ("FASTSEED_MASTER_SEED", "FASTSEED_DETERMINISTIC"):
        monkeypatch.delenv(name, raising=False)


def test_programs_run(capsys):
    programs = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    assert programs
    names = {"__name__": "guide"}
    for program in programs:
        exec(compile(program, "determinism.md", "exec"), names)
    assert "torch.use_deterministic_algorithms" in capsys.readouterr().out
    with fastseed.deterministic() as report:
        settings = [row.setting for row in report.rows if row.wanted is not None]
    table = TEXT.partition("| setting |")[2].partition("\n\n")[0]
    for name in settings:
        shown = name.partition(":")[0].replace("torch.backends.cudnn.benchmark", ".benchmark")
        assert f"`{shown}`" in table, name


def test_tables_match_the_code():
    assert all(f"`{status}`" in TEXT for status in STATUSES)
    for variable in variables.VARIABLES:
        assert re.search(rf"^\| `{variable.name}` \| `{variable.wanted}`", TEXT, re.MULTILINE)


def test_the_file_is_that_of_clara():
    (text,) = re.findall(r"```json\n(.*?)```", TEXT, re.DOTALL)
    document = json.loads(text)
    assert document["determinism"] == {
        "python_seed": "20191015",
        "random_seed": 123456,
        "numpy_seed": 654321,
        "tf_seed": 11111,
    }
    assert list(apply_config(document)) == list(document["determinism"])


def test_the_command_lines_are_understood(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    lines = re.findall(r"^\$ fastseed (.*)", TEXT, re.MULTILINE)
    assert lines
    for line in lines:
        arguments = line.split()
        assert main([arguments[0], "--dry-run", *arguments[1:]]) == 0


def test_every_variable_has_its_meaning():
    rows = set(re.findall(r"^\| `(FASTSEED_[A-Z_]+)` \| .+ \|$", TEXT, re.MULTILINE))
    values = [value for value in vars(environ).values() if isinstance(value, str)]
    names = {value for value in values if re.fullmatch("FASTSEED_[A-Z_]+", value)}
    assert names and names <= rows
