"""Running external programs with a time limit. A program that is missing is not a problem."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

TIMEOUT = 10.0  # seconds for each program

# git writes and fetches nothing, and asks nothing.
_FIXED = {"LC_ALL": "C", "GIT_NO_LAZY_FETCH": "1"}
_FIXED |= {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}


class Runner:
    """Runs programs of the PATH; ``problems`` names those that hung, which are not run again."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        # Hooks of git set variables that are about another repository.
        hooks = {one for one in environment if re.match("GIT_(?!CONFIG)", one)}
        self.environment = {k: v for k, v in environment.items() if k not in hooks} | _FIXED
        self.problems: dict[str, str] = {}

    def run(self, command: Sequence[str], cwd: Path | None = None) -> str | None:
        """Return what a program prints; None if it is missing, fails or hangs.

        The children of a program end with it.
        """
        if command[0] in self.problems:
            return None
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd=cwd,
                env=self.environment,
                start_new_session=True,  # so that its children can be ended with it
            )
        except OSError:
            return None
        with process:
            try:
                data, _ = process.communicate(timeout=TIMEOUT)
            except subprocess.TimeoutExpired:
                self.problems[command[0]] = f"{command[0]}: took longer than {TIMEOUT:g} s"
                return None
            finally:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
        return data.decode("utf-8", "surrogateescape") if process.returncode == 0 else None
