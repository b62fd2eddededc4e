"""GPUs, their driver and clocks, from the driver itself: no GPU is initialised."""

from __future__ import annotations

import csv
import hashlib
import io
import re
from pathlib import Path
from typing import Any

from .commands import Runner
from .machine import read

_FIELDS = (
    *("index", "name", "uuid", "driver_version", "vbios_version", "memory.total"),
    *("ecc.mode.current", "mig.mode.current", "compute_mode", "persistence_mode", "power.limit"),
)
_CLOCKS = (
    *("clocks.current.sm", "clocks.current.memory", "clocks.max.sm", "clocks.max.memory"),
    *("clocks.applications.graphics", "clocks.applications.memory", "temperature.gpu"),
)


def gpu(runner: Runner, clocks: bool, root: Path = Path("/")) -> dict[str, Any]:
    """Driver version and one entry a GPU; their clocks and temperature only when asked."""
    about: dict[str, Any] = {"driver": "", "devices": []}
    kernel = re.search(
        r"(?:Kernel Module\s+(?:for \S+\s+)?)(\d+\.[\d.]+)",
        read(root / "proc/driver/nvidia/version"),
    )
    if kernel:
        about["driver"] = kernel.group(1)
    amd = read(root / "sys/module/amdgpu/version")
    if amd:
        about["amd_driver"] = amd
    fields = _FIELDS + (_CLOCKS if clocks else ())
    answer = runner.run(
        "nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"
    )
    for row in csv.reader(io.StringIO(answer.text), skipinitialspace=True):
        if len(row) == len(fields):
            about["devices"].append(_device(dict(zip(fields, row, strict=True)), clocks))
    if about["devices"]:
        about["driver"] = about["devices"][0]["driver_version"]
    for device in about["devices"]:
        device.pop("driver_version")
    return about


def _device(values: dict[str, str], clocks: bool) -> dict[str, Any]:
    device: dict[str, Any] = {
        k: v for k, v in values.items() if k not in ("uuid", "index", *_CLOCKS)
    }
    # A UUID names one card for good: its hash tells cards apart and says no more.
    device["uuid_sha256"] = hashlib.sha256(values["uuid"].encode()).hexdigest()[:16]
    if clocks:
        device["clocks"] = {name: values[name] for name in _CLOCKS}
    return device
