"""The terminal session in the README, command by command."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
REPORT = Path("proof/report")


def session() -> list[tuple[str, list[str]]]:
    """Each command of the section, with the lines that it is said to print."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    section = text.partition("## Proving it")[2].partition("\n## ")[0]
    found: list[tuple[str, list[str]]] = []
    for block in re.findall(r"^```console\n(.*?)^```$", section, flags=re.M | re.S):
        going_on = False
        for line in block.splitlines():
            if line.startswith("$ ") or going_on:
                text = line.removeprefix("$ ")
                found[-1:] = (
                    [(found[-1][0] + "\n" + text, [])] if going_on else [*found[-1:], (text, [])]
                )
                going_on = text.endswith("\\")
            else:
                found[-1][1].append(line)
    return found


def says(printed: str, lines: list[str]) -> bool:
    """Whether a command printed these lines; ``…`` is any text, alone on a line any lines.

    A run of spaces is as good as another: the width of a column depends on paths.
    """
    pattern = ""
    for line in lines:
        if line == "…":
            pattern += r"(?:.*\n)*?"
        else:
            words = [re.escape(word) for word in re.split(r" +", line)]
            pattern += " +".join(words).replace("…", ".*") + " *\n"
    return re.fullmatch(pattern, printed) is not None


def test_lines_are_compared():
    assert says("a  b\n", ["a b"]) and says("a\nx\ny\nb\n", ["a", "…", "b"])
    assert not says("a c\n", ["a b"]) and not says("a\nb\nc\n", ["a", "b"])
    assert not says("", ["a"]) and says("loss 1.5 of 3\n", ["loss … 3"])


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_the_session_is_what_happens(tmp_path):
    commands = session()
    assert len(commands) == 10
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    scripts = os.path.dirname(sys.executable)
    if not os.path.exists(os.path.join(scripts, "fastseed")):
        pytest.skip("needs the command fastseed beside python: an installed package")
    foreign = ("FASTSEED_", "PYTHONHASHSEED", "LD_PRELOAD", "RANK", "WORLD_SIZE", "COLUMNS")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(foreign)}
    environment |= {"PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}", "PYTHONUTF8": "1"}
    code = 0
    for command, lines in commands:
        done = subprocess.run(
            # The exit code of the command before it, for `echo $?`.
            ["bash", "-c", f"(exit {code}); {command}"],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=600,
        )
        code = done.returncode
        assert says(done.stdout, lines), f"$ {command}\n{done.stdout}"
    assert (tmp_path / REPORT / "curves.png").read_bytes()[:4] == b"\x89PNG"
    page = (tmp_path / REPORT / "report.html").read_text(encoding="utf-8")
    assert "Passed: bit-identical" in page
