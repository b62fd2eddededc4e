"""The environment variables of fastseed: every name and its meaning.

``fastseed run`` and ``fastseed verify`` set the first three for the programs that they start.
"""

from __future__ import annotations

import os

PREFIX = "FASTSEED_"
MASTER_SEED = "FASTSEED_MASTER_SEED"
DETERMINISTIC = "FASTSEED_DETERMINISTIC"
RUN_DIR = "FASTSEED_RUN_DIR"
BACKEND = "FASTSEED_BACKEND"
SIMD = "FASTSEED_SIMD"
NO_EXT = "FASTSEED_NO_EXT"
NO_CUDA = "FASTSEED_NO_CUDA"
PORTABLE = "FASTSEED_PORTABLE"

MEANINGS: dict[str, str] = {
    MASTER_SEED: "the master seed of `fastseed.init()` when it is called without one",
    DETERMINISTIC: "`1` or `warn`: `fastseed.init()` also calls `fastseed.deterministic()`, "
    "with `warn_only=True` for `warn`",
    RUN_DIR: "the folder of this run, in which `fastseed.debug.Watch` records by default",
    BACKEND: "`native`: an error if the native code cannot be used; `reference`: NumPy only; "
    "`auto` (default)",
    SIMD: "the CPU instruction set to use, such as `avx2`; by default the fastest",
    NO_EXT: "at build time, `1`: build no native code",
    NO_CUDA: "at build time, `1`: build without the CUDA part",
    PORTABLE: "at build time, `1`: build `_kernels` alone, for every torch and Python",
}
"""The meaning of each variable; `docs/determinism.md` has the same table."""


def get(name: str) -> str | None:
    """Return the value of a variable; None if it is not set or empty."""
    return os.environ.get(name) or None
