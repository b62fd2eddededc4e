"""Find out why two runs differ, what seeds this process, and what a seed reaches."""

from ..digest.trees import compare, digest
from .bisection import bisect
from .checkup import check
from .reach import seed_reach
from .watch import Watch

__all__ = ["Watch", "bisect", "check", "compare", "digest", "seed_reach"]
