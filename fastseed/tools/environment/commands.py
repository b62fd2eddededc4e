"""Running external programs with a time limit. A program that is missing is not a problem."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

TIMEOUT = 10.0  # seconds for each program


class Runner:
    """Runs programs of the PATH.

    ``problems`` has an entry for each program that failed or hung. One that hung is not run again.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = dict(environment)
        self.problems: dict[str, str] = {}
        self._hung: set[str] = set()

    def run(
        self, *command: str, cwd: Path | None = None, environment: Mapping[str, str] | None = None
    ) -> str | None:
        """Return the output of a program, None if it failed. The program's children end with it."""
        program = command[0]
        path = shutil.which(program, path=self.environment.get("PATH", ""))
        if path is None or program in self._hung:
            return None
        process = subprocess.Popen(
            [path, *command[1:]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=cwd,
            env={**self.environment, "LC_ALL": "C", **(environment or {})},
            start_new_session=True,  # so that its children can be ended with it
        )
        with process:
            try:
                data, _ = process.communicate(timeout=TIMEOUT)
            except subprocess.TimeoutExpired:
                self._hung.add(program)
                self.problems[program] = f"{program}: took longer than {TIMEOUT:g} s"
                return None
            finally:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
        if process.returncode:
            self.problems[program] = f"{program}: ended with {process.returncode}"
            return None
        return data.decode("utf-8", "surrogateescape")
