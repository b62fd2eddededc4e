"""Kill the workers and machines of a job, by a schedule that a seed decides.

Under torchrun a machine is an agent with its worker. The store through which machines find each
other is kept by this process, as a cluster's scheduler would keep it, so that any of them may fail.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch.distributed as dist

from .launch import Command, JobFailed, members, start, stop
from .lineage import Attempt, read_attempt

T = TypeVar("T")
MACHINES = 2
PATIENCE = 300.0  # seconds for a restart, or a quarter of the training; a tenth is usual
KINDS = {
    "worker": "worker killed",
    "machine": "machine lost",
    "replace": "machine lost and replaced",
    "leave": "machine left",
    "join": "machine joined",
}
KILLS = ("worker", "machine", "replace")  # by SIGKILL


@dataclass(frozen=True)
class Event:
    kind: str  # of KINDS
    machine: int  # which one; of a worker, its rank where there are two
    steps: int  # that the attempt has trained before


def schedule(seed: int, kills: int, *, workers_only: bool = False) -> list[Event]:
    """Return the events up to the last of ``kills`` kills: a function of the seed."""
    others = 0 if workers_only else 1
    rng = random.Random(seed)
    present, events = set(range(MACHINES)), []
    while sum(event.kind in KILLS for event in events) < kills:
        if len(present) == MACHINES:
            kind = rng.choices(["worker", "machine", "replace", "leave"], [6, *[others] * 3])[0]
        else:
            kind = rng.choice(["worker", "join"])
        machine = rng.choice(sorted(set(range(MACHINES)) - present if kind == "join" else present))
        events.append(Event(kind, machine, rng.randint(1, 20)))
        if kind in ("machine", "leave"):
            present.remove(machine)
        elif kind == "join":
            present.add(machine)
    return events


class Job:
    """A training job on machines that can be stopped and started."""

    def __init__(self, command: Command, out: Path, machines: int) -> None:
        self.command, self.out = command, out
        self.first, self.seen = range(machines), 0
        self.machines: dict[int, tuple[subprocess.Popen, str]] = {}

    def world_size(self) -> int:
        """Return the number of ranks that the job should have now."""
        return len(self.machines) if len(self.first) > 1 else MACHINES

    def __enter__(self) -> Job:
        for machine in self.first:
            self.join(machine)
        return self

    def __exit__(self, *_: object) -> None:
        for machine in list(self.machines):
            self.kill(machine)

    def join(self, machine: int) -> None:
        mark = uuid.uuid4().hex
        with (self.out / f"machine-{machine}.log").open("ab") as output:
            self.machines[machine] = start(self.command, mark, output), mark

    def kill(self, machine: int) -> None:
        """End all processes of a machine at once."""
        agent, mark = self.machines.pop(machine)
        for process in members(mark):
            end(process)
        agent.wait()

    def leave(self, machine: int) -> None:
        agent, mark = self.machines.pop(machine)
        stop([agent], mark, grace=PATIENCE)

    def run(self, event: Event) -> Attempt:
        """Wait until the job has come to the event, and let it happen; return the attempt."""
        attempt = self.wait_for(lambda: self.running(event.steps), f"{event}")
        if event.kind == "worker":
            end(attempt.pids[event.machine % attempt.world_size])
        elif event.kind in ("machine", "replace"):
            self.kill(event.machine)
        elif event.kind == "leave":
            self.leave(event.machine)
        if event.kind in ("join", "replace"):
            self.join(event.machine)
        return attempt

    def running(self, steps: int) -> Attempt | None:
        """Return the newest attempt if it is on all machines and has trained so many steps."""
        if not self.living():
            raise JobFailed("the job ended before its last interruption; train more epochs")
        newest = max(self.out.glob("attempt-*"), default=None)
        if newest is None or int(newest.name[8:]) <= self.seen:
            return None
        attempt = read_attempt(newest)
        if attempt is None or attempt.world_size != self.world_size():
            return None
        if attempt.step - attempt.start < steps:
            return None
        self.seen = int(newest.name[8:])
        return attempt

    def finish(self) -> None:
        """Wait for the end of the training."""
        self.wait_for(lambda: not self.living(), "the end", 4 * PATIENCE)

    def living(self) -> list[int]:
        return [machine for machine, (agent, _) in self.machines.items() if agent.poll() is None]

    def wait_for(
        self, condition: Callable[[], T | None], what: str, seconds: float = PATIENCE
    ) -> T:
        deadline = time.monotonic() + seconds
        while not (found := condition()):
            failed = [m for m, (agent, _) in self.machines.items() if agent.poll()]
            if failed or time.monotonic() > deadline:
                raise JobFailed(f"waiting for {what}: machines {failed} failed or time is over")
            time.sleep(0.01)
        return found


class TorchrunJob(Job):
    """One worker on each machine."""

    def __init__(self, script: Path, arguments: list[str], out: Path) -> None:
        self.store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        options = {
            "nnodes": f"1:{MACHINES}",
            "nproc-per-node": 1,
            "max-restarts": 1000,
            "monitor-interval": 0.1,
            "local-addr": "127.0.0.1",
            "rdzv-backend": "c10d",
            "rdzv-endpoint": f"127.0.0.1:{self.store.port}",
            "rdzv-id": out.name,
            "rdzv-conf": "is_host=0,last_call_timeout=2,keep_alive_interval=2",
        }
        launcher = [f"--{name}={value}" for name, value in options.items()]
        argv = [sys.executable, "-m", "torch.distributed.run", *launcher, str(script), *arguments]
        super().__init__(Command(argv, {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}), out, MACHINES)


class RayJob(Job):
    """Two workers on one machine, which does not fail."""

    def __init__(self, script: Path, arguments: list[str], out: Path) -> None:
        super().__init__(Command([sys.executable, str(script), *arguments]), out, 1)


def end(process: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # one that lost its peer ends by itself
        os.kill(process, signal.SIGKILL)
