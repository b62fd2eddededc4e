"""Finding the compiled parts.

``fastseed._kernels`` is a plain shared library of registered operators and is loaded through
torch; ``fastseed._generators`` is a pybind11 module, built for one torch and one Python. They are
used together or not at all: :data:`kernels` and :data:`generators` are both there or both None,
and then :data:`missing` says why.
"""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

import torch

from .._utils import environ

INTERFACE = 9
"""What the Python code expects of ``_generators``: counted up with each change of a signature."""

CHOICES = ("auto", "native", "reference")

kernels: Any = None
generators: Any = None
missing: str | None = None


def _load() -> tuple[Any, Any]:
    found = sorted(Path(__file__).parents[1].glob("_kernels*.so"))
    if not found:
        raise ImportError("the package was built without native code")
    module = importlib.import_module("fastseed._generators")
    built_for = getattr(module, "TORCH_VERSION", "another torch")
    if not torch.__version__.startswith(built_for):
        raise ImportError(f"the native code was built for torch {built_for}; build it again")
    if getattr(module, "INTERFACE", 0) != INTERFACE:
        raise ImportError("the native code is not of this version of fastseed; build it again")
    torch.ops.load_library(str(found[0]))  # type: ignore[no-untyped-call]
    module.simd_path()  # ValueError for a FASTSEED_SIMD that this CPU does not have
    return torch.ops.fastseed, module


def _choose() -> None:
    global kernels, generators, missing
    choice = os.environ.get(environ.BACKEND, "auto")
    if choice not in CHOICES:
        raise ValueError(f"fastseed: FASTSEED_BACKEND must be one of {CHOICES}, got {choice!r}")
    if choice == "reference":
        missing = "FASTSEED_BACKEND=reference"
        return
    try:
        kernels, generators = _load()
    except (ImportError, OSError) as error:
        if choice == "native":
            raise ImportError(
                f"fastseed: FASTSEED_BACKEND=native, but the native code cannot be used: {error}"
            ) from error
        missing = str(error)


_choose()
