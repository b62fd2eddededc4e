"""Start the ranks of a job, wait for them, and leave none behind."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

MARK = "FASTSEED_DEMO_JOB"  # in the environment of a job's processes, of every generation
SET_BY_LAUNCHERS = {
    *("RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK"),
    *("WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE"),
    *("MASTER_ADDR", "MASTER_PORT"),
}


class JobFailed(RuntimeError):
    """A process of the job failed or did not end in time; the message holds what it printed."""


@dataclass(frozen=True)
class Command:
    """One process to start, and what its environment has beyond ours."""

    argv: list[str]
    environment: dict[str, str] = field(default_factory=dict)


def with_torchrun(script: Path, arguments: list[str], ranks: int) -> list[Command]:
    """One launcher, which starts the ranks."""
    launcher = ["torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    return [Command([sys.executable, "-m", *launcher, str(script), *arguments])]


def by_hand(script: Path, arguments: list[str], ranks: int) -> list[Command]:
    """Start one command per rank; only their environments differ."""
    job = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    argv = [sys.executable, str(script), *arguments]
    return [Command(argv, {**job, "RANK": str(rank)}) for rank in range(ranks)]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run_job(
    commands: list[Command],
    output: Path,
    timeout: float,
    tick: Callable[[], None] = lambda: None,
) -> float:
    """Run the commands side by side, their output in one file, and return the seconds it took.

    ``tick`` is called several times a second. Raises JobFailed if one of them fails, or if they
    are not all done after ``timeout`` seconds. Either way nothing that they started runs on.
    """
    mark = uuid.uuid4().hex
    begin = time.monotonic()
    processes: list[subprocess.Popen] = []
    try:
        with output.open("wb") as file:
            for command in commands:
                processes.append(start(command, mark, file))
        while None in (codes := [process.poll() for process in processes]):
            if any(codes):  # the others may wait for the one that failed, for ever
                break
            if time.monotonic() - begin > timeout:
                raise JobFailed(describe(commands, output, f"not done after {timeout:g} s"))
            tick()
            time.sleep(0.1)
        if any(codes):
            raise JobFailed(describe(commands, output, f"exit codes {codes}"))
    finally:
        stop(processes, mark)
    tick()
    return time.monotonic() - begin


def start(command: Command, mark: str, output: object) -> subprocess.Popen:
    inherited = {k: v for k, v in os.environ.items() if k not in SET_BY_LAUNCHERS}
    return subprocess.Popen(
        command.argv,
        env={**inherited, "OMP_NUM_THREADS": "1", **command.environment, MARK: mark},
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def stop(processes: list[subprocess.Popen], mark: str, grace: float = 10.0) -> None:
    """End what still runs of a job: kindly first, since torchrun then ends its own ranks."""
    for process in processes:
        if process.poll() is None:
            process.terminate()
    deadline = time.monotonic() + grace
    while None in [process.poll() for process in processes] and time.monotonic() < deadline:
        time.sleep(0.1)
    for process in processes:
        process.kill()
        process.wait()
    while (orphans := members(mark)) and time.monotonic() < deadline + grace:
        for orphan in orphans:
            with contextlib.suppress(ProcessLookupError):
                os.kill(orphan, signal.SIGKILL)
        time.sleep(0.1)


def members(mark: str) -> list[int]:
    """Return the living processes that carry the mark (Linux only)."""
    entry = f"{MARK}={mark}".encode()
    found = []
    for environment in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):  # not ours to read, or gone by now
            if entry in environment.read_bytes().split(b"\0"):
                found.append(int(environment.parent.name))
    return found


def describe(commands: list[Command], output: Path, what: str) -> str:
    printed = output.read_text(encoding="utf-8", errors="replace").rstrip()
    return f"{what}: {' '.join(commands[0].argv)}\n{printed or '(no output)'}"
