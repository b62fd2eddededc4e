"""Python, torch, NumPy and the machine of this process, and external programs that know more."""

from __future__ import annotations

import contextlib
import datetime
import operator
import os
import platform
import re
import subprocess
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from ..._backend.private_torch import INDUCTOR
from ..._utils import JSON, StateDict
from ..._utils.version import __version__

# Attributes and functions below torch; not every torch has all of them.
_SWITCHES = """
    backends.cudnn.enabled backends.cudnn.benchmark backends.cudnn.deterministic
    backends.cudnn.allow_tf32 backends.cudnn.benchmark_limit
    backends.cuda.matmul.allow_tf32 backends.cuda.matmul.allow_fp16_accumulation
    backends.cuda.matmul.allow_fp16_reduced_precision_reduction
    backends.cuda.matmul.allow_bf16_reduced_precision_reduction
    backends.fp32_precision backends.cuda.matmul.fp32_precision
    backends.cudnn.conv.fp32_precision backends.cudnn.rnn.fp32_precision
    backends.mkldnn.enabled backends.mkldnn.deterministic backends.mkldnn.fp32_precision
    backends.nnpack.enabled utils.deterministic.fill_uninitialized_memory
    get_num_threads get_num_interop_threads get_float32_matmul_precision
    are_deterministic_algorithms_enabled is_deterministic_algorithms_warn_only_enabled
    get_default_dtype is_grad_enabled is_autocast_enabled is_inference_mode_enabled
    backends.cuda.flash_sdp_enabled backends.cuda.mem_efficient_sdp_enabled
    backends.cuda.math_sdp_enabled backends.cuda.cudnn_sdp_enabled
    backends.cuda.preferred_blas_library backends.cuda.preferred_linalg_library
    backends.cpu.get_cpu_capability backends.quantized.engine
"""
_INDUCTOR = "max_autotune fallback_random emulate_precision_casts deterministic freezing"

TIMEOUT = 10.0  # seconds for each program

# git writes and fetches nothing, and asks nothing.
_FIXED = {"LC_ALL": "C", "GIT_NO_LAZY_FETCH": "1"}
_FIXED |= {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}


def run(command: Sequence[str], cwd: Path | None = None) -> str | None:
    """Return what a program of the PATH prints; None if it is missing or fails."""
    # Hooks of git set variables that are about another repository.
    own = {k: v for k, v in os.environ.items() if not re.match("GIT_(?!CONFIG)", k)}
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            cwd=cwd, env=own | _FIXED, timeout=TIMEOUT, check=False,
        )  # fmt: skip
    except OSError:
        return None
    return done.stdout.decode("utf-8", "surrogateescape") if done.returncode == 0 else None


def about(problems: list[JSON]) -> dict[str, JSON]:
    """Return when this was recorded, by what, and what could not be read."""
    at = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    return {"at": at, "by": f"fastseed {__version__}", "problems": problems}


def torch_state() -> dict[str, JSON]:
    """Return versions, builds, thread counts and switches; initializes and changes nothing."""
    shown: StateDict = np.show_config(mode="dicts")  # type: ignore[assignment]
    blas = shown.get("Build Dependencies", {}).get("blas", {})
    return {
        "python": sys.version.replace("\n", " "),
        "version": str(torch.__version__),
        **{name: _get(torch.version, name) for name in ("git_version", "debug", "cuda", "hip")},
        "cudnn": _get(torch, "backends.cudnn.version"),
        "nccl": _get(torch, "cuda.nccl.version") if torch.version.cuda else None,
        "build": str(_get(torch, "__config__.show") or "").splitlines(),
        "numpy blas": " ".join(str(blas.get(key)) for key in ("name", "version")),
        "numpy simd": " ".join(shown.get("SIMD Extensions", {}).get("found", [])),
        **_existing(torch, _SWITCHES),
        **_existing(sys.modules.get(f"torch.{INDUCTOR}"), _INDUCTOR),
    }


def _get(holder: object, path: str) -> JSON:
    """Return an attribute, or the result of a function, as JSON has it; None if it fails."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of switches that will be removed
        try:
            found = operator.attrgetter(path)(holder)
            found = found() if callable(found) and not isinstance(found, type) else found
        except Exception:  # not in this version
            return None
    return found if found is None or isinstance(found, (bool, int, str)) else str(found)


def _existing(holder: object, paths: str) -> dict[str, JSON]:
    found = {path: _get(holder, path) for path in paths.split()}
    return {path: value for path, value in found.items() if value is not None}


def hardware() -> dict[str, JSON]:
    return {
        "system": platform.platform(),
        "libc": "-".join(platform.libc_ver()),
        "processor": _processor() or platform.processor(),
        "capability": _get(torch, "backends.cpu.get_cpu_capability"),
        "processors": os.cpu_count(),
        "affinity": sorted(os.sched_getaffinity(0)),
        "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    }


def gpus() -> dict[str, JSON]:
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    found = [line.rpartition(", ") for line in (run(query) or "").splitlines()]
    return {"driver": found[0][2] if found else None, "names": [name for name, _, _ in found]}


def _processor() -> str | None:
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as file:
        for line in file:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return None
