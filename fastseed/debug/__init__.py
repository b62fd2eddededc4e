"""Find out why two runs differ, what seeds this process, and what a seed reaches."""

from .bisection import bisect
from .checkup import check
from .reach import seed_reach
from .tree_digest import compare, digest
from .watch import Watch

__all__ = ["Watch", "bisect", "check", "compare", "digest", "seed_reach"]
