"""Scripts as the ranks of one job, with the environment that torchrun would give them."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from helpers.support import SCRIPTS, clean_environment, free_port


def run_ranks(name: str, world_size: int, *arguments: Any, timeout: float = 120) -> list[Any]:
    """What each rank printed last, one line of JSON."""
    job = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "WORLD_SIZE": str(world_size),
        "LOCAL_WORLD_SIZE": str(world_size),
        "GROUP_RANK": "0",
        "TORCHELASTIC_RUN_ID": "test",
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, str(SCRIPTS / name), *map(str, arguments)]
    ranks = [
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=clean_environment(**job, RANK=str(rank), LOCAL_RANK=str(rank)),
        )
        for rank in range(world_size)
    ]
    try:
        said = [process.communicate(timeout=timeout) for process in ranks]
    finally:
        for process in ranks:
            process.kill()
    for process, (printed, errors) in zip(ranks, said, strict=True):
        assert process.returncode == 0, f"{command}\n{printed}\n{errors}"
    return [json.loads(printed.splitlines()[-1]) for printed, _ in said]
