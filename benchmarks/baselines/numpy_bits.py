"""NumPy's bit generators as a source of n unsigned 64-bit integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..case import Side, expect

CHUNK = 1 << 15  # 256 KiB: stays in the second-level cache
TOP = 2**64 - 1

INTEGERS = "generator.integers(0, top, size=n, dtype=uint64, endpoint=True)"
RAW = "bits.random_raw(n)"


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


def sides(kind: str, n: int, out: npt.NDArray[np.uint64] | None = None) -> tuple[Side, ...]:
    """Every way to get ``n`` integers of the bit generator ``kind``: fresh, or into ``out``."""
    bits = getattr(np.random, kind)(1)
    names = {
        "generator": np.random.Generator(bits), "bits": bits, "n": n, "top": TOP,
        "uint64": np.uint64, "out": out,
        "fill_by_integers": fill_by_integers, "fill_by_raw": fill_by_raw,
    }  # fmt: skip
    forms = [Side("integers", INTEGERS, names), Side("random_raw", RAW, names)]
    if out is not None:
        forms += [
            Side("integers in pieces", "fill_by_integers(generator, out)", names),
            Side("random_raw in pieces", "fill_by_raw(bits, out)", names),
        ]
    return tuple(forms)


def check(side: Side) -> None:
    """That a side of :func:`sides` really makes n integers of 64 bits."""
    n, out = side.names["n"], side.names["out"]
    if out is not None:
        out.fill(0)
    value = side.run()
    made = out if value is None else value
    expect(made.shape == (n,) and made.dtype == np.uint64, f"{side.label}: not {n} of uint64")
    expect(n < 100 or (made >> np.uint64(63)).any(), f"{side.label}: not 64 bits each")
    expect(n < 100 or made[-1] != 0, f"{side.label}: the last is not written")
