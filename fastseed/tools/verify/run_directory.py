"""The run directory: what was run is kept, so that a verification can be interrupted and gone on.

plan.json                 what was asked for
runs/<experiment>-<k>/    one run: run.json when it ended well, stdout.txt, stderr.txt, its files
sessions/<n>/             the environment of the n-th time that runs were started here
report/                   see reports/
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..._utils import atomic_file, strict_json, validation
from .plan import Plan

FORMAT = 1
"""Of the files of JSON in a run directory."""

_FIXED = ("command", "epochs", "seed", "deterministic")  # what the runs that are there depend on
_LOCK = "lock"
_LARGEST = 1 << 26  # bytes of a file that is named in the command and watched for changes


class RunDirectory:
    """A folder for the runs of one plan. Use :func:`opened`."""

    def __init__(self, path: Path, plan: Plan) -> None:
        self.path = path
        self.plan = plan
        self.files = _files(plan)
        self.notes: list[str] = []
        self._session: int | None = None

    def folder(self, name: str) -> Path:
        """Where a run's files are."""
        return self.path / "runs" / name

    def kept(self, name: str) -> dict[str, Any] | None:
        """The record of a run that ended well; None if it has to be run (again).

        Raises:
            ValueError: a file that its command names has changed since.
        """
        path = self.folder(name) / "run.json"
        record = _read(path)
        if record is None:
            return None
        if not _is_record(record, name):
            raise ValueError(
                f"fastseed.tools.verify: {str(path)!r} must be the record of run {name}: "
                "restart, or remove it"
            )
        for file, sha in record["files"].items():
            if self.files.get(file, sha) != sha:
                raise ValueError(
                    f"fastseed.tools.verify: directory must hold runs of the files that are there now, "
                    f"but {file} has changed since {name}: restart, or give another directory"
                )
        return record

    def begin(self, name: str) -> Path:
        """An empty folder for a run."""
        folder = self.folder(name)
        _remove(folder)
        folder.mkdir(parents=True)
        return folder

    def forget(self, name: str) -> None:
        """Have a run made again, whatever becomes of this session."""
        _remove(self.folder(name) / "run.json")

    def changed(self) -> list[str]:
        """The files that the command names and that are others now than when this began."""
        now = _files(self.plan)
        return [name for name, sha in self.files.items() if now.get(name) != sha]

    def finish(self, name: str, record: dict[str, Any]) -> None:
        """Keep a run that ended well."""
        record = {"format": FORMAT, "name": name, "files": self.files, **record}
        _write(self.folder(name) / "run.json", record)

    def session(self) -> int:
        """The number of this session, whose environment is captured when it is first asked for."""
        if self._session is None:
            from .. import environment

            there = self.sessions()
            self._session = int(there[-1].name) + 1 if there else 0
            folder = self.path / "sessions" / str(self._session)
            try:
                folder.parent.mkdir(exist_ok=True)
                environment.capture(folder)
            except Exception as error:  # whatever is wrong with it: it is the runs that count
                self.notes.append(f"the environment was not captured: {error}")
        return self._session

    def sessions(self) -> list[Path]:
        """The environments that were captured, from the first on."""
        found = [
            one
            for one in (self.path / "sessions").glob("*")
            if re.fullmatch("[0-9]{1,9}", one.name) and one.is_dir()
        ]
        return sorted(found, key=lambda one: int(one.name))


@contextlib.contextmanager
def opened(path: str | os.PathLike[str], plan: Plan, *, restart: bool) -> Iterator[RunDirectory]:
    """A run directory, for one process at a time.

    Raises:
        ValueError: it holds something else, or the runs of another plan.
        RuntimeError: another process is verifying there.
    """
    folder = _checked(path)
    if _read_plan(folder) is None and folder.exists():
        others = {one.name for one in folder.iterdir()} - {_LOCK, "plan.partial"}
        if others:
            raise ValueError(
                "fastseed.tools.verify: directory must be new, empty, or that of a verification, "
                f"got {validation.describe(str(folder))}"
            )
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder):
        there = _read_plan(folder)  # nobody else writes it from here on
        if restart:
            for name in ("runs", "sessions", "report"):
                _remove(folder / name)
        elif there is not None:
            _check_same(there, plan)
        _write(folder / "plan.json", {"format": FORMAT, "plan": plan.document()})
        (folder / "runs").mkdir(exist_ok=True)
        yield RunDirectory(folder, plan)


def _checked(path: object) -> Path:
    if not isinstance(path, (str, os.PathLike)) or isinstance(os.fspath(path), bytes):
        raise TypeError(
            "fastseed.tools.verify: directory must be a path, "
            f"got {validation.describe(path)} of type {type(path).__name__}"
        )
    folder = Path(path).absolute()
    if "\0" in str(folder) or not os.fspath(path):
        raise ValueError(
            f"fastseed.tools.verify: directory must be a path, got {validation.describe(os.fspath(path))}"
        )
    if folder.exists() and not folder.is_dir():
        raise ValueError(
            f"fastseed.tools.verify: directory must be a folder, got {validation.describe(str(folder))}"
        )
    return folder


def _check_same(there: dict[str, Any], plan: Plan) -> None:
    new = plan.document()
    for name in _FIXED:
        if there.get(name) != new[name]:
            was, is_ = _parting(there.get(name), new[name])
            raise ValueError(
                f"fastseed.tools.verify: {name} must be that of the runs in the directory, {was}, "
                f"got {is_}: restart, or give another directory"
            )


def _parting(was: Any, new: Any) -> tuple[str, str]:
    """Two values in words: of lists, what stands where they part."""
    if not isinstance(was, list) or not isinstance(new, list):
        return validation.describe(was), validation.describe(new)
    at = next((i for i, (a, b) in enumerate(zip(was, new, strict=False)) if a != b), None)
    at = min(len(was), len(new)) if at is None else at
    shown = [validation.describe(one[at]) if at < len(one) else "nothing" for one in (was, new)]
    return f"with {shown[0]} at {at}", shown[1]


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    try:
        import fcntl
    except ImportError:  # no such locks there: two processes at once are the user's care
        yield
        return
    with open(folder / _LOCK, "a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RuntimeError(
                "fastseed.tools.verify: directory must be used by one process at a time, and another is "
                f"at work in {validation.describe(str(folder))}: wait for it"
            ) from None
        except OSError:  # a file system without locks
            pass
        yield


def _files(plan: Plan) -> dict[str, str]:
    """SHA-256 of each file that the command names: the script above all."""
    found = {}
    for word in plan.command[1:]:
        for name in dict.fromkeys((word, word.partition("=")[2])):  # also --config=FILE
            with contextlib.suppress(OSError, ValueError):
                if os.path.isfile(name) and os.path.getsize(name) <= _LARGEST:
                    found[name] = hashlib.sha256(Path(name).read_bytes()).hexdigest()
    return found


def _is_record(record: dict[str, Any], name: str) -> bool:
    """Whether all is there that is used of it; the file may hold anything."""
    command, files, seconds = (record.get(key) for key in ("command", "files", "seconds"))
    return (
        record.get("name") == name
        and isinstance(command, list)
        and all(isinstance(word, str) for word in command)
        and isinstance(files, dict)
        and isinstance(seconds, float)
        and 0 <= seconds < math.inf
    )


def _read_plan(folder: Path) -> dict[str, Any] | None:
    path = folder / "plan.json"
    found = _read(path)
    if found is None:
        return None
    there = found.get("plan")
    if not isinstance(there, dict) or not there.keys() >= set(_FIXED):
        raise ValueError(f"fastseed.tools.verify: {str(path)!r} must be the plan of a verification")
    return there


def _remove(path: Path) -> None:
    """Whatever it is; of a link the link alone."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found = strict_json.parse(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except IsADirectoryError:
        raise ValueError(
            f"fastseed.tools.verify: {str(path)!r} must be a file of a verification, got a folder"
        ) from None
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"fastseed.tools.verify: {str(path)!r} must be a file of a verification, got {error}"
        ) from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise ValueError(
            f"fastseed.tools.verify: {str(path)!r} must be a file of a verification in format {FORMAT}"
        )
    return found


def _write(path: Path, document: dict[str, Any]) -> None:
    atomic_file.replace(path, (json.dumps(document, indent=2) + "\n").encode())
