"""torch's switches for determinism, and settings that change bits and are only reported.

Sources:

algorithms  https://docs.pytorch.org/docs/stable/generated/torch.use_deterministic_algorithms.html
randomness  https://docs.pytorch.org/docs/stable/notes/randomness.html
memory      https://docs.pytorch.org/docs/stable/deterministic.html
attention   aten/src/ATen/native/transformers/cuda/{attention_backward.cu,sdp_utils.cpp}
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from .report import INFO, Row

KEEP, REPEATABLE = "keep", "repeatable"
ATTENTION = (REPEATABLE, KEEP)


class Switch(NamedTuple):
    """A setting of this process that takes effect whenever it is set."""

    name: str
    wanted: Any
    read: Callable[[], Any]
    write: Callable[[Any], None]
    why: str


def _read_algorithms() -> bool | str:
    if not torch.are_deterministic_algorithms_enabled():
        return False
    return "warn only" if torch.is_deterministic_algorithms_warn_only_enabled() else True


def _write_algorithms(value: bool | str) -> None:
    torch.use_deterministic_algorithms(bool(value), warn_only=value == "warn only")


def _attribute(name: str, wanted: Any, holder: Any, why: str) -> Switch:
    attribute = name.rpartition(".")[2]
    return Switch(
        *(name, wanted, lambda: getattr(holder, attribute)),
        *(lambda value: setattr(holder, attribute, value), why),
    )


def switches(warn_only: bool, fill: bool, attention: str) -> list[Switch]:
    """Return the switches in the order in which to set them: the first also sets Inductor's."""
    import torch._inductor.config as inductor  # 2 s; torch's own switch imports it as well

    cudnn, onednn = torch.backends.cudnn, torch.backends.mkldnn
    memory, result = torch.utils.deterministic, "warn" if warn_only else "raise RuntimeError"
    found = [
        Switch(
            *("torch.use_deterministic_algorithms", "warn only" if warn_only else True),
            *(_read_algorithms, _write_algorithms),
            f"operations use a deterministic algorithm, or {result}",
        ),
        _attribute(
            *("torch.utils.deterministic.fill_uninitialized_memory", fill, memory),
            "torch.empty and similar functions return known values",
        ),
        _attribute(
            *("torch.backends.cudnn.deterministic", True, cudnn),
            "cuDNN uses deterministic algorithms only",
        ),
        _attribute(
            *("torch.backends.cudnn.benchmark", False, cudnn),
            "the convolution algorithm is not chosen by timing",
        ),
        _attribute(
            *("torch.backends.mkldnn.deterministic", True, onednn),
            "oneDNN uses deterministic primitives",
        ),
    ]
    if hasattr(inductor, "deterministic"):
        name = "torch._inductor.config.deterministic"
        found.append(_attribute(name, True, inductor, "compiled code is not chosen by timing"))
    return found + ([] if attention == KEEP else _attention_kernels(warn_only))


def _attention_kernels(warn_only: bool) -> list[Switch]:
    """Return the switches of scaled_dot_product_attention.

    In strict mode torch uses a deterministic backward of the flash and memory-efficient kernels and
    not cuDNN's. With warnings only, both keep their faster backward, which adds in any order: then
    the kernel in plain operations is the one that repeats.
    """
    cuda, name = torch.backends.cuda, "scaled_dot_product_attention: "
    found = [
        Switch(
            *(name + "cudnn", False, cuda.cudnn_sdp_enabled, cuda.enable_cudnn_sdp),
            "its backward is not deterministic",
        )
    ]
    if warn_only:
        why = "with warnings only its backward is not deterministic"
        efficient = cuda.mem_efficient_sdp_enabled, cuda.enable_mem_efficient_sdp
        found += [
            Switch(name + "flash", False, cuda.flash_sdp_enabled, cuda.enable_flash_sdp, why),
            Switch(name + "memory-efficient", False, *efficient, why),
            Switch(
                *(name + "math", True, cuda.math_sdp_enabled, cuda.enable_math_sdp),
                "the remaining kernel",
            ),
        ]
    return found


def info(warn_only: bool, attention: str) -> list[Row]:
    """Return rows of settings that change bits and are left as they are."""
    tf32 = "TF32 or bfloat16 in float32 products: the same bits on one kind of GPU"
    convolutions = _read(lambda: torch.backends.cudnn.fp32_precision)
    threads = "the CPU splits sums by it: keep it the same in each run"
    values = [
        ("torch.get_float32_matmul_precision", _read(torch.get_float32_matmul_precision), tf32),
        ("torch.backends.cudnn.fp32_precision", convolutions, "TF32 in convolutions"),
        ("torch.get_num_threads", torch.get_num_threads(), threads),
    ]
    for name in ("NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"):
        values.append((name, os.environ.get(name), "overrides the precision of float32 products"))
    if not warn_only and attention != KEEP:
        cuda: Any = torch.backends.cuda
        name, why = "scaled_dot_product_attention: ", "strict mode uses its deterministic backward"
        values.append((name + "flash", cuda.flash_sdp_enabled(), why))
        values.append((name + "memory-efficient", cuda.mem_efficient_sdp_enabled(), why))
    return [Row(name, None, value, value, INFO, why) for name, value, why in values]


def _read(read: Callable[[], Any]) -> Any:
    """Read a precision; torch raises if it was set in both the old and the new way."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return read()
    except RuntimeError as error:
        return f"unknown: {str(error).splitlines()[0]}"
