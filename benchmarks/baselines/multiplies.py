"""The CPU's multiplies alone: the limit of everything that computes Philox."""

from __future__ import annotations

import ctypes
import functools
import tempfile
from pathlib import Path
from typing import Any

from ..case import Side, Unavailable, expect
from . import compiled

SOURCE = Path(__file__).with_name("multiplies.cpp")
FACTOR, CHAINS = 0xD2511F53, 12
PER_BLOCK = 20  # ten rounds of two
LANES = {"avx512": 8, "avx2": 4}
"""How many products of 64 bits one instruction computes, by SIMD path."""


@functools.lru_cache(maxsize=1)
def multiply() -> Any:
    """``multiply(lanes, products)``."""
    with tempfile.TemporaryDirectory() as folder:  # a loaded library needs no file
        library = ctypes.CDLL(str(compiled.compile_library(SOURCE, Path(folder))))
    function = library.multiply
    function.restype, function.argtypes = ctypes.c_uint64, (ctypes.c_int, ctypes.c_int64)
    return function


def side(blocks: int, simd: str | None) -> Side:
    """The products of that many blocks, with the vectors of a SIMD path."""
    if simd not in LANES:
        raise Unavailable(f"the limit is measured for {' and '.join(LANES)} only")
    names = {"multiply": multiply(), "lanes": LANES[simd], "products": PER_BLOCK * blocks}
    return Side("multiplies", "multiply(lanes, products)", names)


def check(made: Side) -> None:
    """That three rounds of a side's vectors give what Python's integers give."""
    lanes = made.names["lanes"]
    values = list(range(1, CHAINS * lanes + 1))
    for _ in range(3):
        values = [(value & 0xFFFFFFFF) * FACTOR for value in values]
    expect(made.run(products=3 * CHAINS * lanes) == sum(values) % 2**64, "the products")
