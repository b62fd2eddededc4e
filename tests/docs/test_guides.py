"""The programs in the guides run, one after another as a reader meets them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from fastseed import cli

DOCS = Path(__file__).resolve().parents[2] / "docs"
GUIDES = {
    "quick-start.md": 2,
    "index.md": 1,
    "../README.md": 3,
    "api/random.md": 2,
    "rollouts.md": 3,
    "data-loading.md": 9,
    "common-mistakes.md": 16,
    "resume.md": 4,
    "doctor.md": 1,
    "digest.md": 2,
    "first-difference.md": 2,
    "environment.md": 1,
    "sampling.md": 2,
    "verify.md": 1,
}
REPEATING = ("data-loading.md", "digest.md", "doctor.md")  # pages that go back to a scope


@pytest.mark.parametrize("guide", GUIDES)
def test_programs_of_the_guides_run(guide, caplog, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # some write files
    programs = re.findall(r"```python\n(.*?)```", (DOCS / guide).read_text(), re.DOTALL)
    assert len(programs) == GUIDES[guide]
    names = {"__name__": "guide"}
    for program in programs:
        exec(compile(program, guide, "exec"), names)
    said = [record.getMessage() for record in caplog.records]
    if guide not in REPEATING:
        assert said == []
    assert all("was used before in this process" in line for line in said)  # which is the point


def test_commands_of_the_quick_start_are_accepted(capsys):
    """Those of ``fastseed run``; the others are in the pages of their subcommands."""
    lines = re.findall(r"^fastseed .*", (DOCS / "quick-start.md").read_text(), re.MULTILINE)
    commands = [shlex.split(line, comments=True)[1:] for line in lines]
    assert [command[0] for command in commands] == ["run", "doctor"]
    assert cli.main([*commands[0][:1], "--dry-run", *commands[0][1:]]) == 0
    assert "FASTSEED_MASTER_SEED=42" in capsys.readouterr().out
