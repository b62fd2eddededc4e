"""Run a program in a session of its own, and end it together with the processes that it started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

OUT, ERR = "stdout.txt", "stderr.txt"
_OUTPUT_LINES = 12  # of a failed run, in an error
_TAIL = 1 << 16  # bytes of its output that are read for them
_LONGEST = 500  # characters of one of them
_RANKS = 3  # whose output is shown
_POLL = 0.01  # seconds between two questions whether a process has ended
GRACE = 5.0  # seconds between SIGTERM and SIGKILL


def run_program(
    name: str,
    command: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    timeout: float | None,
    kill_when: Callable[[Path], bool] | None = None,
) -> bool:
    """Run a program until it ends; its output goes to files in ``folder``.

    Returns whether it was killed with SIGKILL, because ``kill_when(folder)`` was true.
    RuntimeError: it cannot be started, failed, or is late; the message has its last lines.
    """
    begin = time.perf_counter()
    process = None
    try:
        with open(folder / OUT, "wb") as out, open(folder / ERR, "wb") as err:
            try:
                process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                    env=dict(environment), start_new_session=True,
                )  # fmt: skip
            except OSError as error:
                message = f"{command[0]!r} cannot be started: {error.strerror}"
                raise RuntimeError(f"fastseed.verify: {message}") from None
        while (code := process.poll()) is None:
            if kill_when is not None and kill_when(folder):
                _send(process, signal.SIGKILL)
                process.wait()
                return True
            if timeout is not None and time.perf_counter() - begin > timeout:
                break
            time.sleep(_POLL)
    finally:  # also after an interrupt
        if process is not None:
            _end(process)
    if code == 0:
        return False
    reason = f"did not end within {timeout} seconds" if code is None else f"ended with code {code}"
    raise RuntimeError(f"fastseed.verify: run {name} {reason}{_last_lines(folder)}")


def _send(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)  # the leader of a session: its group's number


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a group: SIGTERM, and SIGKILL when its leader has ended, at the latest after GRACE."""
    try:
        _send(process, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE)
    finally:  # also after a second interrupt
        _send(process, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE)


def _last_lines(folder: Path) -> str:
    ranks = sorted(folder.glob("ranks/**/stderr.log"), key=lambda path: path.stat().st_mtime)
    found = [text for path in ranks if (text := _tail(path))][:_RANKS]  # first who failed first
    return "".join(found) or _tail(folder / ERR) or _tail(folder / OUT) or "; it printed nothing"


def _tail(path: Path) -> str:
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _TAIL))
        lines = file.read().decode("utf-8", "replace").splitlines()[-_OUTPUT_LINES:]
    shown = "".join(f"\n  {line[-_LONGEST:]}" for line in lines)
    return f"; the end of {path.name}:{shown}" if lines else ""
