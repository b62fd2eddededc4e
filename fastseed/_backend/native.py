"""Finding the compiled parts.

``fastseed._kernels`` is a plain shared library of registered operators, for any torch from 2.10 and
any Python. ``fastseed._generators`` is a pybind11 module, built for one torch and one Python, that
calls the operators' loops; without it torch's and NumPy's public interfaces set the generators.
"""

from __future__ import annotations

import importlib
import mmap
import os
import warnings
from pathlib import Path
from typing import Any

import torch

from .._utils import environ

INTERFACE = 17
"""FS_INTERFACE of csrc/ops/interface.h, which the three parts of the package have to share."""

CHOICES = ("auto", "native", "reference")
_FOLDER = Path(__file__).parents[1]
_NOT_BUILT = Path(__file__).with_name("not_built.txt")  # written by the build, if by pip
_STALE = "it is not of this version of fastseed; build it again"

kernels: Any = None
"""``torch.ops.fastseed`` with the native operators, or None."""
generators: Any = None
"""The module ``fastseed._generators``, or None. Never there without ``kernels``."""
missing: str | None = None
"""Why ``kernels`` is None."""
generators_missing: str | None = None
"""Why ``generators`` is None."""


def why_not_built() -> str:
    """Return a colon and the build's reason for leaving a part out, if there is one."""
    reason = _NOT_BUILT.read_text() if _NOT_BUILT.exists() else ""
    return f": {reason}" if reason else ""


def _load_kernels() -> Any:
    found = sorted(_FOLDER.glob("_kernels*.so"))
    if not found:
        raise ImportError(f"the package was built without native code{why_not_built()}")
    # Loading registers the operators for good, so another version must not be loaded at all.
    if not _has_interface_mark(found[0]):
        raise ImportError(f"{found[0].name}: {_STALE}")
    torch.ops.load_library(str(found[0]))  # type: ignore[no-untyped-call]
    path, paths = os.environ.get(environ.SIMD), torch.ops.fastseed.simd_paths().split()
    if path and path not in paths:
        raise ValueError(
            f"fastseed: FASTSEED_SIMD must be one of {', '.join(paths)} on this CPU, got {path}"
        )
    return torch.ops.fastseed


def _has_interface_mark(library: Path) -> bool:
    """Search a library's file, of which only the pages up to the mark are read."""
    mark = f"fastseed interface {INTERFACE}.".encode()
    with library.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:  # which cannot be mapped
            return False
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return content.find(mark) >= 0


def _load_generators() -> Any:
    if not any(_FOLDER.glob("_generators*.so")):
        raise ImportError("the package was built without _generators")
    module = importlib.import_module("fastseed._generators")
    if not torch.__version__.startswith(module.TORCH_VERSION):
        raise ImportError(f"_generators was built for torch {module.TORCH_VERSION}; build it again")
    if module.INTERFACE != INTERFACE:
        raise ImportError(f"_generators: {_STALE}")
    module.connect(kernels.loop_table())
    return module


def _choose() -> None:
    global kernels, generators, missing, generators_missing
    choice = os.environ.get(environ.BACKEND, "auto")
    if choice not in CHOICES:
        raise ValueError(f"fastseed: FASTSEED_BACKEND must be one of {CHOICES}, got {choice!r}")
    if choice == "reference":
        missing = generators_missing = "FASTSEED_BACKEND=reference"
        return
    try:
        kernels = _load_kernels()
        generators = _load_generators()
    except (ImportError, OSError) as error:
        generators_missing = str(error)
        if kernels is None:
            missing = str(error)
        if kernels is None and choice == "native":
            raise ImportError(
                f"fastseed: FASTSEED_BACKEND=native, but the native code cannot be used: {error}"
            ) from error
        part = "_generators" if missing is None else "_kernels"
        if any(_FOLDER.glob(f"{part}*.so")) or (missing is not None and why_not_built()):
            which = "part of its" if missing is None else "its"
            message = f"fastseed: {which} native code is not used: {error}"
            warnings.warn(message, RuntimeWarning, stacklevel=2)


_choose()
