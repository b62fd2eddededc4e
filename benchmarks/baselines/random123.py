"""Random123, the reference implementation of Philox, compiled on the fly."""

from __future__ import annotations

import ctypes
import functools
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from ..case import Side, Unavailable

SOURCE = Path(__file__).with_name("random123.cpp")
HEADER = Path("/usr/include/Random123/philox.h")
FLAGS = ("-O3", "-march=native", "-std=c++17", "-shared", "-fPIC")


def compile_library(folder: Path) -> Path:
    """Compile random123.cpp into ``folder``; Unavailable where that is not possible."""
    library = folder / "random123.so"
    command = [*os.environ.get("CXX", "g++").split(), *FLAGS, str(SOURCE), "-o", str(library)]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except OSError as error:
        raise Unavailable("there is no C++ compiler") from error
    except subprocess.CalledProcessError as error:
        if not HEADER.exists():
            raise Unavailable("Random123 is not installed (Debian: librandom123-dev)") from error
        raise Unavailable(f"it does not compile: {error.stderr[:200]}") from error
    return library


@functools.lru_cache(maxsize=1)
def fill_seeds() -> Any:
    """``fill_seeds(key, tweak, rank_word, worker, start, n, address)``."""
    with tempfile.TemporaryDirectory() as folder:  # a loaded library needs no file
        function = ctypes.CDLL(str(compile_library(Path(folder)))).fill_seeds
    function.restype = None
    function.argtypes = (
        ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint32,
        ctypes.c_uint64, ctypes.c_int64, ctypes.c_void_p,
    )  # fmt: skip
    return function


def side(key: int, tweak: int, rank_word: int, out: Any) -> Side:
    """Seeds from index 0 on, into all of ``out``."""
    names = {
        "fill_seeds": fill_seeds(), "key": key, "tweak": tweak, "rank_word": rank_word,
        "n": len(out), "address": out.data_ptr(), "out": out,
    }  # fmt: skip
    return Side("Random123", "fill_seeds(key, tweak, rank_word, 0, 0, n, address)", names)
