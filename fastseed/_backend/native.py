"""Finding the compiled parts.

``_kernels`` is a shared library of operators, for any torch from 2.10 and any Python; ``_cuda`` has
the same operators for CUDA devices. ``_generators`` is a pybind11 module for one minor version of
torch and one Python; without it torch's and NumPy's public interfaces set the generators.
"""

from __future__ import annotations

import ctypes
import importlib
import platform
import warnings
from array import array
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from .._utils import environ
from . import parts

CHOICES = ("auto", "native", "reference")
_FOLDER = Path(__file__).parents[1]
_NOT_BUILT = Path(__file__).with_name("not_built.txt")  # written by the build, if by pip
_SEED = 0x123456789  # of the test that `_generators` reaches the states of this torch
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
"""True if the operators for CUDA devices are loaded, whatever this machine has."""
cuda_missing: str | None = None
"""Why ``has_cuda`` is false."""


def why_not_built() -> str:
    """Return a colon and the build's reason for leaving a part out, if there is one."""
    reason = _NOT_BUILT.read_text() if _NOT_BUILT.exists() else ""
    return f": {reason}" if reason else ""


def _file_of(name: str) -> Path:
    """Return the library of this name, of which there may be others of other versions."""
    for suffix in EXTENSION_SUFFIXES:
        if (path := _FOLDER / (name + suffix)).exists():
            return path
    part = "_" + name.split("_")[1]
    there = sorted(path.name for path in _FOLDER.glob(f"{part}_*.so"))
    if any(other.startswith(f"{part}_{parts.INTERFACE}_") for other in there):
        here = f"torch {torch.__version__} and Python {platform.python_version()}"
        raise ImportError(f"the package has no {part} for {here}; build fastseed from its sources")
    if there:
        raise ImportError(f"{there[0]} is not of this version of fastseed; build it again")
    what = {"_kernels": "native code", "_cuda": "CUDA kernels"}.get(part, part)
    reason = "" if part == "_generators" else why_not_built()
    raise ImportError(f"the package was built without {what}{reason}")


def _load_kernels() -> Any:
    torch.ops.load_library(str(_file_of(parts.KERNELS)))  # type: ignore[no-untyped-call]
    for schema in _TOOLS:
        library.define(schema)  # type: ignore[no-untyped-call]
    torch.ops.fastseed.simd_path()  # checks FASTSEED_SIMD
    return torch.ops.fastseed


def _load_generators() -> ModuleType:
    name = _file_of(parts.generators(torch.__version__)).name.partition(".")[0]
    module = importlib.import_module(f"fastseed.{name}")
    module.connect(kernels.loop_table())
    seeded, expected = torch.Generator("cpu"), torch.Generator("cpu").manual_seed(_SEED)
    module.Pool([seeded]).manual_seed(array("Q", [_SEED]))
    if seeded.get_state().numpy().tobytes() != expected.get_state().numpy().tobytes():
        raise ImportError(f"{module.__name__} does not set the states of torch {torch.__version__}")
    return module


def _load_cuda() -> None:
    """Load the operators for CUDA devices, which under an older driver do not register."""
    loaded = ctypes.CDLL(str(_file_of(parts.CUDA)))
    driver, needed = loaded.fastseed_cuda_driver(), loaded.fastseed_cuda_runtime()
    if 0 < driver < needed:  # 0: there is none, nor a device to run on
        driver, needed = (f"{v // 1000}.{v % 1000 // 10}" for v in (driver, needed))
        raise ImportError(
            f"the NVIDIA driver is of CUDA {driver}, the CUDA kernels need one of {needed}; update "
            f"the driver, or build fastseed from its sources with nvcc of CUDA {driver}"
        )


def _unused(part: str, error: Exception) -> str:
    """Return why a part is not used; warn if the package has it in some form."""
    is_all = part == "_kernels"
    if any(_FOLDER.glob(f"{part}_*.so")) or (is_all and why_not_built()):
        which = "its" if is_all else "part of its"
        message = f"fastseed: {which} native code is not used: {error}"
        warnings.warn(message, RuntimeWarning, stacklevel=3)
    return str(error)


def _choose() -> None:
    global kernels, generators, has_cuda, missing, generators_missing, cuda_missing
    choice = environ.get(environ.BACKEND) or "auto"
    if choice not in CHOICES:
        raise ValueError(f"fastseed: FASTSEED_BACKEND must be one of {CHOICES}, got {choice!r}")
    if choice == "reference":
        missing = generators_missing = cuda_missing = "FASTSEED_BACKEND=reference"
        return
    try:
        kernels = _load_kernels()
    except (ImportError, OSError) as error:
        if choice == "native":
            problem = "FASTSEED_BACKEND=native, but the native code cannot be used"
            raise ImportError(f"fastseed: {problem}: {error}") from error
        missing = generators_missing = cuda_missing = _unused("_kernels", error)
        return
    try:
        generators = _load_generators()
    except (ImportError, OSError) as error:
        generators_missing = _unused("_generators", error)
    if torch.version.cuda is None:
        cuda_missing = "this torch is built without CUDA"
        return
    try:
        _load_cuda()
        has_cuda = True
    except (ImportError, OSError) as error:
        cuda_missing = _unused("_cuda", error)


_choose()
