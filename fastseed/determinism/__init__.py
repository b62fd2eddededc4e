"""Determinism: torch's switches, variables that libraries read once, four seeds of a configuration.

``fastseed.deterministic()`` is in ``switches``; ``launch`` prepares the start of a program for
``fastseed run``; ``hash_seed`` reads ``PYTHONHASHSEED``.
"""

from .config import apply_config

__all__ = ["apply_config"]
