"""What several test modules need: snapshots of generators, expected states, subprocesses."""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fastseed
from fastseed._backend import derive_ops
from fastseed._backend.reference import philox, shuffle

SCRIPTS = Path(__file__).resolve().parents[1] / "scripts"

LAUNCHER_VARIABLES = (
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    *("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
    *("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    *("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
)

LOW64 = 2**64 - 1

needs_native = pytest.mark.skipif(
    derive_ops.backend != "native", reason="needs the native code, which is not in use here"
)


def snapshot() -> tuple[Any, ...]:
    """The states of the three global generators, comparable with ``==``."""
    numpy = np.random.get_state(legacy=False)
    return random.getstate(), repr_state(numpy), torch.get_rng_state().numpy().tobytes()


def repr_state(value: Any) -> Any:
    """A NumPy state with its arrays as bytes."""
    if isinstance(value, dict):
        return {k: repr_state(v) for k, v in value.items()}
    return value.tobytes() if isinstance(value, np.ndarray) else value


def torch_words(generator: torch.Generator) -> np.ndarray:
    """The 624 words that a torch CPU generator holds."""
    return generator.get_state().numpy()[24 : 24 + 8 * 624].view(np.uint64).astype(np.uint32)


def holds_key(generator: torch.Generator, key: int) -> bool:
    """Whether a torch CPU generator is exactly as specified after a reseed with ``key``."""
    state = generator.get_state().numpy()
    left, seeded = state[8:16].view(np.int32)
    (position,) = state[16:24].view(np.uint64)
    return (
        generator.initial_seed() == key & LOW64
        and (int(left), int(seeded), int(position)) == (1, 1, 0)
        and np.array_equal(torch_words(generator), philox.mt19937_state(key))
        and not state[24 + 8 * 624 :].any()  # cached normals
    )


def reference_key(
    name: str,
    master: int = 42,
    task: int = 1,
    epoch: int = 7,
    step: int = 0,
    rank: int = 3,
    worker: int = 0,
    index: int = 0,
    domain: int = philox.DOMAIN_STREAM,
) -> int:
    """The 128-bit key at these coordinates, by the reference alone."""
    scope = philox.scope_key(master, task, epoch, step)
    name_key = philox.name_key(scope, philox.name_words(name))
    return philox.stream_key(name_key, rank, worker, index, domain)


def reference_sample_key(
    name: str, index: int, occurrence: int = 0, *, task: int = 1, epoch: int = 5, master: int = 42
) -> int:
    """The 128-bit key of a sample, by the reference alone."""
    where = {"rank": 0, "worker": occurrence, "index": index, "domain": philox.DOMAIN_SAMPLE}
    return reference_key(name, master, task, epoch, **where)


def reference_narrow_seed(
    name: str, bits: int = 31, *, epoch: int = 0, rank: int = 0, **where: Any
) -> int:
    """The seed that a callable of 31 or 32 bits gets, by the reference alone."""
    key = reference_key(name, epoch=epoch, rank=0, domain=philox.DOMAIN_NARROW, **where)
    return shuffle.index(key, 1 << bits, rank)


def scramble() -> None:
    """Leave the global generators in the middle of things, each with a cached Gaussian."""
    random.seed(1)
    random.gauss(0, 1)
    np.random.seed(2)
    np.random.standard_normal(7)
    torch.manual_seed(3)
    torch.randn((), dtype=torch.float64)
    torch.randn(3)


def seeder(master_seed: int | None = 42, **where: Any) -> fastseed.Seeder:
    """A seeder on rank 0 of 1, unless said otherwise."""
    return fastseed.Seeder(master_seed, **{"rank": 0, "world_size": 1, **where})


def clean_environment(**more: str) -> dict[str, str]:
    """This environment without a launcher's variables."""
    kept = {k: v for k, v in os.environ.items() if k not in LAUNCHER_VARIABLES}
    return {**kept, **more}


def run_python(*arguments: str | Path, timeout: float = 120, **environment: str) -> str:
    """Standard output of a Python process, which has to succeed."""
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout,
        env=clean_environment(**environment),
    )
    assert done.returncode == 0, f"{arguments}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def run_script(name: str, *arguments: str | Path, timeout: float = 120, **environment: str) -> Any:
    """What a program of ``tests/scripts`` prints last, one line of JSON."""
    printed = run_python(SCRIPTS / name, *arguments, timeout=timeout, **environment)
    return json.loads(printed.splitlines()[-1])


def free_port() -> int:
    """A TCP port of this machine that nobody listens on."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])
