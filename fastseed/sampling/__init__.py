"""Tokens that do not depend on batches, slots or padding."""

from .tokens import accept_equal, sample

__all__ = ["accept_equal", "sample"]
