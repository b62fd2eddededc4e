"""Random123, the reference implementation of Philox, compiled on the fly."""

from __future__ import annotations

import ctypes
import functools
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from ..case import Side, Unavailable
from . import compiled

LABEL = "Random123"
SOURCE = Path(__file__).with_name("random123.cpp")
HEADER = Path("/usr/include/Random123/philox.h")


def compile_library(folder: Path) -> Path:
    """Compile random123.cpp into ``folder``; Unavailable where that is not possible."""
    try:
        return compiled.compile_library(SOURCE, folder)
    except Unavailable as error:
        if isinstance(error.__cause__, subprocess.CalledProcessError) and not HEADER.exists():
            raise Unavailable("Random123 is not installed (Debian: librandom123-dev)") from error
        raise


@functools.lru_cache(maxsize=1)
def fill_seeds() -> Any:
    """``fill_seeds(key, tweak, rank_word, worker, start, n, address)``."""
    with tempfile.TemporaryDirectory() as folder:  # a loaded library needs no file
        library = ctypes.CDLL(str(compile_library(Path(folder))))
    function = library.fill_seeds
    function.restype = None
    function.argtypes = (
        ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint32,
        ctypes.c_uint64, ctypes.c_int64, ctypes.c_void_p,
    )  # fmt: skip
    return function


def side(key: int, tweak: int, rank_word: int, worker: int, n: int, address: int) -> Side:
    """n seeds from index 0 on, into the memory at ``address``."""
    names = {
        "fill_seeds": fill_seeds(), "key": key, "tweak": tweak,
        "rank_word": rank_word, "worker": worker, "n": n, "address": address,
    }  # fmt: skip
    return Side(LABEL, "fill_seeds(key, tweak, rank_word, worker, 0, n, address)", names)
