"""Find out why two runs differ: digests, recordings, and what seeds this process."""

from .bisection import bisect
from .checkup import check
from .tree_digest import compare, digest
from .watch import Watch

__all__ = ["Watch", "bisect", "check", "compare", "digest"]
