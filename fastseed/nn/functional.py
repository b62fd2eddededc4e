"""Dropout as a function of a key, and attention with it."""

from .dropout.functional import dropout, scaled_dot_product_attention

__all__ = ["dropout", "scaled_dot_product_attention"]
