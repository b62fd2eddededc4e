"""The machine: CPU, GPUs, memory, kernel."""

from __future__ import annotations

import csv
import os
import platform
import re
from pathlib import Path
from typing import Any

from .commands import Runner
from .keyed_hash import Hasher

_GPU = (
    *("name", "uuid", "driver_version", "vbios_version", "memory.total", "ecc.mode.current"),
    *("mig.mode.current", "compute_mode", "persistence_mode", "power.limit"),
)


def read(path: Path, limit: int = 1 << 22) -> str:
    """Return a small file's text, "" if it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(limit).decode("utf-8", "replace").strip()
    except OSError:
        return ""


def machine(root: Path = Path("/")) -> dict[str, Any]:
    """Return CPU model and features, processors, memory, kernel and C library."""
    information = read(root / "proc/cpuinfo")
    lines = (line.partition(":") for line in information.split("\n\n")[0].splitlines())
    first = {field.strip(): value.strip() for field, _, value in lines}
    memory = dict(re.findall(r"^(\w+):\s+(\d+) kB", read(root / "proc/meminfo"), re.M))
    nodes = (root / "sys/devices/system/node").glob("node[0-9]*")
    try:
        distribution = platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except OSError:
        distribution = ""
    return {
        "architecture": platform.machine(),
        "cpu": first.get("model name") or first.get("CPU part") or platform.processor(),
        "cpu_features": sorted((first.get("flags") or first.get("Features") or "").split()),
        "microcode": first.get("microcode", ""),
        "processors": os.cpu_count(),
        "affinity": sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [],
        "sockets": len(set(re.findall(r"^physical id\s*:\s*(\d+)", information, re.M))) or 1,
        "numa_nodes": len(list(nodes)),
        "smt": read(root / "sys/devices/system/cpu/smt/active"),
        "memory_kib": int(memory.get("MemTotal", 0)),
        "system": platform.system(),
        "kernel": platform.release(),
        "kernel_version": platform.version(),
        "c_library": " ".join(platform.libc_ver()),
        "distribution": distribution,
    }


def gpu(runner: Runner, hasher: Hasher, root: Path = Path("/")) -> dict[str, Any]:
    """Return the driver's version and one entry for each GPU; no GPU is initialised."""
    kernel = read(root / "proc/driver/nvidia/version")
    version = re.search(r"Kernel Module\s+(?:for \S+\s+)?(\d+\.[\d.]+)", kernel)
    driver = version[1] if version else ""
    printed = runner.run(
        "nvidia-smi", f"--query-gpu={','.join(_GPU)}", "--format=csv,noheader,nounits"
    )
    devices = []
    for row in csv.reader((printed or "").splitlines(), skipinitialspace=True):
        if len(row) == len(_GPU):
            device = dict(zip(_GPU, row, strict=True))
            driver = device.pop("driver_version")
            devices.append({**device, "uuid": hasher("gpu", device["uuid"])})
    amd = read(root / "sys/module/amdgpu/version")
    return {"driver": driver, "amd_driver": amd, "devices": devices}
