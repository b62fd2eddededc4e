"""Finding the compiled parts.

``_kernels`` is a shared library of operators, for any torch from 2.10 and any Python.
``_generators`` is a pybind11 module for one torch and one Python; without it torch's and NumPy's
public interfaces set the generators.
"""

from __future__ import annotations

import importlib
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from .._utils import environ
from . import private_torch

INTERFACE = 23
"""Counted up with each change of an operator, of csrc/ops/interface.h or of ``_generators``.

It is part of the names of both libraries (see setup.py): of another one, none is loaded.
"""

CHOICES = ("auto", "native", "reference")
_FOLDER = Path(__file__).parents[1]
_NOT_BUILT = Path(__file__).with_name("not_built.txt")  # written by the build, if by pip
_TOOLS = (
    "simd_path() -> str",
    "simd_paths() -> str",
    "choose_simd_path(str name) -> ()",
    "loop_table() -> int",
)

library: torch.library.Library = torch.library.Library("fastseed", "FRAGMENT")  # type: ignore[no-untyped-call]
"""The library that ``.ops`` defines the operators in, which live as long as it does."""
kernels: Any = None
"""``torch.ops.fastseed`` with the native operators, or None."""
generators: Any = None
"""The module ``fastseed._generators``, or None. Never there without ``kernels``."""
missing: str | None = None
"""Why ``kernels`` is None."""
generators_missing: str | None = None
"""Why ``generators`` is None."""
has_cuda: bool = False
"""True if the operators were built for CUDA devices, whatever this machine has."""


def why_not_built() -> str:
    """Return a colon and the build's reason for leaving a part out, if there is one."""
    reason = _NOT_BUILT.read_text() if _NOT_BUILT.exists() else ""
    return f": {reason}" if reason else ""


def _file_of(part: str) -> Path:
    """Return the library of a part, of which there may be others of other versions."""
    if found := sorted(_FOLDER.glob(f"{part}_{INTERFACE}.*")):
        return found[0]
    if others := sorted(_FOLDER.glob(f"{part}*.so")):
        raise ImportError(f"{others[0].name} is not of this version of fastseed; build it again")
    what = f"native code{why_not_built()}" if part == "_kernels" else part
    raise ImportError(f"the package was built without {what}")


def _load_kernels() -> ModuleType:
    torch.ops.load_library(str(_file_of("_kernels")))  # type: ignore[no-untyped-call]
    for schema in _TOOLS:
        library.define(schema)  # type: ignore[no-untyped-call]
    torch.ops.fastseed.simd_path()  # checks FASTSEED_SIMD
    return torch.ops.fastseed


def _load_generators(loop_table: int) -> ModuleType:
    module = importlib.import_module(f"fastseed.{_file_of('_generators').name.partition('.')[0]}")
    if not torch.__version__.startswith(module.TORCH_VERSION):
        raise ImportError(f"_generators was built for torch {module.TORCH_VERSION}; build it again")
    module.connect(loop_table)
    return module


def _choose() -> None:
    global kernels, generators, missing, generators_missing, has_cuda
    choice = environ.get(environ.BACKEND) or "auto"
    if choice not in CHOICES:
        raise ValueError(f"fastseed: FASTSEED_BACKEND must be one of {CHOICES}, got {choice!r}")
    if choice == "reference":
        missing = generators_missing = "FASTSEED_BACKEND=reference"
        return
    try:
        kernels = _load_kernels()
        has_cuda = private_torch.has_kernel("fastseed::draw_bits", "CUDA")
        generators = _load_generators(kernels.loop_table())
    except (ImportError, OSError) as error:
        generators_missing = str(error)
        part, which = "_generators", "part of its"
        if kernels is None:
            missing, part, which = str(error), "_kernels", "its"
            if choice == "native":
                problem = "FASTSEED_BACKEND=native, but the native code cannot be used"
                raise ImportError(f"fastseed: {problem}: {error}") from error
        if any(_FOLDER.glob(f"{part}*.so")) or (kernels is None and why_not_built()):
            message = f"fastseed: {which} native code is not used: {error}"
            warnings.warn(message, RuntimeWarning, stacklevel=2)


_choose()
