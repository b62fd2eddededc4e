"""The machine and what of it this process may use: CPU, memory, kernel, limits, host."""

from __future__ import annotations

import os
import platform
import re
import socket
from pathlib import Path
from typing import Any

_V1 = {
    "cpu": ("cpu.cfs_quota_us", "cpu.cfs_period_us", "cpu.shares"),
    "cpuset": ("cpuset.cpus", "cpuset.mems"),
    "memory": ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"),
    "pids": ("pids.max",),
}
_V2 = (
    *("cpu.max", "cpu.weight", "cpuset.cpus.effective", "cpuset.mems.effective"),
    *("memory.max", "memory.high", "memory.swap.max", "pids.max"),
)
_UNLIMITED = ("", "max", "-1", "9223372036854771712", "9223372036854710272")
_CONTAINERS = {
    ".dockerenv": "docker",
    "run/.containerenv": "podman",
    "singularity": "singularity",
    ".singularity.d": "apptainer",
}


def read(path: Path, limit: int = 1 << 22) -> str:
    """A small file's text, "" where it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(limit).decode("utf-8", "replace").strip()
    except OSError:
        return ""


def machine(root: Path = Path("/")) -> dict[str, Any]:
    """CPU model and features, processors, memory, kernel and C library."""
    information = read(root / "proc/cpuinfo")
    first: dict[str, str] = {}
    for line in information.split("\n\n")[0].splitlines():
        field, _, value = line.partition(":")
        first[field.strip()] = value.strip()
    memory = dict(re.findall(r"^(\w+):\s+(\d+) kB", read(root / "proc/meminfo"), re.M))
    features = first.get("flags") or first.get("Features") or ""
    return {
        "architecture": platform.machine(),
        "cpu": first.get("model name") or first.get("CPU part") or platform.processor(),
        "cpu_features": sorted(features.split()),
        "microcode": first.get("microcode", ""),
        "processors": os.cpu_count(),
        "sockets": len(set(re.findall(r"^physical id\s*:\s*(\d+)", information, re.M))) or 1,
        "numa_nodes": _count(root / "sys/devices/system/node", r"node\d+"),
        "smt": read(root / "sys/devices/system/cpu/smt/active"),
        "governor": read(root / "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "memory_kib": int(memory.get("MemTotal", 0)),
        "swap_kib": int(memory.get("SwapTotal", 0)),
        "huge_pages": read(root / "sys/kernel/mm/transparent_hugepage/enabled"),
        "aslr": read(root / "proc/sys/kernel/randomize_va_space"),
        "system": platform.system(),
        "kernel": platform.release(),
        "kernel_version": platform.version(),
        "c_library": " ".join(platform.libc_ver()),
        "distribution": _distribution(root),
    }


def _count(folder: Path, pattern: str) -> int:
    try:
        return sum(bool(re.fullmatch(pattern, name)) for name in os.listdir(folder))
    except OSError:
        return 0


def _distribution(root: Path) -> str:
    found = re.search(r'^PRETTY_NAME="?([^"\n]*)', read(root / "etc/os-release"), re.M)
    return found.group(1) if found else ""


def container(root: Path = Path("/")) -> dict[str, Any]:
    """What kind of container this is, the limits of its control groups, and the process's own."""
    kinds = [kind for file, kind in _CONTAINERS.items() if (root / file).exists()]
    about: dict[str, Any] = {"kind": sorted(kinds), **_cgroup(root)}
    about["affinity"] = _ranges(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else ""
    about["limits"] = _limits()
    try:
        shared = os.statvfs(root / "dev/shm")
        about["shared_memory_kib"] = shared.f_blocks * shared.f_frsize >> 10
    except OSError:
        about["shared_memory_kib"] = 0
    return about


def _cgroup(root: Path) -> dict[str, Any]:
    """The tightest limit of this process's control groups and all above them (v1 or v2).

    A v2 hierarchy is the line with an empty controller list; see cgroups(7).
    """
    mount = root / "sys/fs/cgroup"
    limits: dict[str, str] = {}
    version = 0
    for line in read(root / "proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers == "" and number == "0":
            if (mount / "cgroup.controllers").exists():
                version = 2
                _tightest(mount, path, _V2, limits)
            continue
        for controller in controllers.split(","):
            for place in (controller, controllers):  # mounted under either name
                if controller in _V1 and (mount / place).is_dir():
                    version = version or 1
                    _tightest(mount / place, path, _V1[controller], limits)
                    break
    return {"cgroup": version, "cgroup_limits": dict(sorted(limits.items()))}


def _tightest(mount: Path, path: str, files: tuple[str, ...], limits: dict[str, str]) -> None:
    inside = [part for part in path.split("/") if part not in ("", "..", ".")]
    for depth in range(len(inside), -1, -1):  # from its own group up to the root
        folder = mount.joinpath(*inside[:depth])
        for file in files:
            value = read(folder / file)
            if value.split(" ")[0] not in _UNLIMITED and _tighter(value, limits.get(file)):
                limits[file] = value


def _tighter(value: str, than: str | None) -> bool:
    """Whether a limit is lower; of one that is no number the innermost counts."""
    if than is None:
        return True
    try:
        return _amount(value) < _amount(than)
    except (ValueError, ZeroDivisionError):
        return False


def _amount(limit: str) -> float:
    quota, _, period = limit.partition(" ")  # cpu.max: "quota period"
    return int(quota) / int(period or 1)


def _ranges(numbers: set[int]) -> str:
    """{0, 1, 2, 5} as "0-2,5"."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def _limits() -> dict[str, str]:
    """The soft resource limits that a training job runs into."""
    try:
        import resource
    except ImportError:  # not on Windows
        return {}
    names = ("STACK", "MEMLOCK", "NOFILE", "AS", "NPROC", "CPU", "FSIZE")
    values = {
        name.lower(): resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))[0] for name in names
    }
    return {k: "unlimited" if v == resource.RLIM_INFINITY else str(v) for k, v in values.items()}


def host() -> dict[str, Any]:
    """What names the machine: it changes nothing, and tells two captures apart."""
    return {"name": socket.gethostname(), "working_folder": os.getcwd()}
