"""torch's switches for determinism, and settings that change bits and are only reported.

``docs/determinism.md`` has the source of each.
"""

from __future__ import annotations

import functools
import operator
import os
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from .report import INFO, Row, Value
from .variables import Variable

KEEP, REPEATABLE = "keep", "repeatable"
ATTENTION = (REPEATABLE, KEEP)


class Switch(NamedTuple):
    """A setting of this process that takes effect whenever it is set."""

    name: str
    wanted: Value
    read: Callable[[], Value]
    write: Callable[[Any], None]
    why: str

    def set(self, value: Value) -> None:
        """Write a value unless the setting has it."""
        if self.read() != value:
            self.write(value)


def variable(found: Variable) -> Switch:
    """Return an environment variable as a switch, whose values are those of ``os.environ``."""
    name = found.name
    write = functools.partial(write_variable, name)
    return Switch(name, found.wanted, lambda: os.environ.get(name), write, found.why)


def write_variable(name: str, value: str | None) -> None:
    """Set an environment variable; None removes it."""
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


def switches(warn_only: bool, fill: bool, attention: str) -> list[Switch]:
    """Return the switches in the order in which to set them: the first also sets Inductor's."""
    mode, result = ("warn only", "warn") if warn_only else (True, "raise RuntimeError")
    why = f"operations use a deterministic algorithm, or {result}"
    name = "torch.use_deterministic_algorithms"
    found = [Switch(name, mode, _read_algorithms, _write_algorithms, why)]
    attributes = (
        ("utils.deterministic.fill_uninitialized_memory", fill, "torch.empty returns known values"),
        ("backends.cudnn.deterministic", True, "cuDNN uses deterministic algorithms only"),
        ("backends.cudnn.benchmark", False, "the convolution algorithm is not chosen by timing"),
        ("backends.mkldnn.deterministic", True, "oneDNN uses deterministic primitives"),
        ("_inductor.config.deterministic", True, "compiled code is not chosen by timing"),
    )
    found += [_attribute(*attribute) for attribute in attributes]
    # With warnings only, the flash and memory-efficient kernels keep a faster backward, which adds
    # in any order: then the kernel in plain operations is the one that repeats.
    if attention != KEEP:
        found.append(_kernel("cudnn", False, "its backward is not deterministic"))
    if attention != KEEP and warn_only:
        why = "with warnings only its backward is not deterministic"
        found += [_kernel("flash", False, why), _kernel("mem_efficient", False, why)]
        found.append(_kernel("math", True, "the remaining kernel"))
    return found


def _read_algorithms() -> bool | str:
    if not torch.are_deterministic_algorithms_enabled():
        return False
    return "warn only" if torch.is_deterministic_algorithms_warn_only_enabled() else True


def _write_algorithms(value: bool | str) -> None:
    torch.use_deterministic_algorithms(bool(value), warn_only=value == "warn only")


def _attribute(path: str, wanted: bool, why: str) -> Switch:
    """Return the switch that is an attribute of a module of torch."""
    module, _, name = path.rpartition(".")
    holder = operator.attrgetter(module)(torch)
    read, write = functools.partial(getattr, holder, name), functools.partial(setattr, holder, name)
    return Switch(f"torch.{path}", wanted, read, write, why)


def _kernel(name: str, wanted: bool, why: str) -> Switch:
    """Return the switch of a kernel of scaled_dot_product_attention."""
    cuda = torch.backends.cuda
    read, write = getattr(cuda, f"{name}_sdp_enabled"), getattr(cuda, f"enable_{name}_sdp")
    return Switch(f"scaled_dot_product_attention: {name}", wanted, read, write, why)


def info() -> list[Row]:
    """Return rows of settings that change bits and are left as they are."""
    cudnn, cpu = "torch.backends.cudnn", "torch.backends.cpu"
    tf32 = "TF32 or bfloat16 in float32 products: the same bits on one kind of GPU"
    threads = "the CPU splits sums by it; torchrun sets 1 for several processes, and not for one"
    instructions = "vector length of torch's CPU kernels: other bits on another processor"
    values: list[tuple[str, Value, str]] = [
        ("torch.get_float32_matmul_precision", _read(torch.get_float32_matmul_precision), tf32),
        (f"{cudnn}.fp32_precision", _read(lambda: torch.backends.cudnn.fp32_precision), tf32),
        ("torch.get_num_threads", torch.get_num_threads(), threads),
        (f"{cpu}.get_cpu_capability", torch.backends.cpu.get_cpu_capability(), instructions),
    ]
    for name in ("NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"):
        values.append((name, os.environ.get(name), "overrides the precision of float32 products"))
    return [Row(name, None, value, value, INFO, why) for name, value, why in values]


def _read(read: Callable[[], str]) -> str:
    """Read a precision; torch raises if it was set in both the old and the new way."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return read()
    except RuntimeError as error:
        return f"unknown: {str(error).splitlines()[0]}"
