"""The device that a contender runs on: the GPU, or the CPU with small sizes for a rehearsal."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .. import machine
from ..case import Unavailable, expect
from . import targets
from .timing import Call, Clock, Entry, EventClock, WallClock

SMALLER = 1000  # times, in a rehearsal
CACHES = 4  # times the L2 that rotating buffers fill
PATTERNS = (0, 0x5BD1E995)  # what memset writes: all zero, and something else


@dataclass(frozen=True)
class BenchDevice:
    """A device and how to time on it."""

    device: str
    rehearsal: bool
    clock: Clock
    l2: int

    def size(self, n: int) -> int:
        """Return the size to use for a case of size n."""
        return max(64, n // SMALLER) if self.rehearsal else n

    def buffers(self, size: int) -> int:
        """How many outputs of so many bytes to rotate."""
        return max(2, -(-CACHES * self.l2 // max(size, 1))) if not self.rehearsal else 2

    def graph(self, calls: Sequence[Call]) -> Call:
        """One CUDA graph of all calls, as a call; in a rehearsal the calls themselves."""
        if self.device == "cpu":
            return lambda: [call() for call in calls]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for call in calls:
                call()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for call in calls:
                call()
        return graph.replay

    def memset(self) -> Callable[[torch.Tensor, int], object]:
        """Fill the memory of a tensor with a 32-bit pattern, on the current stream."""
        return _memset_cpu() if self.device == "cpu" else _memset_cuda()


def on_gpu() -> BenchDevice:
    """The current CUDA device; Unavailable without one."""
    if not torch.cuda.is_available():
        raise Unavailable("there is no CUDA device")
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    return BenchDevice("cuda", False, EventClock(torch), int(properties.L2_cache_size))


def rehearsal() -> BenchDevice:
    """Small sizes on the CPU: every answer is checked, no time means anything."""
    return BenchDevice("cpu", True, WallClock(lambda: None), 1 << 20)


def _memset_cpu() -> Callable[[torch.Tensor, int], object]:
    function = machine.memset()
    return lambda out, pattern: function(out.data_ptr(), pattern & 0xFF, out.nbytes)


def _memset_cuda() -> Callable[[torch.Tensor, int], object]:
    """The driver's own, which the runtime's calls: torch's ``zero_`` is a kernel of stores."""
    function = ctypes.CDLL("libcuda.so.1").cuMemsetD32Async
    function.argtypes = (ctypes.c_uint64, ctypes.c_uint, ctypes.c_size_t, ctypes.c_void_p)

    def fill(out: torch.Tensor, pattern: int) -> None:
        stream = torch.cuda.current_stream().cuda_stream
        code = function(out.data_ptr(), pattern, out.nbytes // 4, stream)
        if code != 0:
            raise RuntimeError(f"cuMemsetD32Async failed with {code}")

    return fill


def ceilings(
    bench: BenchDevice, case: str, size: int, graph: bool = False, stores: bool = True
) -> list[Entry]:
    """Memset, and stores of a constant by a kernel, to ``size`` bytes."""
    n, count = -(-size // 16) * 2, bench.buffers(size)
    outs = [torch.empty(n, dtype=torch.int64, device=bench.device) for _ in range(count)]
    fill = bench.memset()
    entries = []
    for pattern in PATTERNS:
        calls: list[Call] = [_bound(fill, out, pattern) for out in outs]
        entries.append(
            _ceiling(bench, case, targets.MEMSET, f"of {pattern:#x}", calls, outs, graph)
        )
    if stores:
        calls = [_bound(torch.Tensor.fill_, out, -1) for out in outs]
        entries.append(_ceiling(bench, case, targets.STORES, "Tensor.fill_", calls, outs, graph))
    return entries


def _bound(function: Callable[..., object], *arguments: Any) -> Call:
    return lambda: function(*arguments)


def _ceiling(
    bench: BenchDevice, case: str, contender: str, form: str,
    calls: list[Call], outs: list[torch.Tensor], graph: bool,
) -> Entry:  # fmt: skip
    def check() -> None:
        for call, out in zip(calls, outs, strict=True):
            out.copy_(torch.arange(out.numel(), device=out.device))
            call()
            expect(bool((out == out[0]).all()), f"{contender} {form}: not constant")

    timed = [bench.graph(calls)] if graph else calls
    unit = len(calls) if graph else 1
    return Entry(case, contender, form, timed, check, bench.clock, outs[0].nbytes, unit)
