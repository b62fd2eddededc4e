"""Python, torch, NumPy and the machine of this process."""

from __future__ import annotations

import operator
import os
import platform
import re
import sys
import warnings

import numpy as np
import torch

from ..._utils import StateDict
from .commands import Runner

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


def python() -> StateDict:
    """Return the interpreter and how it was started."""
    flags = {name: getattr(sys.flags, name) for name in dir(sys.flags) if name[0] != "_"}
    return {
        "version": sys.version,
        "implementation": platform.python_implementation(),
        "gil": getattr(sys, "_is_gil_enabled", lambda: True)(),
        "flags": {name: flag for name, flag in flags.items() if isinstance(flag, (int, bool))},
    }


def torch_state() -> StateDict:
    """Return versions, builds, thread counts and switches; initializes and changes nothing."""
    build, parallel = (
        str(_get(torch, f"__config__.{name}") or "").splitlines()
        for name in ("show", "parallel_info")
    )
    shown: StateDict = np.show_config(mode="dicts")  # type: ignore[assignment]
    blas = shown.get("Build Dependencies", {}).get("blas", {})
    return {
        "version": str(torch.__version__),
        **{name: _get(torch.version, name) for name in ("git_version", "debug", "cuda", "hip")},
        "cudnn": _get(torch, "backends.cudnn.version"),
        "nccl": _get(torch, "cuda.nccl.version") if torch.version.cuda else None,
        "build": build,
        "parallel": [line.strip() for line in parallel if line and "Environment" not in line],
        "switches": _existing(torch, _SWITCHES),
        "inductor": _existing(sys.modules.get("torch._inductor.config"), _INDUCTOR),
        "numpy": {
            "blas": " ".join(str(blas.get(key)) for key in ("name", "version")),
            "simd": shown.get("SIMD Extensions", {}).get("found", []),
        },
    }


def _get(holder: object, path: str) -> object:
    """Return an attribute, or the result of a function, as JSON has it; None if it fails."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of switches that will be removed
        try:
            found = operator.attrgetter(path)(holder)
            found = found() if callable(found) and not isinstance(found, type) else found
        except Exception:  # not in this version
            return None
    return found if found is None or isinstance(found, (bool, int, str)) else str(found)


def _existing(holder: object, paths: str) -> StateDict:
    found = {path: _get(holder, path) for path in paths.split()}
    return {path: value for path, value in found.items() if value is not None}


def hardware(runner: Runner) -> StateDict:
    """Return CPU, GPUs, driver, system and compilers, as ``torch.utils.collect_env`` reads them.

    Its ``get_env_info`` is not called as a whole: it initializes the GPU and runs pip.
    """
    from torch.utils import collect_env

    def run(command: str) -> tuple[int, str, str]:
        code, out, errors = runner.run(command)
        return code, out.strip(), errors

    def ask(name: str) -> str | None:
        found: str | None = getattr(collect_env, f"get_{name}")(run)
        return found

    processor = (line.partition(":") for line in (ask("cpu_info") or "").splitlines())
    return {
        "system": ask("os"),
        "kernel": platform.platform(),
        "libc": "-".join(platform.libc_ver()),
        "cpu": {
            name.strip(): value.strip()
            for name, _, value in processor
            if not re.search("MHz|BogoMIPS", name)  # these are measured
        },
        "processors": os.cpu_count(),
        "affinity": sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [],
        "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "driver": ask("nvidia_driver_version"),
        "gpus": None if torch.version.hip else ask("gpu_info"),  # on ROCm it initializes the GPU
        "compilers": {
            name: ask(name) for name in ("gcc_version", "clang_version", "running_cuda_version")
        },
    }
