"""``python -m benchmarks.gpu.graphs --out FILE.jsonl``: bits of first launches in CUDA graphs.

Each launch is the first of its kernel in this process, and stands in a graph: a line of JSON says
whether it has the bits of the CPU.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch

from .. import machine, runner, table
from .case import Kernel, expect_equal, moved
from .cases import kernels


def compare(kernel: Kernel) -> None:
    """Expect the bits of the CPU of a launch in a CUDA graph."""
    here = kernel.inputs(kernel.small)
    there = tuple(moved(v, "cuda") for v in here)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made = kernel.call(*there)
    graph.replay()
    torch.cuda.synchronize()
    expected = kernel.call(*here)
    expect_equal((there, made), (here, expected))


def main() -> int:
    """0 where all bits are equal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.jsonl")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("there is no CUDA device", file=sys.stderr)
        return 2
    rows = []
    for kernel in (kernel for kernel in kernels() if kernel.captured):
        row: runner.Row = {"case": f"in a graph: {kernel.name}", "beside": "", "status": "ok"}
        try:
            compare(kernel)
        except Exception as error:  # no kernel keeps another from running
            row |= runner.outcome(error)
        machine.append_lines(options.out, row)
        rows.append(row)
    print(table.text(rows, headline_only=True))
    return int(any(map(table.is_bad, rows)))


if __name__ == "__main__":
    sys.exit(main())
