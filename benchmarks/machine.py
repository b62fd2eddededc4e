"""The machine and the versions of a run: no host name, no paths."""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
import time
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LIBRARIES = (
    "torch", "numpy", "jax", "framework-reproducibility", "triton", "nvidia-curand",
)  # fmt: skip
CARD = {
    "name": "name", "driver": "driver_version", "memory": "memory.total",
    "compute_capability": "compute_cap",
}  # fmt: skip
CLOCKS = {
    "sm_mhz": "clocks.sm", "memory_mhz": "clocks.mem", "watts": "power.draw",
    "celsius": "temperature.gpu",
}  # fmt: skip


def _output(*command: str) -> str | None:
    """Return the output of a command; None if it is missing or fails."""
    try:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=20
        )
    except (OSError, subprocess.SubprocessError):
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
    """How many other processes had the cores of this one, from the making of this object on."""

    def __init__(self) -> None:
        self._begun, self._before = time.monotonic(), self._now()

    @staticmethod
    def _now() -> float | None:
        """Return the seconds in which the cores ran other processes."""
        try:
            mine = {f"cpu{core}" for core in os.sched_getaffinity(0)}
            lines = [line.split() for line in Path("/proc/stat").read_text().splitlines()]
        except (OSError, AttributeError):
            return None
        # user, nice, system; then idle, and waiting for a disk; then interrupts
        ticks = [
            sum(map(int, words[1:4])) + sum(map(int, words[6:9]))
            for words in lines
            if words and words[0] in mine
        ]
        if not ticks:
            return None
        return sum(ticks) / os.sysconf("SC_CLK_TCK") - sum(os.times()[:4])

    def processes(self) -> float | None:
        """0 is a quiet machine, 1 one process all the time; None where the system does not tell."""
        seconds, now = time.monotonic() - self._begun, self._now()
        if self._before is None or now is None or seconds < 0.05:
            return None
        return round(max(0.0, (now - self._before) / seconds), 3)


def card(fields: dict[str, str]) -> dict[str, str]:
    """Return fields of the first GPU from ``nvidia-smi``; empty if it is missing."""
    query = f"--query-gpu={','.join(fields.values())}"
    text = _output("nvidia-smi", query, "--format=csv,noheader") or ""
    values = (value.strip() for value in next(iter(text.splitlines()), "").split(","))
    return dict(zip(fields, values, strict=False)) if text else {}


def describe(device: str = "cpu") -> dict[str, Any]:
    """Hardware and versions."""
    import fastseed

    info = fastseed.build_info()
    found = {
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "commit": commit(), "device": device, "cpu": cpu_model(), "cores": cores(),
        "system": f"{platform.system()} {platform.machine()}", "compiler": compiler(),
        "simd": info["simd"], "backend": info["backend"],
        "versions": {
            "python": platform.python_version(), "fastseed": info["version"],
            **{name: v for name in LIBRARIES if (v := version(name)) is not None},
        },
    }  # fmt: skip
    if device == "cuda":
        found |= {"card": card(CARD), "clocks": card(CLOCKS), "nvcc": nvcc()}
    return found


def append_lines(path: Path | None, *lines: dict[str, Any]) -> None:
    """Append lines of JSON, which are on the disk when this returns; nothing without a path."""
    if path is not None:
        with path.open("a", encoding="utf-8") as file:
            file.write("".join(json.dumps(line) + "\n" for line in lines))
