"""Determinism: torch's switches, variables that libraries read once, four seeds of a section."""

from .config import apply_config

__all__ = ["apply_config"]
