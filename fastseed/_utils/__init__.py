"""Argument checks, errors, atomic files, strict JSON, environment variables.

The lowest layer: nothing here imports another part of fastseed.
"""
