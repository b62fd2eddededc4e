"""torch and NumPy in this process: builds, libraries, thread counts and switches."""

from __future__ import annotations

import operator
import sys
import warnings
from typing import Any

import numpy as np
import torch

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


def torch_state() -> dict[str, Any]:
    """Return versions, builds, thread counts and switches; initialises and changes nothing."""
    inductor = sys.modules.get("torch._inductor.config")
    return {
        "version": str(torch.__version__),
        **{name: _get(torch.version, name) for name in ("git_version", "debug", "cuda", "hip")},
        "cudnn": _get(torch, "backends.cudnn.version"),
        "nccl": _get(torch, "cuda.nccl.version") if torch.version.cuda else None,
        "build": (_get(torch, "__config__.show") or "").splitlines(),
        "parallel": _parallel(),
        "switches": _existing(torch, _SWITCHES),
        "inductor": _existing(inductor, _INDUCTOR),
        "numpy": {"version": np.__version__, **_numpy()},
    }


def _get(holder: Any, path: str) -> Any:
    """Return an attribute, or the result of a function, as JSON has it; None if it fails."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of switches that will be removed
        try:
            found = operator.attrgetter(path)(holder)
            found = found() if callable(found) and not isinstance(found, type) else found
        except Exception:  # not in this version
            return None
    return found if found is None or isinstance(found, (bool, int, str)) else str(found)


def _existing(holder: Any, paths: str) -> dict[str, Any]:
    found = {path: _get(holder, path) for path in paths.split()}
    return {path: value for path, value in found.items() if value is not None}


def _parallel() -> list[str]:
    """Return the settings of OpenMP, MKL and oneDNN."""
    lines = (line.strip() for line in (_get(torch, "__config__.parallel_info") or "").splitlines())
    return [line for line in lines if line and not line.startswith("Environment")]


def _numpy() -> dict[str, Any]:
    """Return NumPy's BLAS and LAPACK, and the instruction sets that it uses here."""
    shown: Any = np.show_config(mode="dicts")
    needs = shown.get("Build Dependencies", {})
    about = {
        name: f"{needs.get(name, {}).get('name')} {needs.get(name, {}).get('version')}"
        for name in ("blas", "lapack")
    }
    return {**about, "simd": shown.get("SIMD Extensions", {}).get("found", [])}
