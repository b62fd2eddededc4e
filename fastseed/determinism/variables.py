"""Environment variables that decide about determinism and that a library reads once.

Sources:

cublas      https://docs.nvidia.com/cuda/cublas/index.html#results-reproducibility; torch reads the
            variable at its first cuBLAS call (alertCuBLASConfigNotDeterministic in Context.cpp)
nccl        https://docs.nvidia.com/megatron-core/developer-guide/nightly/user-guide/
            deterministic-training.html; NVIDIA/nccl issues 1497 and 2360
horovod     https://github.com/horovod/horovod/blob/master/docs/tensor-fusion.rst;
            NVIDIA/framework-reproducibility, doc/d9m/pytorch.md
flash-attn  transformers/modeling_flash_attention_utils.py
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from typing import NamedTuple


class Variable(NamedTuple):
    """A variable that a library reads once.

    Attributes:
        name, wanted: the variable and the value to set.
        accepts: whether a value is as good as the wanted one.
        unavailable: returns why this installation does not use the variable; None if it does.
        late: returns why setting it now has no effect; None if it has one.
        why: what the value does.
        certain: whether ``late`` knows the value that the library read, whatever it is now.
    """

    name: str
    wanted: str
    accepts: Callable[[str], bool]
    unavailable: Callable[[], str | None]
    late: Callable[[], str | None]
    why: str
    certain: bool = False


def _needs(module: str) -> Callable[[], str | None]:
    def unavailable() -> str | None:
        loaded = module in sys.modules and sys.modules[module] is None
        there = module in sys.modules or importlib.util.find_spec(module) is not None
        return None if there and not loaded else f"{module} is not installed"

    return unavailable


def _no_cublas() -> str | None:
    import torch

    return None if torch.version.cuda else "this torch has no CUDA"


def _no_nccl() -> str | None:
    import torch.distributed as dist

    there = dist.is_available() and dist.is_nccl_available()
    return None if there else "this torch has no NCCL"


def _cublas_late() -> str | None:
    import torch

    running: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return cublas_refusal() if running else None


def cublas_refusal() -> str | None:
    """Return why cuBLAS is not deterministic in this process; None if torch accepts it.

    torch reads the variable at its first cuBLAS call, and refuses later calls in deterministic mode
    if it was not set then. So multiply two small matrices in that mode. CUDA has to be initialised.
    """
    import torch

    mode = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    try:
        if torch.cuda.is_current_stream_capturing():
            return "a CUDA graph is being captured, during which this cannot be tested"
        torch._C._set_deterministic_algorithms(True, warn_only=False)
        with torch.inference_mode(), torch.autocast("cuda", enabled=False):
            ones = torch.ones(16, 16, device="cuda")
            torch.mm(ones, ones)
    except RuntimeError as error:
        if "CUBLAS_WORKSPACE_CONFIG" in str(error):
            return "torch has called cuBLAS before, and reads it once"
        return f"CUDA is initialised, and a test product failed: {str(error).splitlines()[0]}"
    finally:
        torch._C._set_deterministic_algorithms(mode, warn_only=warn_only)
    return None


def _nccl_late() -> str | None:
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        groups = list(dist.distributed_c10d._world.pg_map)
        if any("nccl" in str(dist.get_backend_config(group)) for group in groups):
            return "NCCL read it when the process group was created"
    return None


def _horovod_late() -> str | None:
    for name in ("horovod.torch", "horovod.tensorflow", "horovod.tensorflow.keras"):
        started = getattr(sys.modules.get(name), "is_initialized", None)
        if started is not None and started():
            return "Horovod read it when it was initialised"
    return None


def _never() -> None:
    return None


def _one_of(*values: str) -> Callable[[str], bool]:
    return lambda value: value in values


def _nccl_repeats(value: str) -> bool:
    """Return whether all algorithms are among the four that NVIDIA's guide accepts."""
    good = {"ring", "collnetdirect", "collnetchain", "^nvls"}
    return bool(value) and all(one.strip().lower() in good for one in value.split(","))


VARIABLES: tuple[Variable, ...] = (
    Variable(
        *("CUBLAS_WORKSPACE_CONFIG", ":4096:8", _one_of(":4096:8", ":16:8")),
        *(_no_cublas, _cublas_late, "cuBLAS gives the same bits on several streams"),
        certain=True,
    ),
    Variable(
        *("NCCL_ALGO", "Ring", _nccl_repeats, _no_nccl, _nccl_late),
        "sums over ranks in the fixed order of the ring",
    ),
    Variable(
        *("HOROVOD_FUSION_THRESHOLD", "0", _one_of("0"), _needs("horovod"), _horovod_late),
        "tensors are not grouped by the time at which they are ready",
    ),
    Variable(
        *("NVTE_ALLOW_NONDETERMINISTIC_ALGO", "0", _one_of("0")),
        *(_needs("transformer_engine"), _never),
        "Transformer Engine's deterministic algorithms, in layers created from now on",
    ),
    Variable(
        *("FLASH_ATTENTION_DETERMINISTIC", "1", _one_of("1"), _needs("flash_attn"), _never),
        "transformers requests the deterministic backward of flash-attn",
    ),
)

CHILD_VARIABLES = {"TORCHINDUCTOR_DETERMINISTIC": "1"}
"""Also set for a new process; in a running one it is a switch (torch/_inductor/config.py)."""
