"""Running external programs with a time limit. A program that is missing is not a problem."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple


class Output(NamedTuple):
    """The standard output of a program; None if it failed, hung or is missing."""

    data: bytes | None

    @property
    def text(self) -> str:
        """The output as text, "" for none."""
        return (self.data or b"").decode("utf-8", "surrogateescape")


class Runner:
    """Runs programs of the PATH, each for ``timeout`` seconds at most.

    ``problems`` has an entry for each program that failed or hung. One that hung is not run again.

    Args:
        timeout: seconds.
        environment: the environment of the programs; by default that of this process.
    """

    def __init__(self, timeout: float = 10.0, environment: Mapping[str, str] | None = None) -> None:
        self.timeout = timeout
        self.environment = dict(os.environ if environment is None else environment)
        self.problems: dict[str, str] = {}
        self._hung: set[str] = set()

    def run(
        self, *command: str, cwd: Path | None = None, environment: Mapping[str, str] | None = None
    ) -> Output:
        """Return the output of a program; never raises. The program's children end with it."""
        folders = self.environment.get("PATH", "").split(os.pathsep)
        search = os.pathsep.join(filter(os.path.isabs, folders))  # never the working folder
        path = shutil.which(command[0], path=search) if search else None
        if path is None or command[0] in self._hung:
            return Output(None)
        whole = {**self.environment, "LC_ALL": "C", **(environment or {})}
        try:
            process = subprocess.Popen(
                [path, *command[1:]],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd=cwd,
                env=whole,
                start_new_session=True,  # so that its children can be ended with it
            )
        except OSError as error:
            return self._failed(command[0], f"cannot be run ({error.strerror})")
        with process:
            try:
                data, _ = process.communicate(timeout=self.timeout)
            except subprocess.TimeoutExpired:
                self._hung.add(command[0])
                return self._failed(command[0], f"took longer than {self.timeout:g} s")
            finally:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
        if process.returncode:
            return self._failed(command[0], f"ended with {process.returncode}")
        return Output(data)

    def _failed(self, program: str, why: str) -> Output:
        self.problems[program] = f"{program}: {why}"
        return Output(None)
