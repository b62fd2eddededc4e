"""Child processes that are ended together with the processes that they started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path

_OUTPUT_LINES = 12  # of a failed run, in an error
GRACE = 5.0  # seconds between SIGTERM and SIGKILL

_Process = subprocess.Popen[bytes]


class Processes:
    """The running processes. All methods may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[_Process] = set()
        self.stopped = False
        """True after ``stop``, which may have ended a process."""

    def run(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        folder: Path,
        timeout: float | None,
    ) -> int | None:
        """Run a program in a session of its own; return its exit code, or None after ``timeout``.

        Its output goes to files in ``folder``; a pipe could be kept open by a process that it
        leaves behind. Processes left in its process group are killed.
        """
        with open(folder / "stdout.txt", "wb") as out, open(folder / "stderr.txt", "wb") as err:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                env=dict(environment), start_new_session=True,
            )  # fmt: skip
        try:
            with self._lock:
                self._running.add(process)
            return None if self.stopped else process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None
        finally:
            _end([process])
            with self._lock:
                self._running.discard(process)

    def stop(self) -> None:
        """End all running processes together, and start no more."""
        self.stopped = True
        with self._lock:
            running = list(self._running)
        _end(running)


def _end(processes: Sequence[_Process]) -> None:
    """End process groups: SIGTERM, and SIGKILL when the first process has ended or is late."""
    try:
        deadline = time.monotonic() + GRACE
        for one in processes:
            _send(one, signal.SIGTERM)
        for one in processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                one.wait(max(0.0, deadline - time.monotonic()))
    finally:  # also after a second interrupt
        for one in processes:
            _send(one, signal.SIGKILL)
        for one in processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                one.wait(GRACE)


def _send(process: _Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)  # the leader of a session: its group has its number


def last_lines(folder: Path) -> str:
    """Return the end of a run's output, for an error."""
    for path in (folder / "stderr.txt", folder / "stdout.txt"):
        with contextlib.suppress(OSError), open(path, errors="replace") as file:
            lines = deque(file, maxlen=_OUTPUT_LINES)
            if lines:
                return f"; the end of {path}:\n  " + "  ".join(lines).rstrip("\n")
    return f"; it printed nothing (in {folder})"
