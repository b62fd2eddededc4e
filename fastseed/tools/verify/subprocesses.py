"""Programs that are run to their end, and ended together with all that they have started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

GRACE = 5.0  # seconds between asking programs to end and killing them
_LOOK = 0.03  # seconds between looks whether they have

_Process = subprocess.Popen[bytes]


class Processes:
    """Those that are running. All methods may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._living: set[_Process] = set()
        self._stopped = threading.Event()

    @property
    def stopped(self) -> bool:
        """Whether :meth:`stop` was called: then what has ended was perhaps ended by it."""
        return self._stopped.is_set()

    def run(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        folder: Path,
        timeout: float | None,
    ) -> int | None:
        """Run a program in a session of its own; its exit code, or None if it took too long.

        What it prints goes to files in ``folder`` rather than through pipes, which whatever it
        leaves behind would hold open. What it leaves behind in its process group is ended.

        Raises:
            OSError: it cannot be started.
        """
        with open(folder / "stdout.txt", "wb") as out, open(folder / "stderr.txt", "wb") as err:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                env=dict(environment), start_new_session=True,
            )  # fmt: skip
        try:
            with self._lock:
                self._living.add(process)
            return None if self.stopped else process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None
        finally:
            _end([process])
            with self._lock:
                self._living.discard(process)

    def stop(self) -> None:
        """End what runs, all at once, and let nothing more begin."""
        self._stopped.set()
        with self._lock:
            living = list(self._living)
        _end(living)


def _end(processes: Sequence[_Process]) -> None:
    """End programs and what they have started: ask, and kill what is there after a while."""
    left = [one for one in processes if _lives(one)]
    try:
        for one in left:
            _signal(one, signal.SIGTERM)
        until = time.monotonic() + GRACE
        while left and time.monotonic() < until:
            time.sleep(_LOOK)
            left = [one for one in left if _lives(one)]
    finally:  # also when interrupted once more
        for one in left:
            _signal(one, getattr(signal, "SIGKILL", signal.SIGTERM))
    for one in processes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            one.wait(GRACE)


def _signal(process: _Process, how: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, how)  # its session's leader, so its group has its number
        else:
            process.terminate()


def _lives(process: _Process) -> bool:
    """Whether the program, or anything in its group, runs."""
    if process.poll() is None:
        return True
    if not hasattr(os, "killpg"):
        return False
    try:
        os.killpg(process.pid, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return _has_more_than_zombies(process.pid)


def _has_more_than_zombies(group: int) -> bool:
    """Of a group that is there. Orphans stay zombies where process 1 does not look after them."""
    if not os.path.exists("/proc/self/stat"):
        return True
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            # pid (name) state parent group …, and the name may hold anything
            state, _, found = path.read_text(errors="replace").rpartition(")")[2].split()[:3]
            if int(found) == group and state not in "ZX":
                return True
    return False
