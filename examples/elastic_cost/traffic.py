"""Bytes that ranks of ``SlotGradients`` and of ``DistributedDataParallel`` send, on gloo.

``python -m examples.elastic_cost.traffic`` gives each rank a network namespace on a bridge, and
counts what its interface sends in a step, with headers and acknowledgements. It needs root on
Linux, and ``ip`` of iproute2. The model has 10 million parameters; both ways run the same
micro-batches, DDP with ``no_sync``.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

import fastseed
from benchmarks import machine

from .steps import Step, both_ways

STEPS, LAYERS, WIDTH = 10, 10, 1000
SENT = Path("/sys/class/net/eth0/statistics/tx_bytes")
# the numbers of slots, and the most that the rank that sends most may send, as a ratio to DDP
CASES = {
    4: dict(zip(range(4, 36, 4), (1.01, 1.01, 1.51, 1.01, 2.01, 1.51, 2.01, 1.01), strict=True)),
    2: {8: 1.01},
    3: {8: 1.51},
    5: {8: 1.51},
    6: {8: 1.01},
    7: {8: 1.01},
    8: {8: 1.01},
}


class Wide(nn.Sequential):
    """Ten square matrices; a call returns the loss."""

    def __init__(self) -> None:
        super().__init__(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = super().forward(x)
        return outputs.square().mean()


def bytes_of(step: Step) -> float:
    """Return the bytes that this rank sends in a step."""
    dist.barrier()
    before = int(SENT.read_text())
    for _ in range(STEPS):
        step()
    return (int(SENT.read_text()) - before) / STEPS


def rank_main(rank: int, ranks: int) -> None:
    """Join the job, and count; rank 0 prints a row for each number of slots."""
    torch.set_num_threads(1)
    address = "tcp://10.0.0.1:29531"
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=ranks)
    fastseed.init(42)
    for slots in CASES[ranks]:
        data = torch.randn(slots, 1, WIDTH, generator=torch.Generator().manual_seed(1))
        sent = [bytes_of(step) for step in both_ways(Wide, data)]
        every: list[list[float]] = [[] for _ in range(ranks)]
        dist.all_gather_object(every, sent)
        if rank == 0:
            ours, theirs = (max(way) for way in zip(*every, strict=True))
            row = {"ranks": ranks, "slots": slots, "fastseed_bytes": ours, "ddp_bytes": theirs}
            print(json.dumps(row), flush=True)
    dist.destroy_process_group()


def ip(command: str) -> None:
    """Run a command of iproute2."""
    subprocess.run(["ip", *command.split()], check=True)


@contextlib.contextmanager
def namespaces(ranks: int) -> Iterator[list[str]]:
    """Make a namespace for each rank, with the address 10.0.0.(rank + 1) on a bridge."""
    hub = f"fastseed-{os.getpid()}"
    names = [f"{hub}-{rank}" for rank in range(ranks)]
    with contextlib.ExitStack() as stack:
        for name in (hub, *names):
            ip(f"netns add {name}")
            stack.callback(ip, f"netns del {name}")
        ip(f"-n {hub} link add bridge type bridge")
        ip(f"-n {hub} link set bridge up")
        for rank, name in enumerate(names):
            ip(f"link add eth0 netns {name} type veth peer name port{rank} netns {hub}")
            ip(f"-n {hub} link set port{rank} master bridge up")
            ip(f"-n {name} addr add 10.0.0.{rank + 1}/24 dev eth0")
            ip(f"-n {name} link set eth0 up")
            ip(f"-n {name} link set lo up")
        yield names


def count(ranks: int) -> list[dict[str, Any]]:
    """Run a job of ``ranks``, and return its rows."""
    module = [sys.executable, "-m", "examples.elastic_cost.traffic", "--job", str(ranks), "--rank"]
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "eth0"}
    start = functools.partial(subprocess.Popen, env=environment, text=True)
    with namespaces(ranks) as names:
        commands = [["ip", "netns", "exec", name, *module, str(r)] for r, name in enumerate(names)]
        first = start(commands[0], stdout=subprocess.PIPE)
        others = [start(command) for command in commands[1:]]
        printed, _ = first.communicate()
        if any([job.wait() for job in (first, *others)]):
            raise SystemExit("a rank failed")
    rows = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    for row in rows:
        row["ratio"] = row["fastseed_bytes"] / row["ddp_bytes"]
        row["target"] = CASES[ranks][row["slots"]]
        print(f"{row['slots']} slots on {ranks} ranks: {row['fastseed_bytes'] / 1e6:.2f} MB, "
              f"DDP {row['ddp_bytes'] / 1e6:.2f} MB, ratio {row['ratio']:.4f}, "
              f"at most {row['target']}", flush=True)  # fmt: skip
    return rows


def main() -> None:
    """Count with each number of ranks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", choices=[*CASES], default=[*CASES])
    parser.add_argument("--out", type=Path, metavar="FILE.jsonl")
    parser.add_argument("--job", type=int, help=argparse.SUPPRESS)  # run one rank of so many
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job is not None:
        rank_main(options.rank, options.job)
        return
    if os.geteuid() != 0 or shutil.which("ip") is None:
        parser.error("network namespaces need root, and ip of iproute2")
    rows = [row for ranks in options.ranks for row in count(ranks)]
    machine.append_lines(options.out, {"machine": machine.describe()}, *rows)


if __name__ == "__main__":
    main()
