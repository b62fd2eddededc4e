"""The commands of the console blocks in the documentation run, or the page says why they do not.

A block runs in a folder with the first program of the page as ``train.py`` and its first JSON
document as ``config.json``. A comment ``<!-- not run: reason -->`` on the line before a block
leaves it out. Pages that are sessions, with output, are replayed by other tests.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.paths import ROOT
from helpers.processes import clean_environment

REPLAYED = {
    "command-line.md": "examples/test_command_line_session.py",
    "first-difference.md": "examples/test_first_difference.py",
    "lineage.md": "examples/test_find_poisoned_batch.py",
}
_BLOCK = re.compile(r"^(?:<!-- not run: ([^\n]+) -->\n)?```console\n(.*?)^```$", re.M | re.S)


def blocks(page: Path) -> list[tuple[str, str]]:
    """Return each console block of a page with the reason why it is not run, which may be empty."""
    return [(reason, text) for reason, text in _BLOCK.findall(page.read_text("utf-8"))]


PAGES = {
    str(page.relative_to(ROOT)): page
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    if page.name not in REPLAYED and any(not reason for reason, _ in blocks(page))
}


def test_console_blocks_are_found():
    assert "docs/quick-start.md" in PAGES
    assert len(blocks(ROOT / "docs" / "install.md")) == 2


@pytest.mark.parametrize("page", REPLAYED)
def test_console_sessions_are_replayed(page):
    assert f'"{page}"' in (ROOT / "tests" / REPLAYED[page]).read_text()


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_console_blocks_run(page, tmp_path):
    for language, file in (("python", "train.py"), ("json", "config.json")):
        found = re.search(rf"```{language}\n(.*?)```", PAGES[page].read_text("utf-8"), re.DOTALL)
        if found:
            (tmp_path / file).write_text(found[1])
    scripts = tmp_path / "bin"  # the commands of this Python and this checkout
    scripts.mkdir()
    commands = {"fastseed": "-m fastseed", "torchrun": "-m torch.distributed.run", "python": ""}
    for name, arguments in commands.items():
        (scripts / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments} "$@"\n')
        (scripts / name).chmod(0o755)
    path = f"{scripts}{os.pathsep}{os.environ['PATH']}"
    for reason, text in blocks(PAGES[page]):
        if reason:
            continue
        script = "\n".join(line.removeprefix("$ ") for line in text.splitlines())
        done = subprocess.run(
            ["bash", "-e", "-c", script], cwd=tmp_path, stdin=subprocess.DEVNULL, text=True,
            capture_output=True, timeout=300, env=clean_environment(PATH=path),
        )  # fmt: skip
        assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
