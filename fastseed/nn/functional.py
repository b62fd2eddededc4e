"""Dropout as a function of a key."""

from .dropout.functional import dropout

__all__ = ["dropout"]
