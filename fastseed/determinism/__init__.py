"""Determinism: torch's switches, variables that libraries read once, Clara's configuration.

``fastseed.deterministic()`` is in ``switches``; ``launch`` prepares the start of a program for
``fastseed run``; ``hash_seed`` reads ``PYTHONHASHSEED``; ``config`` applies Clara's four seeds.
"""

from .config import apply_config
from .report import Report, Row

__all__ = ["Report", "Row", "apply_config"]
