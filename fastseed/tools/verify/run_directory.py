"""The run directory: it keeps the runs, so that an interrupted verification can resume.

``docs/verify.md`` has its files. A run that succeeded has a ``run.json``.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from ..._utils import StateDict, atomic_file, regular_file, strict_json, validation
from .options import Options

_FIXED = ("command", "epochs", "seed", "deterministic", "files")  # what the runs depend on
_LARGEST = 1 << 26  # bytes of a file in the command that is checked for changes


class RunDirectory:
    """The folder of a verification, new or with the runs of the same command.

    Raises:
        ValueError: it holds something else, or runs with other options.
    """

    def __init__(self, options: Options) -> None:
        self.path = Path(options.directory)
        self.options = options
        self.notes: list[str] = []
        self._captured = False
        document = {**options.document(), "files": _file_hashes(options.command)}
        file = self.path / "options.json"
        if file.is_file():
            before = _read(file)
            wrong = next((name for name in _FIXED if before.get(name) != document[name]), None)
            if wrong is not None:
                raise ValueError(
                    f"fastseed.tools.verify: {wrong} must be that of the existing runs: use "
                    f"another directory, or remove {str(self.path)!r}"
                )
        elif self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
            rule = "a new or empty folder, or that of a verification"
            raise validation.value_error("tools.verify", "directory", rule, str(self.path))
        self.path.mkdir(parents=True, exist_ok=True)
        _write(file, document)

    def folder(self, name: str) -> Path:
        """Return the folder of a run."""
        return self.path / "runs" / name

    def record(self, name: str) -> StateDict | None:
        """Return the command and the seconds of a run that succeeded; None if it has to be run."""
        path = self.folder(name) / "run.json"
        return _read(path) if path.exists() else None

    def start(self, name: str) -> Path:
        """Return an empty folder for a run; the first call captures the environment."""
        if not self._captured:
            from .. import environment

            self._captured = True
            try:
                environment.capture(self.path / "sessions" / str(len(self.sessions())))
            except Exception as error:  # the runs do not depend on it
                self.notes.append(f"the environment was not captured: {error}")
        folder = self.folder(name)
        if folder.exists():
            shutil.rmtree(folder)
        folder.mkdir(parents=True)
        return folder

    def finish(self, name: str, record: StateDict) -> None:
        """Keep a run that succeeded."""
        _write(self.folder(name) / "run.json", record)

    def sessions(self) -> list[Path]:
        """Return the captured environments, the oldest first."""
        return sorted((self.path / "sessions").glob("*"), key=lambda one: int(one.name))


def _file_hashes(command: Sequence[str]) -> dict[str, str]:
    """Return the SHA-256 of each file that the command names, above all the script."""
    words = [name for word in command[1:] for name in (word, word.partition("=")[2])]
    files = [Path(name) for name in words if os.path.isfile(name)]  # also --config=FILE
    small = [path for path in files if path.stat().st_size <= _LARGEST]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in small}


def _read(path: Path) -> StateDict:
    reason = "a JSON object"
    try:
        found = strict_json.parse(regular_file.read(path))
    except ValueError as error:
        found, reason = None, str(error)
    if not isinstance(found, dict):
        raise ValueError(f"fastseed.tools.verify: {str(path)!r} must be {reason}: remove it")
    return found


def _write(path: Path, document: StateDict) -> None:
    atomic_file.replace(path, (json.dumps(document, indent=2) + "\n").encode())
