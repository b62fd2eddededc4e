"""Child processes that are ended together with the processes that they started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

_OUTPUT_LINES = 12  # of a failed run, in an error
_RANKS = 3  # whose output is shown
_POLL = 0.01  # seconds between two questions whether a process has ended
GRACE = 5.0  # seconds between SIGTERM and SIGKILL


class Process:
    """A program in a session of its own; leaving the block ends it and what it has left behind.

    Its output goes to files in ``folder``; a pipe could be kept open by a process that it leaves
    behind. Errors begin with ``function``, and name the run.
    """

    def __init__(
        self,
        function: str,
        name: str,
        command: tuple[str, ...],
        environment: Mapping[str, str],
        folder: Path,
        timeout: float | None,
    ) -> None:
        self.name, self.command = name, command
        self._function, self._folder, self._timeout = function, folder, timeout
        self._begin = time.perf_counter()
        with open(folder / "stdout.txt", "wb") as out, open(folder / "stderr.txt", "wb") as err:
            try:
                self._process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                    env=dict(environment), start_new_session=True,
                )  # fmt: skip
            except OSError as error:
                message = f"{command[0]!r} cannot be started: {error.strerror}"
                raise RuntimeError(f"fastseed.{function}: {message}") from None

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        end([self])

    def has_ended(self) -> bool:
        """Return True if it has succeeded; RuntimeError if it has failed or is late."""
        code = self._process.poll()
        late = self._timeout is not None and self.seconds > self._timeout
        if code == 0 or (code is None and not late):
            return code == 0
        reason = f"did not end within {self._timeout} seconds"
        if code is not None:
            reason = f"ended with exit code {code}"
        printed = _last_lines(self._folder)
        raise RuntimeError(f"fastseed.{self._function}: run {self.name} {reason}{printed}")

    @property
    def seconds(self) -> float:
        """The time since its start."""
        return time.perf_counter() - self._begin

    def send(self, number: signal.Signals) -> None:
        """Send a signal to its process group."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)  # the leader of a session: its group's number

    def wait_at_most(self, seconds: float) -> None:
        """Wait until the process has ended, however it ends."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(max(0.0, seconds))


def any_ended(processes: Iterable[Process]) -> Process:
    """Return the first that has succeeded; RuntimeError if one fails or is late."""
    while True:
        for process in processes:
            if process.has_ended():
                return process
        time.sleep(_POLL)


def end(processes: Sequence[Process]) -> None:
    """End process groups: SIGTERM, and SIGKILL when the first process has ended or is late."""
    try:
        deadline = time.monotonic() + GRACE
        for one in processes:
            one.send(signal.SIGTERM)
        for one in processes:
            one.wait_at_most(deadline - time.monotonic())
    finally:  # also after a second interrupt
        for one in processes:
            one.send(signal.SIGKILL)
        for one in processes:
            one.wait_at_most(GRACE)


def _last_lines(folder: Path) -> str:
    """Return the end of a run's output, for an error: of each rank that has any, under torchrun."""
    ranks = sorted(folder.glob("ranks/**/stderr.log"), key=lambda path: path.stat().st_mtime)
    found = [text for path in ranks if (text := _tail(path))][:_RANKS]  # first who failed first
    text = "".join(found) or _tail(folder / "stderr.txt") or _tail(folder / "stdout.txt")
    return text or f"; it printed nothing (in {folder})"


def _tail(path: Path) -> str:
    with contextlib.suppress(OSError), open(path, errors="replace") as file:
        lines = deque(file, maxlen=_OUTPUT_LINES)
        if lines:
            return f"; the end of {path}:\n  " + "  ".join(lines).rstrip("\n")
    return ""
