"""Child processes that are ended together with the processes that they started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

GRACE = 5.0  # seconds between SIGTERM and SIGKILL
_POLL = 0.03  # seconds

_Process = subprocess.Popen[bytes]


class Processes:
    """The running processes. All methods may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[_Process] = set()
        self._stopped = threading.Event()

    @property
    def stopped(self) -> bool:
        """True after :meth:`stop`, which may have ended a process."""
        return self._stopped.is_set()

    def run(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        folder: Path,
        timeout: float | None,
    ) -> int | None:
        """Run a program in a session of its own; return its exit code, or None after ``timeout``.

        Its output goes to files in ``folder``; a pipe could be kept open by a process that it
        leaves behind. Processes left in its process group are ended.
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
            end([process])
            with self._lock:
                self._running.discard(process)

    def stop(self) -> None:
        """End all running processes together, and start no more."""
        self._stopped.set()
        with self._lock:
            running = list(self._running)
        end(running)


def end(processes: Sequence[_Process]) -> None:
    """End processes and their process groups: SIGTERM, and SIGKILL after :data:`GRACE`."""
    left = [one for one in processes if _is_running(one)]
    try:
        for one in left:
            _send(one, signal.SIGTERM)
        deadline = time.monotonic() + GRACE
        while left and time.monotonic() < deadline:
            time.sleep(_POLL)
            left = [one for one in left if _is_running(one)]
    finally:  # also after a second interrupt
        for one in left:
            _send(one, getattr(signal, "SIGKILL", signal.SIGTERM))
    for one in processes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            one.wait(GRACE)


def _send(process: _Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, number)  # the leader of a session: its group has its number
        else:
            process.terminate()


def _is_running(process: _Process) -> bool:
    """Return True if the process or a process in its group is running."""
    if process.poll() is None:
        return True
    if not hasattr(os, "killpg"):
        return False
    try:
        os.killpg(process.pid, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return has_running(process.pid)


def has_running(group: int) -> bool:
    """Return True if a process group has a process that is not a zombie.

    In a container without an init process, orphans remain zombies.
    """
    if not os.path.exists("/proc/self/stat"):
        return True
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            # pid (name) state parent group ...; the name may contain anything
            state, _, found = path.read_text(errors="replace").rpartition(")")[2].split()[:3]
            if int(found) == group and state not in "ZX":
                return True
    return False
