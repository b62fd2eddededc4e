"""Model and clocks of the GPU: read only, never set."""

from __future__ import annotations

import datetime
import platform
import subprocess
from typing import Any

from .. import machine

NAMES = {
    "name": "name", "driver": "driver_version", "memory": "memory.total",
    "compute_capability": "compute_cap",
}  # fmt: skip
CLOCKS = {
    "sm_mhz": "clocks.sm", "memory_mhz": "clocks.mem", "watts": "power.draw",
    "celsius": "temperature.gpu",
}  # fmt: skip
LIBRARIES = ("torch", "triton", "jax", "jaxlib", "cupy-cuda13x", "nvidia-curand", "numpy")


def query(fields: dict[str, str]) -> dict[str, str]:
    """Return fields of the first card from ``nvidia-smi``; empty if it is missing."""
    command = ["nvidia-smi", f"--query-gpu={','.join(fields.values())}", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return {}
    first = next(iter(done.stdout.splitlines()), "")
    return dict(zip(fields, (value.strip() for value in first.split(",")), strict=False))


def clocks() -> dict[str, str]:
    """As they are now."""
    return query(CLOCKS)


def describe(rehearsal: bool) -> dict[str, Any]:
    """The first line of a result: no host name, no paths."""
    return {
        "kind": "machine", "schema": 1, "rehearsal": rehearsal,
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "commit": machine.commit(),
        "card": {} if rehearsal else query(NAMES),
        "clocks": {} if rehearsal else clocks(),
        "cpu": machine.cpu_model(), "cores": machine.cores(), "nvcc": machine.nvcc(),
        "versions": {
            "python": platform.python_version(),
            **{name: machine.version(name) for name in LIBRARIES},
        },
    }  # fmt: skip
