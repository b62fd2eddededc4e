"""cuRAND's host API, through ctypes: its generators fill memory on torch's stream."""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import glob
import os
import site
from collections.abc import Iterator
from typing import Any

import torch

from ... import laws
from ...case import Unavailable
from ...laws import NORMAL, UNIFORM, Law
from .. import targets
from ..bench_device import BenchDevice
from ..timing import Call, Entry
from . import Group

SEED = 42
# Numbers of curandRngType and curandOrdering in curand.h.
GENERATORS = {"XORWOW": 101, "Philox4x32-10": 161}
ORDERINGS = {"default": 101, "dynamic": 104}
# Its uniform numbers are in (0, 1]; one minus them in float32 would be 1 where they are small.
ABOVE_ZERO = dataclasses.replace(UNIFORM, low=2.0**-33, high=1.0)


def _candidates() -> Iterator[str]:
    """Return candidate paths of the library: the loader's, pip's packages, the toolkit."""
    yield "libcurand.so.10"
    for folder in [*site.getsitepackages(), site.getusersitepackages()]:
        yield from sorted(glob.glob(f"{folder}/nvidia/*/lib/libcurand.so.10"))
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    yield from (f"{home}/lib64/libcurand.so", f"{home}/targets/x86_64-linux/lib/libcurand.so")


def library() -> Any:
    """The library, or Unavailable."""
    for path in _candidates():
        try:
            return ctypes.CDLL(path)
        except OSError:
            continue
    raise Unavailable("libcurand is not here")


class Failed(Exception):
    """A call of the library returned an error."""


class Generator:
    """One of the library's generators, on the current stream."""

    def __init__(self, curand: Any, kind: int, ordering: int, stream: int) -> None:
        self._curand, self._handle = curand, ctypes.c_void_p()
        self._do("curandCreateGenerator", ctypes.byref(self._handle), kind)
        self._do("curandSetGeneratorOrdering", self._handle, ordering)
        self._do("curandSetStream", self._handle, ctypes.c_void_p(stream))
        self._do("curandSetPseudoRandomGeneratorSeed", self._handle, ctypes.c_ulonglong(SEED))

    def _do(self, function: str, *arguments: Any) -> None:
        code = getattr(self._curand, function)(*arguments)
        if code != 0:
            raise Failed(f"{function} failed with {code}")

    def uniform(self, out: torch.Tensor) -> None:
        """Numbers in (0, 1]."""
        address = ctypes.c_void_p(out.data_ptr())
        self._do("curandGenerateUniform", self._handle, address, ctypes.c_size_t(out.numel()))

    def normal(self, out: torch.Tensor) -> None:
        """Standard normals."""
        address, n = ctypes.c_void_p(out.data_ptr()), ctypes.c_size_t(out.numel())
        mean, std = ctypes.c_float(0), ctypes.c_float(1)
        self._do("curandGenerateNormal", self._handle, address, n, mean, std)


def _check(generator: Generator, law: Law, draw: str, outs: list[torch.Tensor]) -> None:
    for out in outs:
        laws.poison(out)
        getattr(generator, draw)(out)
        theirs = ABOVE_ZERO if law is UNIFORM else law
        laws.expect_baseline(theirs, out, tuple(out.shape), targets.CURAND)


def _stream(bench: BenchDevice, case: str, law: Law, draw: str) -> list[Entry]:
    """Every generator in every ordering that it has: the fastest is the baseline."""
    if bench.device != "cuda":
        raise Unavailable("cuRAND needs a GPU")
    n, curand = bench.size(10**8), library()
    outs = [torch.empty(n, device=bench.device) for _ in range(bench.buffers(4 * n))]
    stream = torch.cuda.current_stream().cuda_stream
    entries = []
    for name, kind in GENERATORS.items():
        for how, ordering in ORDERINGS.items():
            try:
                generator = Generator(curand, kind, ordering, stream)
            except Failed:  # an ordering that this version does not have
                continue
            calls: list[Call] = [functools.partial(getattr(generator, draw), out) for out in outs]
            check = functools.partial(_check, generator, law, draw, outs)
            form = f"{name}, {how} ordering"
            entries.append(Entry(case, targets.CURAND, form, calls, check, bench.clock, 4 * n))
    if not entries:
        raise Unavailable("none of cuRAND's generators can be made")
    return entries


def curand_groups(bench: BenchDevice) -> list[Group]:
    """Uniform and normal numbers."""
    return [
        lambda: _stream(bench, "uniform_/cuda/1e8", UNIFORM, "uniform"),
        lambda: _stream(bench, "normal_/cuda/1e8", NORMAL, "normal"),
    ]
