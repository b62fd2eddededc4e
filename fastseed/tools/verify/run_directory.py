"""The run directory: it keeps the runs, so that an interrupted verification can resume.

options.json              the options
runs/<experiment>-<k>/    one run: run.json if it succeeded, stdout.txt, stderr.txt, its files
sessions/<n>/             the environment of the n-th session
report/                   see reports/
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..._utils import atomic_file, strict_json, validation
from .options import Options

FORMAT = 1

_FIXED = ("command", "epochs", "seed", "deterministic")  # what the existing runs depend on
_LOCK = "lock"
_LARGEST = 1 << 26  # bytes of a file in the command that is checked for changes


class RunDirectory:
    """The folder of a verification; see :func:`open_directory`."""

    def __init__(self, path: Path, options: Options) -> None:
        self.path = path
        self.options = options
        self.notes: list[str] = []
        self._files = _file_hashes(options)
        self._captured = False

    def folder(self, name: str) -> Path:
        """Return the folder of a run."""
        return self.path / "runs" / name

    def record(self, name: str) -> dict[str, Any] | None:
        """Return the record of a run that succeeded; None if it has to be run.

        Raises:
            ValueError: the record is damaged, or a file in its command has changed since.
        """
        path = self.folder(name) / "run.json"
        record = _read(path)
        if record is None:
            return None
        try:
            name, seconds, files = record["name"], float(record["seconds"]), dict(record["files"])
            record = {"command": [str(word) for word in record["command"]], "seconds": seconds}
        except (KeyError, TypeError, ValueError):
            raise _unreadable(path, "fields are missing") from None
        for file, digest in files.items():
            if self._files.get(file, digest) != digest:
                raise ValueError(
                    f"fastseed.tools.verify: {file} has changed since run {name}: restart, or use "
                    "another directory"
                )
        return record

    def start(self, name: str) -> Path:
        """Return an empty folder for a run; the first call captures the environment."""
        if not self._captured:
            self._captured = True
            self._capture()
        folder = self.folder(name)
        _remove(folder)
        folder.mkdir(parents=True)
        return folder

    def finish(self, name: str, command: tuple[str, ...], seconds: float) -> dict[str, Any]:
        """Keep a run that succeeded; return its record."""
        record = {"name": name, "files": self._files, "command": list(command), "seconds": seconds}
        _write(self.folder(name) / "run.json", record)
        return record

    def discard(self, name: str) -> None:
        """Discard the record of a run, so that it is run again."""
        _remove(self.folder(name) / "run.json")

    def changed(self) -> list[str]:
        """Return the files in the command that have changed since the directory was opened."""
        now = _file_hashes(self.options)
        return [name for name, digest in self._files.items() if now.get(name) != digest]

    def sessions(self) -> list[Path]:
        """Return the captured environments, the oldest first."""
        found = [one for one in (self.path / "sessions").glob("*") if one.name.isdecimal()]
        return sorted(found, key=lambda one: int(one.name))

    def _capture(self) -> None:
        from .. import environment

        sessions = self.sessions()
        number = int(sessions[-1].name) + 1 if sessions else 0
        try:
            (self.path / "sessions").mkdir(exist_ok=True)
            environment.capture(self.path / "sessions" / str(number))
        except Exception as error:  # the runs do not depend on it
            self.notes.append(f"the environment was not captured: {error}")


@contextlib.contextmanager
def open_directory(options: Options) -> Iterator[RunDirectory]:
    """Open the run directory for one process at a time.

    Raises:
        ValueError: it holds something else, or runs with other options.
        RuntimeError: another process uses it.
    """
    folder = Path(options.directory)
    unknown = folder.exists() and _read(folder / "options.json") is None
    if unknown and (not folder.is_dir() or {one.name for one in folder.iterdir()} - {_LOCK}):
        rule = "a new or empty folder, or that of a verification"
        raise validation.value_error("tools.verify", "directory", rule, str(folder))
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder):
        existing = _read(folder / "options.json")
        if options.restart:
            for name in ("runs", "sessions", "report"):
                _remove(folder / name)
        elif existing is not None:
            _check_same(existing.get("options"), options)
        _write(folder / "options.json", {"options": options.document()})
        (folder / "runs").mkdir(exist_ok=True)
        yield RunDirectory(folder, options)


def _check_same(existing: Any, options: Options) -> None:
    new = options.document()
    for name in _FIXED:
        before, now = existing.get(name) if isinstance(existing, dict) else None, new[name]
        if before == now:
            continue
        where = ""
        if isinstance(before, list) and isinstance(now, list):  # show the word that differs
            i = next((i for i, (a, b) in enumerate(zip(before, now)) if a != b), -1)  # noqa: B905
            if i >= 0:
                where, before, now = f"[{i}]", before[i], now[i]
        raise ValueError(
            f"fastseed.tools.verify: {name}{where} must be {validation.describe(before)}, as for "
            f"the existing runs, got {validation.describe(now)}: restart, or use another directory"
        )


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    try:
        import fcntl
    except ImportError:  # Windows: no lock
        yield
        return
    with open(folder / _LOCK, "a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RuntimeError(
                f"fastseed.tools.verify: another process uses {str(folder)!r}: wait for it to end, "
                "or use another directory"
            ) from None
        except OSError:  # a file system without locks
            pass
        yield


def _file_hashes(options: Options) -> dict[str, str]:
    """Return the SHA-256 of each file that the command names, above all the script."""
    found = {}
    for word in options.command[1:]:
        for name in (word, word.partition("=")[2]):  # also --config=FILE
            with contextlib.suppress(OSError, ValueError):
                if os.path.isfile(name) and os.path.getsize(name) <= _LARGEST:
                    found[name] = hashlib.sha256(Path(name).read_bytes()).hexdigest()
    return found


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _read(path: Path) -> dict[str, Any] | None:
    """Return a document of a run directory; None if the file does not exist."""
    try:
        found = strict_json.parse(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (IsADirectoryError, ValueError) as error:
        raise _unreadable(path, str(error)) from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise _unreadable(path, f"its format is not {FORMAT}")
    return found


def _unreadable(path: Path, reason: str) -> ValueError:
    return ValueError(
        f"fastseed.tools.verify: {str(path)!r} is not a file of a verification ({reason}): "
        "remove it, or use another directory"
    )


def _write(path: Path, document: dict[str, Any]) -> None:
    text = json.dumps({"format": FORMAT, **document}, indent=2) + "\n"
    atomic_file.replace(path, text.encode())
