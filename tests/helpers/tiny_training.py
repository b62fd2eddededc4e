"""Verifications of a script that starts in 20 ms: it does not import torch, and counts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fastseed.tools import environment, verify
from fastseed.tools.verify.result import Report
from fastseed.tools.verify.runner import Event

SCRIPT = """\
import json, os, sys, time
run, checkpoint, epochs, *rest = sys.argv[1:]
options = dict(zip(rest[::2], rest[1::2]))
name, here = os.path.basename(run), os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(here, "ran"), "a") as file:
    file.write(name + "\\n")
#BEGIN
begin, value = 0, int(options.get("--seed", int.from_bytes(os.urandom(4), "big")))
if "--resume" in options:
    with open(options["--resume"]) as file:
        begin, value = json.load(file)
for step in range(begin, int(epochs)):
    value = (value * 48271 + 11) % 2147483647
    print(json.dumps({"step": step, "loss": value / 7}), flush=True)
with open(checkpoint, "w") as file:
    json.dump([int(epochs), value], file)
#END
"""

ARGUMENTS = ["{run}", "{checkpoint}", "{epochs}", "[", "--resume", "{resume}", "or", "--seed",
             "{seed}", "]"]  # fmt: skip


class Tiny:
    """A folder with the script, and its verifications."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.directory = folder / "runs"
        self.events: list[Event] = []

    def write(self, begin: str = "", end: str = "") -> None:
        """Write the script, with lines at its beginning and its end."""
        text = SCRIPT.replace("#BEGIN\n", begin + "\n").replace("#END\n", end + "\n")
        (self.folder / "train.py").write_text(text)

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-S", str(self.folder / "train.py"), *ARGUMENTS]

    def options(self, **options) -> verify.Options:
        """Return options for one quick run of each experiment."""
        given = {"command": self.command, "directory": self.directory, "epochs": 4, "runs": 1,
                 "timeout": 60, **options}  # fmt: skip
        return verify.Options(**given)

    def verify(self, progress=None, **options) -> Report:
        self.events.clear()
        if not (self.folder / "train.py").exists():
            self.write()
        return verify.verify(self.options(**options), progress or self.events.append)

    def refused(self, error: type[Exception] = ValueError, **options) -> str:
        """Return the message of the error of a verification."""
        with pytest.raises(error) as found:
            self.verify(**options)
        return str(found.value)

    def ran(self) -> list[str]:
        """Return the names of the runs that were started since the last call."""
        path = self.folder / "ran"
        names = path.read_text().split() if path.exists() else []
        path.unlink(missing_ok=True)
        return names

    def run(self, name: str) -> Path:
        return self.directory / "runs" / name


@pytest.fixture
def tiny(tmp_path, monkeypatch) -> Tiny:
    """Return a folder for verifications that do not capture the environment (0.5 s each)."""
    monkeypatch.setattr(environment, "capture", lambda folder: Path(folder).mkdir(parents=True))
    monkeypatch.setattr(environment, "diff", lambda *_: [])
    return Tiny(tmp_path)
