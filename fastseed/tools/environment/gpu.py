"""GPUs and their driver, from the driver's own program: no GPU is initialised."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from typing import Any

from .commands import Runner
from .keyed_hash import Hasher
from .machine import read

_FIELDS = (
    *("name", "uuid", "driver_version", "vbios_version", "memory.total", "ecc.mode.current"),
    *("mig.mode.current", "compute_mode", "persistence_mode", "power.limit"),
)
_CLOCKS = (
    *("clocks.current.sm", "clocks.current.memory", "clocks.max.sm", "clocks.max.memory"),
    *("clocks.applications.graphics", "clocks.applications.memory", "temperature.gpu"),
)
_PLAIN = re.compile(r"[\w. ()\[\]/+-]{0,80}")  # a model, a number, N/A


def gpu(runner: Runner, hasher: Hasher, clocks: bool, root: Path = Path("/")) -> dict[str, Any]:
    """Return the driver's version and one entry for each GPU; clocks only if requested."""
    kernel = read(root / "proc/driver/nvidia/version")
    version = re.search(r"Kernel Module\s+(?:for \S+\s+)?(\d+\.[\d.]+)", kernel)
    devices: list[dict[str, str]] = []
    fields = _FIELDS + (_CLOCKS if clocks else ())
    query = f"--query-gpu={','.join(fields)}"
    found = runner.run("nvidia-smi", query, "--format=csv,noheader,nounits")
    for row in csv.reader(io.StringIO(found.text), skipinitialspace=True):
        if len(row) == len(fields):
            cells = (c if _PLAIN.fullmatch(c) else hasher("gpu", c) for c in row)
            devices.append(dict(zip(fields, cells, strict=True)))
    driver = version[1] if version else ""
    for device in devices:
        driver = device.pop("driver_version")
        device["uuid"] = hasher("gpu", device["uuid"])
    return {
        "driver": driver,
        "amd_driver": read(root / "sys/module/amdgpu/version"),
        "devices": devices,
    }
