"""The machine and the versions of a run: no host name, no paths."""

from __future__ import annotations

import ctypes
import datetime
import json
import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def _output(*command: str) -> str | None:
    """Return the output of a command; None if it is missing or fails."""
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def cpu_model() -> str:
    """The CPU's name as the system gives it; x86 with the numbers that tell generations apart."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    pairs = (line.split(":", 1) for line in lines if ":" in line)
    first = {key.strip(): value.strip() for key, value in reversed(list(pairs))}
    name = first.get("model name", platform.processor() or platform.machine())
    family, model = first.get("cpu family"), first.get("model")
    return f"{name} (family {family}, model {model})" if family and model else name


def cores() -> int:
    """How many this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def compiler() -> str:
    """The C++ compiler that builds what is built here."""
    text = _output(os.environ.get("CXX", "g++").split()[0], "--version")
    return text.splitlines()[0] if text else "none"


def nvcc() -> str | None:
    """The CUDA compiler's last line but one, which has its version."""
    text = _output("nvcc", "--version")
    return next((line for line in (text or "").splitlines() if "release" in line), None)


def commit() -> str | None:
    """The commit of this tree, marked when tracked files have changed since."""
    name = _output("git", "rev-parse", "--short=12", "HEAD")
    if name is None:
        return None
    return name + "+changes" if _output("git", "status", "--porcelain", "-uno") else name


def version(distribution: str) -> str | None:
    """The version of an installed distribution."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


class OtherLoad:
    """How much of the machine other processes used, from the making of this object on."""

    def __init__(self) -> None:
        self._before = self._now()

    @staticmethod
    def _now() -> tuple[float, float] | None:
        """Seconds of all cores, and those in which they ran other processes."""
        try:
            line = Path("/proc/stat").read_text().splitlines()[0]
        except OSError:
            return None
        ticks = [int(word) for word in line.split()[1:9]]
        second = os.sysconf("SC_CLK_TCK")
        idle = ticks[3] + ticks[4]  # idle, and waiting for a disk
        mine = sum(os.times()[:4])
        return sum(ticks) / second, (sum(ticks) - idle) / second - mine

    def fraction(self) -> float | None:
        """0 is a quiet machine; None where the system does not tell."""
        before, now = self._before, self._now()
        if before is None or now is None or now[0] <= before[0]:
            return None
        return round(max(0.0, (now[1] - before[1]) / (now[0] - before[0])), 3)


def describe() -> dict[str, Any]:
    """Hardware and versions."""
    import numpy as np
    import torch

    import fastseed

    info = fastseed.build_info()
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "commit": commit(),
        "cpu": cpu_model(),
        "cores": cores(),
        "system": f"{platform.system()} {platform.machine()}",
        "compiler": compiler(),
        "simd": info["simd"],
        "backend": info["backend"],
        "versions": {
            "fastseed": info["version"],
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
            "jax": version("jax"),
            "framework-reproducibility": version("framework-reproducibility"),
        },
    }


def write_lines(path: Path | None, rows: list[dict[str, Any]]) -> None:
    """Write a line of JSON for the machine and one for each row; nothing without a path."""
    if path is not None:
        lines = [{"machine": describe()}, *rows]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def memset() -> Any:
    """The C library's: ``memset(address, byte, size)``."""
    function = ctypes.CDLL(None).memset
    function.restype = ctypes.c_void_p
    function.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t)
    return function
