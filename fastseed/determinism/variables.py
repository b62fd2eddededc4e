"""Environment variables that decide about determinism and that a library reads once.

``docs/determinism.md`` has the source of each.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from typing import NamedTuple


class Variable(NamedTuple):
    """A variable that a library reads once."""

    name: str
    wanted: str
    why: str
    unavailable: Callable[[], str | None]  # why this installation does not use it
    late: Callable[[], str | None] = lambda: None  # why setting it now has no effect
    also_good: tuple[str, ...] = ()  # values in lower case
    certain: bool = False  # whether ``late`` knows the value that the library read

    def accepts(self, value: str) -> bool:
        """Return whether every part of a value, between commas, is a good one."""
        good = (self.wanted.lower(), *self.also_good)
        return all(part.strip().lower() in good for part in value.split(","))


def _needs(module: str) -> Callable[[], str | None]:
    return lambda: None if importlib.util.find_spec(module) else f"{module} is not installed"


def _needs_torch_with(part: str) -> Callable[[], str | None]:
    def unavailable() -> str | None:
        import torch
        import torch.distributed as dist

        found: dict[str, Callable[[], object]] = {
            "CUDA": lambda: torch.version.cuda,
            "MKL": torch.backends.mkl.is_available,
            "NCCL": lambda: dist.is_available() and dist.is_nccl_available(),
        }
        return None if found[part]() else f"this torch has no {part}"

    return unavailable


def cublas_refusal() -> str | None:
    """Return why cuBLAS is not deterministic in this process; None if torch accepts it."""
    # torch refuses later calls in deterministic mode if it was not set at the first: try a product.
    import torch

    from .._backend import private_torch

    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return None
    mode = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    try:
        if torch.cuda.is_current_stream_capturing():
            return "a CUDA graph is being captured, during which this cannot be tested"
        private_torch.set_deterministic(True, warn_only=False)
        with torch.inference_mode(), torch.autocast("cuda", enabled=False):
            ones = torch.ones(16, 16, device="cuda")
            torch.mm(ones, ones)
    except RuntimeError as error:
        if "CUBLAS_WORKSPACE_CONFIG" in str(error):
            return "torch has called cuBLAS before, and reads it once"
        return f"CUDA is initialized, and a test product failed: {str(error).splitlines()[0]}"
    finally:
        private_torch.set_deterministic(mode, warn_only)
    return None


def mkl_depends_on_alignment() -> bool:
    """Return whether bits of a dot product depend on addresses, as in MKL without ``MKL_CBWR``."""
    import torch

    count = 1000
    found = set()
    with torch.inference_mode():
        values = torch.arange(1, count + 1, dtype=torch.float32, device="cpu").rsqrt()
        memory = torch.empty(count + 16, dtype=torch.float32, device="cpu")
        for first in range(4):  # one in four is on a boundary of 16 bytes
            moved = memory[first : first + count].copy_(values)
            found.add(torch.dot(moved, moved).item())
    return len(found) > 1


def _nccl_late() -> str | None:
    import torch.distributed as dist

    started = dist.is_available() and dist.is_initialized()
    if started and "nccl" in str(dist.get_backend_config()):
        return "NCCL read it when the process group was created"
    return None


def _horovod_late() -> str | None:
    started = getattr(sys.modules.get("horovod.torch"), "is_initialized", None)
    return "Horovod read it when it was initialized" if started and started() else None


_MKL_BRANCHES = ("auto", "compatible", "sse2", "sse4_2", "avx", "avx2", "avx512", "avx512_e1")

VARIABLES: tuple[Variable, ...] = (
    Variable(
        "CUBLAS_WORKSPACE_CONFIG",
        ":4096:8",
        "cuBLAS gives the same bits on several streams",
        unavailable=_needs_torch_with("CUDA"),
        late=lambda: cublas_refusal(),
        also_good=(":16:8",),
        certain=True,
    ),
    Variable(
        "MKL_CBWR",
        "AUTO",
        "products of matrix and vector on the CPU do not depend on addresses",
        unavailable=_needs_torch_with("MKL"),
        late=lambda: "MKL read it at its first call" if mkl_depends_on_alignment() else None,
        also_good=(*_MKL_BRANCHES, *(f"branch={one}" for one in _MKL_BRANCHES), "strict"),
        certain=True,
    ),
    Variable(
        "NCCL_ALGO",
        "Ring",
        "sums over ranks in the fixed order of the ring",
        unavailable=_needs_torch_with("NCCL"),
        late=_nccl_late,
        also_good=("collnetdirect", "collnetchain", "^nvls"),  # of NVIDIA's guide
    ),
    Variable(
        "HOROVOD_FUSION_THRESHOLD",
        "0",
        "tensors are not grouped by the time at which they are ready",
        unavailable=_needs("horovod"),
        late=_horovod_late,
    ),
    Variable(
        "NVTE_ALLOW_NONDETERMINISTIC_ALGO",
        "0",
        "Transformer Engine's deterministic algorithms, in layers created from now on",
        unavailable=_needs("transformer_engine"),
    ),
    Variable(
        "FLASH_ATTENTION_DETERMINISTIC",
        "1",
        "transformers requests the deterministic backward of flash-attn",
        unavailable=_needs("flash_attn"),
    ),
)

CHILD_VARIABLES = {"TORCHINDUCTOR_DETERMINISTIC": "1"}
"""Also set for a new process; in a running one it is a switch (torch/_inductor/config.py)."""
