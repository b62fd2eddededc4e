"""Find out why two runs differ: digests, recordings, and random numbers outside fastseed."""

from .bisection import bisect
from .checkup import doctor
from .rng_audit import audit
from .tree_digest import Digest, assert_ranks_agree, compare, debug_hash, digest
from .watch import Watch

__all__ = [
    "Digest",
    "Watch",
    "assert_ranks_agree",
    "audit",
    "bisect",
    "compare",
    "debug_hash",
    "digest",
    "doctor",
]
