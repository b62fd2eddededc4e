"""The Python blocks of the documentation run, each alone, as a reader pastes it.

A block of ```python is a program. Fragments, and programs that need a GPU or a server, are ```py.
"""

from __future__ import annotations

import re

import pytest
from helpers.paths import ROOT

PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
AFTER_THE_FIRST = ("common-mistakes.md",)  # its blocks continue the first one, as the page says
ELSEWHERE = {
    "quick-start.md": "docs/test_quick_start.py",
    **dict.fromkeys(  # with other packages
        ("lightning.md", "accelerate.md", "trainer.md"), "integrations/test_migration_docs.py"
    ),
}


def blocks():
    """Return each program with the page and the number that it has there."""
    for page in PAGES:
        programs = re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
        for number, program in enumerate(programs):
            if page.name in AFTER_THE_FIRST and number:
                program = programs[0] + program
            if page.name not in ELSEWHERE:
                yield pytest.param(page.name, program, id=f"{page.stem}-{number}")


@pytest.mark.parametrize(("page", "program"), blocks())
def test_block_runs_alone(page, program, caplog, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # some write files
    exec(compile(program, page, "exec"), {"__name__": "guide"})
    # Loggers of torch have levels of their own, which other tests change.
    ours = [record for record in caplog.records if record.name.startswith("fastseed")]
    said = [record.getMessage() for record in ours]
    # Reported is what only `fastseed run` can set, or an earlier test has used, and nothing else.
    late = ("PYTHONHASHSEED is too late", "MKL_CBWR is too late")
    assert [line for line in said if not any(one in line for one in late)] == []


def test_digest_in_the_readme_is_that_of_the_page():
    (digest,) = re.findall(r"SHA-256 `(\w{8})…`", PAGES[0].read_text("utf-8"))
    assert f'"{digest}' in (ROOT / "docs/same-noise.md").read_text("utf-8")


@pytest.mark.parametrize("page", ELSEWHERE)
def test_pages_that_are_tested_elsewhere_are(page):
    assert page.removesuffix(".md") in (ROOT / "tests" / ELSEWHERE[page]).read_text()
