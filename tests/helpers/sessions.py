"""Terminal sessions of the documentation: their commands run, their output is compared."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.paths import ROOT


def session(page: str) -> list[tuple[str, list[str]]]:
    """Return each command of a page of docs/, with its output."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
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


def replay(page: str, folder: Path) -> None:
    """Run each command of a page in a folder that holds ``examples``; assert what it prints."""
    (folder / "examples").symlink_to(ROOT / "examples")
    scripts = os.path.dirname(sys.executable)
    if not os.path.exists(os.path.join(scripts, "fastseed")):
        pytest.skip("needs the command fastseed beside python: an installed package")
    excluded = ("FASTSEED_", "PYTHONHASHSEED", "LD_PRELOAD", "RANK", "WORLD_SIZE", "COLUMNS")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(excluded)}
    environment |= {"PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}", "PYTHONUTF8": "1"}
    code = 0
    for command, lines in session(page):
        done = subprocess.run(
            # The exit code of the command before it, for `echo $?`.
            ["bash", "-c", f"(exit {code}); {command}"],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=600,
        )
        code = done.returncode
        assert is_output(done.stdout, lines), f"$ {command}\n{done.stdout}"
