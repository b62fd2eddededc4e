"""The settings that decide whether the same run gives the same bits, and where each is said so.

A *switch* takes effect whenever it is set. A *variable* of the environment is read once by the
library that it belongs to, and is of no use afterwards. Sources are named beside each of them:

randomness  https://docs.pytorch.org/docs/stable/notes/randomness.html
algorithms  https://docs.pytorch.org/docs/stable/generated/torch.use_deterministic_algorithms.html
filling     https://docs.pytorch.org/docs/stable/deterministic.html
attention   aten/src/ATen/native/transformers/cuda/{attention_backward.cu,sdp_utils.cpp}
context     aten/src/ATen/Context.cpp, checkCuBLASConfigDeterministic: read at the first cuBLAS call
cublas      https://docs.nvidia.com/cuda/cublas/index.html#results-reproducibility
nccl        https://docs.nvidia.com/megatron-core/developer-guide/nightly/user-guide/
            deterministic-training.html; NVIDIA/nccl issues 1497 and 2360; parameters are cached by
            NCCL_PARAM in src/include/param.h
horovod     https://github.com/horovod/horovod/blob/master/docs/tensor-fusion.rst;
            NVIDIA/framework-reproducibility, doc/d9m/pytorch.md
flash-attn  transformers/modeling_flash_attention_utils.py, transformers/trainer_utils.py
"""

from __future__ import annotations

import importlib.util
import os
import sys
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

KEEP, REPEATABLE = "keep", "repeatable"
ATTENTION = (REPEATABLE, KEEP)


class Switch(NamedTuple):
    """A setting of this process."""

    name: str
    wanted: Any
    read: Callable[[], Any]
    write: Callable[[Any], None]
    why: str


class Variable(NamedTuple):
    """A variable of the environment that a library reads once."""

    name: str
    wanted: str
    accepts: Callable[[str], bool]
    absent: Callable[[], str | None]
    """Why it is of no use in this installation; None if it is."""
    late: Callable[[], str | None]
    """Why setting it now is in vain; None if it is not."""
    why: str
    certain: bool = False
    """Whether ``late`` says what the library saw, however good the value is now."""


# ---------------------------------------------------------------- switches


def _read_algorithms() -> bool | str:
    if not torch.are_deterministic_algorithms_enabled():
        return False
    return "warn only" if torch.is_deterministic_algorithms_warn_only_enabled() else True


def _write_algorithms(value: bool | str) -> None:
    torch.use_deterministic_algorithms(bool(value), warn_only=value == "warn only")


def _attribute(holder: Any, name: str) -> tuple[Callable[[], Any], Callable[[Any], None]]:
    return lambda: getattr(holder, name), lambda value: setattr(holder, name, value)


def switches(warn_only: bool, fill: bool, attention: str) -> list[Switch]:
    """All switches in the order in which they are set: the first of them sets Inductor's too."""
    import torch._inductor.config as inductor  # 2 s; torch's own switch imports it as well

    fills, cudnn, onednn = torch.utils.deterministic, torch.backends.cudnn, torch.backends.mkldnn
    found = [
        Switch(
            "torch.use_deterministic_algorithms",
            "warn only" if warn_only else True,
            _read_algorithms,
            _write_algorithms,
            "operations take a deterministic algorithm, or "
            + ("warn" if warn_only else "raise RuntimeError"),
        ),
        Switch(
            "torch.utils.deterministic.fill_uninitialized_memory",
            fill,
            *_attribute(fills, "fill_uninitialized_memory"),
            "torch.empty and its kin hold known values",
        ),
        Switch(
            "torch.backends.cudnn.deterministic",
            True,
            *_attribute(cudnn, "deterministic"),
            "cuDNN's deterministic algorithms alone",
        ),
        Switch(
            "torch.backends.cudnn.benchmark",
            False,
            *_attribute(cudnn, "benchmark"),
            "timing does not choose the convolution",
        ),
        Switch(
            "torch.backends.mkldnn.deterministic",
            True,
            *_attribute(onednn, "deterministic"),
            "oneDNN's deterministic primitives",
        ),
    ]
    if hasattr(inductor, "deterministic"):
        found.append(
            Switch(
                "torch._inductor.config.deterministic",
                True,
                *_attribute(inductor, "deterministic"),
                "compiled code is not chosen by timing it",
            )
        )
    return found + ([] if attention == KEEP else attention_kernels(warn_only))


def attention_kernels(warn_only: bool) -> list[Switch]:
    """Kernels of scaled_dot_product_attention.

    Where errors are raised, flash and memory-efficient attention take a deterministic backward,
    and torch passes cuDNN's over. With warnings alone they do not: both keep the faster one, which
    adds in any order. Then the kernel written in plain operations is the one that repeats.
    """
    cuda = torch.backends.cuda
    found = [
        Switch(
            "scaled_dot_product_attention: cudnn",
            False,
            cuda.cudnn_sdp_enabled,
            cuda.enable_cudnn_sdp,
            "its backward is not deterministic",
        )
    ]
    if warn_only:
        why = "with warnings alone its backward is not deterministic"
        found += [
            Switch(
                "scaled_dot_product_attention: flash",
                False,
                cuda.flash_sdp_enabled,
                cuda.enable_flash_sdp,
                why,
            ),
            Switch(
                "scaled_dot_product_attention: memory-efficient",
                False,
                cuda.mem_efficient_sdp_enabled,
                cuda.enable_mem_efficient_sdp,
                why,
            ),
            Switch(
                "scaled_dot_product_attention: math",
                True,
                cuda.math_sdp_enabled,
                cuda.enable_math_sdp,
                "the kernel that is left",
            ),
        ]
    return found


# ---------------------------------------------------------------- variables


def _installed(module: str) -> bool:
    if module in sys.modules:
        return sys.modules[module] is not None
    return importlib.util.find_spec(module) is not None


def _needs(module: str) -> Callable[[], str | None]:
    return lambda: None if _installed(module) else f"{module} is not installed"


def _no_cublas() -> str | None:
    return None if torch.version.cuda else "this torch has no CUDA"


def _no_nccl() -> str | None:
    there = torch.distributed.is_available() and torch.distributed.is_nccl_available()
    return None if there else "this torch has no NCCL"


def _cublas_late() -> str | None:
    running: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return cublas_refusal() if running else None


def cublas_refusal() -> str | None:
    """Why cuBLAS is not deterministic with CUDA up and running; None if torch says that it is.

    torch looks at the variable once, at its first call of cuBLAS, and from then on refuses such
    calls in deterministic mode. So it is asked, with a small product. Where it cannot be asked, it
    counts as refused.
    """
    asked_in = (
        torch.are_deterministic_algorithms_enabled(),
        (torch.is_deterministic_algorithms_warn_only_enabled()),
    )
    try:
        if torch.cuda.is_current_stream_capturing():
            return "a CUDA graph is being captured, so torch cannot be asked"
        torch._C._set_deterministic_algorithms(True, warn_only=False)
        with torch.inference_mode(), torch.autocast("cuda", enabled=False):
            ones = torch.ones(16, 16, device="cuda")
            torch.mm(ones, ones)
    except RuntimeError as error:
        if "CUBLAS_WORKSPACE_CONFIG" in str(error):
            return "torch called cuBLAS before, and looks once"
        return f"CUDA is initialised, and torch cannot be asked: {str(error).splitlines()[0]}"
    finally:
        torch._C._set_deterministic_algorithms(asked_in[0], warn_only=asked_in[1])
    return None


def _nccl_late() -> str | None:
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        backends = " ".join(
            str(distributed.get_backend_config(group))
            for group in list(distributed.distributed_c10d._world.pg_map)
        )
        if "nccl" in backends:
            return "NCCL read it when the process group was made"
    return None


def _horovod_late() -> str | None:
    for name in ("horovod.torch", "horovod.tensorflow", "horovod.tensorflow.keras"):
        started = getattr(sys.modules.get(name), "is_initialized", None)
        if started is not None and started():
            return "Horovod read it when it was initialised"
    return None


def _never() -> None:
    return None


def _among(*values: str) -> Callable[[str], bool]:
    return lambda value: value in values


def _nccl_repeats(value: str) -> bool:
    """Whether NVIDIA's guide accepts these algorithms: it names these four."""
    good = {"ring", "collnetdirect", "collnetchain", "^nvls"}
    return bool(value) and all(one.strip().lower() in good for one in value.split(","))


VARIABLES: tuple[Variable, ...] = (
    Variable(
        "CUBLAS_WORKSPACE_CONFIG",
        ":4096:8",
        _among(":4096:8", ":16:8"),
        _no_cublas,
        _cublas_late,
        "cuBLAS gives the same bits on several streams",
        certain=True,
    ),
    Variable(
        "NCCL_ALGO",
        "Ring",
        _nccl_repeats,
        _no_nccl,
        _nccl_late,
        "sums over ranks in an order that the ring fixes, not the switch's",
    ),
    Variable(
        "HOROVOD_FUSION_THRESHOLD",
        "0",
        _among("0"),
        _needs("horovod"),
        _horovod_late,
        "tensors are not fused by when they are ready",
    ),
    Variable(
        "NVTE_ALLOW_NONDETERMINISTIC_ALGO",
        "0",
        _among("0"),
        _needs("transformer_engine"),
        _never,
        "Transformer Engine's deterministic algorithms, in layers made from now on",
    ),
    Variable(
        "FLASH_ATTENTION_DETERMINISTIC",
        "1",
        _among("1"),
        _needs("flash_attn"),
        _never,
        "transformers asks the package flash-attn for its deterministic backward",
    ),
)

CHILD_VARIABLES = {"TORCHINDUCTOR_DETERMINISTIC": "1"}
"""Set for a new process besides: what switches do in one that runs (torch/_inductor/config.py)."""


# ---------------------------------------------------------------- what is only reported


def seen() -> list[tuple[str, Any, str]]:
    """(setting, value, why it matters) of what changes bits and is left as it is."""
    return [
        (
            "torch.get_float32_matmul_precision",
            _ask(torch.get_float32_matmul_precision),
            "TF32 or bfloat16 in float32 products: the same bits on one kind of GPU",
        ),
        (
            "torch.backends.cudnn.fp32_precision",
            _ask(lambda: torch.backends.cudnn.fp32_precision),
            "TF32 in convolutions",
        ),
        *(
            (name, os.environ.get(name), "overrides the precision of float32 products")
            for name in ("NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE")
        ),
        (
            "torch.get_num_threads",
            torch.get_num_threads(),
            "sums on the CPU are cut by it: keep it the same in each run",
        ),
    ]


def _ask(read: Callable[[], Any]) -> Any:
    """torch refuses to tell a precision that was set in its old and its new way at once."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return read()
    except RuntimeError as error:
        return f"unknown: {str(error).splitlines()[0]}"
