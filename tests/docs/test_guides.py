"""The programs in the guides run, one after another as a reader meets them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
GUIDES = {
    "quick-start.md": 2,
    "index.md": 1,
    "../README.md": 3,
    "api/random.md": 2,
    "rollouts.md": 3,
    "data-loading.md": 9,
    "common-mistakes.md": 16,
    "resume.md": 8,
    "doctor.md": 1,
    "first-difference.md": 4,
    "environment.md": 1,
    "spec/sampling.md": 2,
    "verify.md": 1,
}
REPEATING = ("data-loading.md", "doctor.md")  # pages that go back to a scope


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
