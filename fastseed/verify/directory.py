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
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .. import streams
from .experiments import Plan

FORMAT = 1
"""Of the files of JSON in a run directory."""

_FIXED = ("command", "epochs", "seed", "deterministic")  # what the runs that are there depend on
_LARGEST = 1 << 26  # bytes of a file that is named in the command and watched for changes


class RunDirectory:
    """A folder for the runs of one plan. Use :func:`opened`."""

    def __init__(self, path: Path, plan: Plan) -> None:
        self.path = path
        self.plan = plan
        self.files = _files(plan)
        self._session: int | None = None

    def folder(self, name: str) -> Path:
        """Where a run's files are."""
        return self.path / "runs" / name

    def kept(self, name: str) -> dict[str, Any] | None:
        """The record of a run that ended well; None if it has to be run (again).

        Raises:
            ValueError: a file that its command names has changed since.
        """
        record = _read(self.folder(name) / "run.json")
        if record is None:
            return None
        for file, sha in record.get("files", {}).items():
            if self.files.get(file, sha) != sha:
                raise ValueError(
                    f"fastseed.verify: directory must hold runs of the files that are there now, "
                    f"but {file} has changed since {name}: restart, or give another directory"
                )
        return record

    def begin(self, name: str) -> Path:
        """An empty folder for a run."""
        folder = self.folder(name)
        if folder.exists():
            shutil.rmtree(folder)
        folder.mkdir(parents=True)
        return folder

    def finish(self, name: str, record: dict[str, Any]) -> None:
        """Keep a run that ended well."""
        record = {"format": FORMAT, "name": name, "files": self.files, **record}
        _write(self.folder(name) / "run.json", record)

    def session(self) -> int:
        """The number of this session, whose environment is captured when it is first asked for."""
        if self._session is None:
            from .. import environment

            (self.path / "sessions").mkdir(exist_ok=True)
            there = self.sessions()
            number = int(there[-1].name) + 1 if there else 0
            environment.capture(self.path / "sessions" / str(number))
            self._session = number
        return self._session

    def sessions(self) -> list[Path]:
        """The environments that were captured, from the first on."""
        found = [one for one in (self.path / "sessions").glob("*") if one.name.isdigit()]
        return sorted(found, key=lambda one: int(one.name))


@contextlib.contextmanager
def opened(path: str | os.PathLike[str], plan: Plan, *, restart: bool) -> Iterator[RunDirectory]:
    """A run directory, for one process at a time.

    Raises:
        ValueError: it holds something else, or the runs of another plan.
        RuntimeError: another process is verifying there.
    """
    folder = Path(path).absolute()
    there = _read(folder / "plan.json")
    if there is None and folder.exists() and any(folder.iterdir()):
        raise ValueError(
            "fastseed.verify: directory must be new, empty, or that of a verification, "
            f"got {streams.describe(str(folder))}"
        )
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder):
        if restart:
            for name in ("runs", "sessions", "report"):
                shutil.rmtree(folder / name, ignore_errors=True)
        elif there is not None:
            _check_same(there.get("plan", {}), plan)
        _write(folder / "plan.json", {"format": FORMAT, "plan": plan.document()})
        (folder / "runs").mkdir(exist_ok=True)
        yield RunDirectory(folder, plan)


def _check_same(there: dict[str, Any], plan: Plan) -> None:
    new = plan.document()
    for name in _FIXED:
        if there.get(name) != new[name]:
            raise ValueError(
                f"fastseed.verify: {name} must be that of the runs in the directory, "
                f"{streams.describe(there.get(name))}, got {streams.describe(new[name])}: "
                "restart, or give another directory"
            )


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    try:
        import fcntl
    except ImportError:  # no such locks there: two processes at once are the user's care
        yield
        return
    with open(folder / "lock", "a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise RuntimeError(
                "fastseed.verify: directory must be used by one process at a time, and another is "
                f"at work in {streams.describe(str(folder))}: wait for it"
            ) from None
        yield


def _files(plan: Plan) -> dict[str, str]:
    """SHA-256 of each file that the command names: the script above all."""
    found = {}
    for word in plan.command[1:]:
        with contextlib.suppress(OSError, ValueError):
            if os.path.isfile(word) and os.path.getsize(word) <= _LARGEST:
                found[word] = hashlib.sha256(Path(word).read_bytes()).hexdigest()
    return found


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"fastseed.verify: {str(path)!r} must be a file of a verification, got {error}"
        ) from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise ValueError(
            f"fastseed.verify: {str(path)!r} must be a file of a verification in format {FORMAT}"
        )
    return found


def _write(path: Path, document: dict[str, Any]) -> None:
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    partial.replace(path)
