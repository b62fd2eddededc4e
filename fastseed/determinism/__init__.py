"""Determinism: torch's switches, variables that libraries read once, the configuration file.

``fastseed.deterministic()`` is in ``switches``; ``launch`` prepares the start of a program for
``fastseed run``; ``hash_seed`` reads ``PYTHONHASHSEED``; ``config`` is the configuration file.
"""

from .config import Config, apply_config, load_config
from .report import Report, Row

__all__ = ["Config", "Report", "Row", "apply_config", "load_config"]
