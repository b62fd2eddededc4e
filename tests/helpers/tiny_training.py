"""Verifications of a script that starts in 20 ms: it imports no torch, and counts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fastseed.tools import environment, verify

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

PLACES = ["{run}", "{checkpoint}", "{epochs}", "[", "--resume", "{resume}", "or", "--seed",
          "{seed}", "]"]  # fmt: skip


class Tiny:
    """A folder with the script, and its verifications."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.directory = folder / "runs"
        self.events: list[verify.Event] = []

    def write(self, begin: str = "", end: str = "", text: str = SCRIPT) -> None:
        """The script, with lines at its beginning and its end."""
        text = text.replace("#BEGIN\n", begin + "\n").replace("#END\n", end + "\n")
        (self.folder / "train.py").write_text(text)

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-S", str(self.folder / "train.py"), *PLACES]

    def verify(self, **options) -> verify.Report:
        self.events.clear()
        if not (self.folder / "train.py").exists():
            self.write()
        given = {"directory": self.directory, "epochs": 4, "runs": 1, "probe": False, "timeout": 60,
                 "progress": self.events.append, **options}  # fmt: skip
        return verify.verify(given.pop("command", self.command), **given)

    def ran(self) -> list[str]:
        """The names of the runs that were started since the last call."""
        path = self.folder / "ran"
        names = path.read_text().split() if path.exists() else []
        path.unlink(missing_ok=True)
        return names

    def run(self, name: str) -> Path:
        return self.directory / "runs" / name


def refused(tiny: Tiny, error: type[Exception] = ValueError, **options) -> str:
    with pytest.raises(error) as found:
        tiny.verify(**options)
    return str(found.value)


@pytest.fixture
def tiny(tmp_path, monkeypatch) -> Tiny:
    """Without captures of the environment, which take half a second each."""
    monkeypatch.setattr(environment, "capture", lambda folder: Path(folder).mkdir())
    monkeypatch.setattr(environment, "diff", lambda *_: [])
    return Tiny(tmp_path)
