"""The commands of the console blocks in the documentation run, or the page says why they do not.

A block runs in a folder with the first program of the page as ``train.py`` and its first JSON
document as ``config.json``. A comment ``<!-- not run: reason -->`` on the line before a block
leaves it out. Pages that are sessions are replayed, and their output is compared.
"""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.paths import ROOT
from helpers.processes import Script, clean_environment
from helpers.sessions import is_output, replay, session

SESSIONS = ("command-line.md", "first-difference.md", "lineage.md")
_BLOCK = re.compile(r"^(?:<!-- not run: ([^\n]+) -->\n)?```console\n(.*?)^```$", re.M | re.S)


def blocks(page: Path) -> list[tuple[str, str]]:
    """Return each console block of a page with the reason why it is not run, which may be empty."""
    return [(reason, text) for reason, text in _BLOCK.findall(page.read_text("utf-8"))]


PAGES = {
    str(page.relative_to(ROOT)): page
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    if page.name not in SESSIONS and any(not reason for reason, _ in blocks(page))
}


def test_console_blocks_are_found():
    assert "docs/quick-start.md" in PAGES
    assert len(blocks(ROOT / "docs" / "install.md")) == 2


def test_output_is_compared():
    assert is_output("a  b\n", ["a b"]) and is_output("a\nx\ny\nb\n", ["a", "…", "b"])
    assert not is_output("a c\n", ["a b"]) and not is_output("a\nb\nc\n", ["a", "b"])
    assert not is_output("", ["a"]) and is_output("loss 1.5 of 3\n", ["loss … 3"])


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", SESSIONS)
def test_console_sessions_are_replayed(page, tmp_path):
    replay(page, tmp_path)


def test_the_session_of_the_command_line_has_every_command():
    commands = " ".join(command for command, _ in session("command-line.md"))
    assert all(f"fastseed {name} " in commands for name in ("run", "check", "diff"))


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


(SCRIPT,) = re.findall(
    r"```python\n(.*?)```", (ROOT / "docs" / "quick-start.md").read_text("utf-8"), re.DOTALL
)
# The process ends while it saves for the nth time: before or after the file gets its name.
KILLED = """
import os, signal, sys
saves, replace = 0, os.replace
last, moment = int(sys.argv.pop(1)), sys.argv.pop(1)

def replace_or_die(source, target):
    global saves
    saves += 1
    if saves == last and moment == "after":
        replace(source, target)
    if saves == last:
        os.kill(os.getpid(), signal.SIGKILL)
    replace(source, target)

os.replace = replace_or_die
"""
PARAMETERS = """
print([parameter.tolist() for parameter in model.parameters()])
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """The script, which dies on request and prints its parameters; and what a whole run prints."""
    folder = tmp_path_factory.mktemp("script")
    program = folder / "train.py"
    program.write_text(KILLED + SCRIPT + PARAMETERS)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        done = Script(program, 0, "").wait()
    assert done.returncode == 0 and len(done.stdout.splitlines()) == 4, done.stderr
    return program, done.stdout.splitlines()


@pytest.mark.slow
@pytest.mark.parametrize(("save", "moment"), [(1, "after"), (6, "before"), (8, "after")])
def test_script_that_was_killed_ends_like_one_that_was_not(
    program, tmp_path, monkeypatch, save, moment
):
    """An epoch has four saves: after the eighth, a validation and the last epoch follow."""
    monkeypatch.chdir(tmp_path)
    file, whole = program
    assert Script(file, save, moment).wait().returncode == -signal.SIGKILL
    done = Script(file, 0, "").wait()
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-2:] == whole[-2:]  # the last validation, every parameter
