"""The terminal session of docs/command-line.md, command by command."""

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
    """Return each command of the page, with its output."""
    text = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    found: list[tuple[str, list[str]]] = []
    for block in re.findall(r"^```console\n(\$ .*?)^```$", text, flags=re.M | re.S):
        continued = False
        for line in block.splitlines():
            if line.startswith("$ ") or continued:
                text = line.removeprefix("$ ")
                found[-1:] = (
                    [(found[-1][0] + "\n" + text, [])] if continued else [*found[-1:], (text, [])]
                )
                continued = text.endswith("\\")
            else:
                found[-1][1].append(line)
    return found


def is_output(printed: str, lines: list[str]) -> bool:
    """Return True if a command printed these lines.

    ``…`` is any text, or any lines if it is alone on a line. The number of spaces does not count:
    the width of a column depends on paths.
    """
    pattern = ""
    for line in lines:
        if line == "…":
            pattern += r"(?:.*\n)*?"
        else:
            words = [re.escape(word) for word in re.split(r" +", line)]
            pattern += " +".join(words).replace("…", ".*") + " *\n"
    return re.fullmatch(pattern, printed) is not None


def test_output_is_compared():
    assert is_output("a  b\n", ["a b"]) and is_output("a\nx\ny\nb\n", ["a", "…", "b"])
    assert not is_output("a c\n", ["a b"]) and not is_output("a\nb\nc\n", ["a", "b"])
    assert not is_output("", ["a"]) and is_output("loss 1.5 of 3\n", ["loss … 3"])


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_the_session_of_the_page(tmp_path):
    commands = session()
    assert any("fastseed verify" in command for command, _ in commands)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    scripts = os.path.dirname(sys.executable)
    if not os.path.exists(os.path.join(scripts, "fastseed")):
        pytest.skip("needs the command fastseed beside python: an installed package")
    excluded = ("FASTSEED_", "PYTHONHASHSEED", "LD_PRELOAD", "RANK", "WORLD_SIZE", "COLUMNS")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(excluded)}
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
        assert is_output(done.stdout, lines), f"$ {command}\n{done.stdout}"
    assert (tmp_path / REPORT / "curves.png").read_bytes()[:4] == b"\x89PNG"
    page = (tmp_path / REPORT / "report.html").read_text(encoding="utf-8")
    assert "Passed: bit-identical" in page
