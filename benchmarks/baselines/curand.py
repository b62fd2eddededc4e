"""cuRAND's host API through ctypes, where it is there."""

from __future__ import annotations

import ctypes
import glob
import os
import site
from collections.abc import Iterator
from typing import Any

import torch

from ..case import Side, Unavailable

KINDS = {"cuRAND XORWOW": 101, "cuRAND Philox": 161}  # curandRngType
DYNAMIC = 104  # curandOrdering: the fastest


def _library() -> Any:
    """Return the library: the loader's, that of pip's packages, or the toolkit's."""

    def places() -> Iterator[str]:
        yield "libcurand.so.10"
        for folder in [*site.getsitepackages(), site.getusersitepackages()]:
            yield from sorted(glob.glob(f"{folder}/nvidia/*/lib/libcurand.so.10"))
        yield f"{os.environ.get('CUDA_HOME', '/usr/local/cuda')}/lib64/libcurand.so"

    for path in places():
        try:
            return ctypes.CDLL(path)
        except OSError:
            continue
    raise Unavailable("libcurand is not here")


def side(label: str, law: str, out: torch.Tensor) -> Side:
    """A generator of one of :data:`KINDS` fills ``out``: uniform or normal numbers."""
    if out.device.type != "cuda":
        raise Unavailable("cuRAND needs a GPU")
    library, handle = _library(), ctypes.c_void_p()

    def do(function: str, *arguments: Any) -> None:
        if (code := getattr(library, function)(*arguments)) != 0:
            raise RuntimeError(f"{function} failed with {code}")

    do("curandCreateGenerator", ctypes.byref(handle), KINDS[label])
    do("curandSetGeneratorOrdering", handle, DYNAMIC)
    do("curandSetStream", handle, ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))
    do("curandSetPseudoRandomGeneratorSeed", handle, ctypes.c_ulonglong(42))
    more = (ctypes.c_float(0), ctypes.c_float(1)) if law == "normal" else ()
    given = (handle, ctypes.c_void_p(out.data_ptr()), ctypes.c_size_t(out.numel()), *more)
    names = {"do": do, "function": f"curandGenerate{law.capitalize()}", "given": given}
    return Side(label, "do(function, *given)", names, is_kernel=True)
