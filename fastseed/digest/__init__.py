"""Digests of 128 bits of tensors and of trees of them, which ``fastseed.debug`` exports."""
