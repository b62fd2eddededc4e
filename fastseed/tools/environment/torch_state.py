"""torch and NumPy as they are in this process: builds, libraries, threads and switches."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

# Switches by their path below torch; read one by one, since no torch has all of them.
_SWITCHES = (
    *("backends.cudnn.enabled", "backends.cudnn.benchmark", "backends.cudnn.deterministic"),
    *("backends.cudnn.allow_tf32", "backends.cudnn.benchmark_limit"),
    *("backends.cuda.matmul.allow_tf32", "backends.cuda.matmul.allow_fp16_accumulation"),
    "backends.cuda.matmul.allow_fp16_reduced_precision_reduction",
    "backends.cuda.matmul.allow_bf16_reduced_precision_reduction",
    *("backends.fp32_precision", "backends.cuda.matmul.fp32_precision"),
    *("backends.cudnn.conv.fp32_precision", "backends.cudnn.rnn.fp32_precision"),
    *("backends.mkldnn.enabled", "backends.mkldnn.deterministic", "backends.mkldnn.fp32_precision"),
    *("backends.nnpack.enabled", "utils.deterministic.fill_uninitialized_memory"),
)
_CALLS = (
    *("get_num_threads", "get_num_interop_threads", "get_float32_matmul_precision"),
    *("are_deterministic_algorithms_enabled", "is_deterministic_algorithms_warn_only_enabled"),
    *("get_default_dtype", "is_grad_enabled", "is_autocast_enabled", "is_inference_mode_enabled"),
    *("backends.cuda.flash_sdp_enabled", "backends.cuda.mem_efficient_sdp_enabled"),
    *("backends.cuda.math_sdp_enabled", "backends.cuda.cudnn_sdp_enabled"),
    *("backends.cuda.preferred_blas_library", "backends.cuda.preferred_linalg_library"),
    *("backends.cpu.get_cpu_capability", "backends.mkl.is_available"),
    *("backends.openmp.is_available", "backends.cuda.is_built"),
    "backends.quantized.engine",
)


def torch_state() -> dict[str, Any]:
    """Versions, builds, thread counts and switches. Nothing is initialised or changed."""
    version = torch.version
    return {
        "version": torch.__version__,
        "git_version": _read(lambda: version.git_version),
        "debug": _read(lambda: version.debug),
        "cuda": _read(lambda: version.cuda),
        "hip": _read(lambda: version.hip),
        "cudnn": _read(torch.backends.cudnn.version),
        "nccl": _read(_nccl),
        "cxx11_abi": _read(torch.compiled_with_cxx11_abi),
        "gpu_architectures": _read(lambda: (torch._C._cuda_getArchFlags() or "").split()),
        "build": _read(lambda: torch.__config__.show().splitlines()),
        "parallel": _read(lambda: _lines(torch.__config__.parallel_info())),
        "switches": {name: _find(name) for name in _SWITCHES if _find(name) is not None},
        "state": {name: _call(name) for name in _CALLS if _call(name) is not None},
        "inductor": _inductor(),
        "devices": _devices(),
        "numpy": {"version": np.__version__, **_numpy()},
    }


def _read(ask: Callable[[], Any]) -> Any:
    """What ``ask`` says in a form that JSON has; None where this torch cannot say."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of switches that are about to go
        try:
            value = ask()
        except Exception:
            return None
    plain = value is None or isinstance(value, (bool, int, str))
    return value if plain or isinstance(value, (list, dict)) else str(value)


def _find(path: str) -> Any:
    def ask() -> Any:
        found: Any = torch
        for name in path.split("."):
            found = getattr(found, name)
        return found

    return _read(ask)


def _call(path: str) -> Any:
    def ask() -> Any:
        found: Any = torch
        for name in path.split("."):
            found = getattr(found, name)
        return found() if callable(found) else found

    return _read(ask)


def _nccl() -> str | None:
    if not torch.version.cuda:
        return None
    version: Any = torch.cuda.nccl.version()  # type: ignore[no-untyped-call]
    return ".".join(map(str, version))


def _lines(text: str) -> list[str]:
    """What `parallel_info` says of OpenMP, MKL and oneDNN."""
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith("Environment")]


def _inductor() -> dict[str, Any]:
    """Settings of Inductor, where something has imported it."""
    config = sys.modules.get("torch._inductor.config")
    names = (
        "max_autotune",
        "fallback_random",
        "emulate_precision_casts",
        "deterministic",
        "freezing",
    )
    return {n: _read(lambda n=n: getattr(config, n)) for n in names if hasattr(config, n)}  # type: ignore[misc]


def _devices() -> list[dict[str, Any]]:
    """What torch knows of its GPUs, if it has been using them already."""
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return []
    found = []
    for i in range(torch.cuda.device_count()):
        about = torch.cuda.get_device_properties(i)
        found.append(
            {
                "name": about.name,
                "capability": f"{about.major}.{about.minor}",
                "multiprocessors": about.multi_processor_count,
                "memory_bytes": about.total_memory,
            }
        )
    return found


def _numpy() -> dict[str, Any]:
    """The BLAS and LAPACK that NumPy was built with, and the instruction sets it uses here."""

    def ask() -> dict[str, Any]:
        shown: Any = np.show_config(mode="dicts")
        needs = shown.get("Build Dependencies", {})
        about = {
            name: f"{needs.get(name, {}).get('name')} {needs.get(name, {}).get('version')}"
            for name in ("blas", "lapack")
        }
        return {**about, "simd": shown.get("SIMD Extensions", {}).get("found", [])}

    found = _read(ask)
    return found if isinstance(found, dict) else {}
