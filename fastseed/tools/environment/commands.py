"""Running other programs: with a time-out, a bound on what they print, and none of them needed."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

LIMIT = 32 << 20  # bytes that a command may print


class Answer(NamedTuple):
    """What a program said (None: nothing that can be used), and why not."""

    out: bytes | None
    problem: str = ""

    @property
    def text(self) -> str:
        """The output as text, "" without one."""
        return (self.out or b"").decode("utf-8", "replace")


class Runner:
    """Runs programs of the PATH, none longer than ``timeout`` seconds, all of them ``budget``.

    A program that hung or is missing is not tried again. What went wrong is in :attr:`problems`
    by program; a missing program is none.
    """

    def __init__(
        self, timeout: float = 10.0, budget: float = 60.0, environ: Mapping[str, str] | None = None
    ) -> None:
        self.timeout = timeout
        self.environ = dict(os.environ if environ is None else environ)
        self.problems: dict[str, str] = {}
        self._dead: dict[str, str] = {}
        self._end = time.monotonic() + budget

    def find(self, program: str) -> str | None:
        """The full path of ``program``; relative entries of the PATH are not looked at."""
        if os.path.isabs(program):
            return program if os.access(program, os.X_OK) else None
        for folder in self.environ.get("PATH", "").split(os.pathsep):
            path = os.path.join(folder, program)
            if os.path.isabs(folder) and os.path.isfile(path) and os.access(path, os.X_OK):
                return path
        return None

    def run(
        self,
        *arguments: str,
        cwd: Path | None = None,
        errors: bool = False,
        environ: Mapping[str, str] | None = None,
    ) -> Answer:
        """What a program prints, with its standard error too if ``errors``; never raises."""
        program = arguments[0]
        if program in self._dead:
            return Answer(None, self._dead[program])
        path = self.find(program)
        if path is None:
            self._dead[program] = f"{program}: not found"
            return Answer(None, self._dead[program])
        limit = min(self.timeout, self._end - time.monotonic())
        if limit <= 0:
            return self._failed(program, "no time left for it")
        whole = {**self.environ, "LC_ALL": "C", **(environ or {})}
        try:
            done = _bounded([path, *arguments[1:]], limit, cwd, errors, whole)
        except OSError as error:
            return self._failed(program, f"cannot be run ({error.strerror})", dead=True)
        if isinstance(done, str):
            return self._failed(program, done, dead=True)
        code, out = done
        if code:
            return self._failed(program, f"ended with {code}")
        return Answer(out)

    def _failed(self, program: str, why: str, dead: bool = False) -> Answer:
        why = f"{Path(program).name}: {why}"
        self.problems[program] = why
        if dead:
            self._dead[program] = why
        return Answer(None, why)


def _bounded(
    command: Sequence[str],
    limit: float,
    cwd: Path | None,
    errors: bool,
    environ: Mapping[str, str],
) -> tuple[int, bytes] | str:
    """Exit code and output, or what was wrong. The process and its children are gone afterwards."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if errors else subprocess.DEVNULL,
        cwd=cwd,
        env=dict(environ),
        start_new_session=True,  # so that its children can be ended with it
    )
    end = time.monotonic() + limit
    try:
        out = _read(process, end)
        if isinstance(out, str):
            return out
        return process.wait(max(0.0, end - time.monotonic())), out
    except subprocess.TimeoutExpired:
        return f"took longer than {limit:g} s"
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def _read(process: subprocess.Popen[bytes], end: float) -> bytes | str:
    """All that the process prints until it closes its output."""
    assert process.stdout is not None
    parts: list[bytes] = []
    size = 0
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while True:
            left = end - time.monotonic()
            if left <= 0 or not selector.select(left):
                raise subprocess.TimeoutExpired(process.args, 0)
            part = os.read(process.stdout.fileno(), 1 << 16)
            if not part:
                return b"".join(parts)
            parts.append(part)
            size += len(part)
            if size > LIMIT:
                return f"printed more than {LIMIT >> 20} MiB"
