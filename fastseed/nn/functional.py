"""Dropout as a function of a key."""

from ..random.dropout import dropout

__all__ = ["dropout"]
