"""NumPy's bit generators as a source of unsigned 64-bit integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..case import Side, expect

CHUNK = 1 << 15  # 256 KiB: stays in the second-level cache
TOP = 2**64 - 1


def fill_by_integers(generator: np.random.Generator, out: npt.NDArray[np.uint64]) -> None:
    """NumPy has no ``out=`` for integers: fill in pieces that stay in the cache."""
    for at in range(0, len(out), CHUNK):
        piece = out[at : at + CHUNK]
        piece[:] = generator.integers(0, TOP, size=len(piece), dtype=np.uint64, endpoint=True)


def fill_by_raw(bits: Any, out: npt.NDArray[np.uint64]) -> None:
    """The same with raw outputs."""
    for at in range(0, len(out), CHUNK):
        piece = out[at : at + CHUNK]
        piece[:] = bits.random_raw(len(piece))


def sides(kind: str, out: npt.NDArray[np.uint64]) -> tuple[Side, ...]:
    """Every way to get as many integers of the bit generator ``kind`` as ``out`` has."""
    bits = getattr(np.random, kind)(1)
    names = {
        "generator": np.random.Generator(bits), "bits": bits, "n": len(out), "top": TOP,
        "uint64": np.uint64, "out": out,
        "fill_by_integers": fill_by_integers, "fill_by_raw": fill_by_raw,
    }  # fmt: skip
    statements = {
        "integers": "generator.integers(0, top, size=n, dtype=uint64, endpoint=True)",
        "random_raw": "bits.random_raw(n)",
        "integers in pieces": "fill_by_integers(generator, out)",
        "random_raw in pieces": "fill_by_raw(bits, out)",
    }
    return tuple(Side(label, statement, names) for label, statement in statements.items())


def check(side: Side) -> None:
    """That a side of :func:`sides` really makes integers of 64 bits."""
    out = side.names["out"]
    out.fill(0)
    value = side.run()
    made = out if value is None else value
    expect(made.shape == out.shape and made.dtype == np.uint64, f"{side.label}: not {len(out)}")
    expect((made >> np.uint64(63)).any(), f"{side.label}: not 64 bits each")
    expect(made[-1] != 0, f"{side.label}: the last is not written")
