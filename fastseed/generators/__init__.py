"""Adapters that give a random library the state that belongs to a key; pools of generators."""

from . import numpy_rng, python_rng, torch_rng

__all__ = ["numpy_rng", "python_rng", "torch_rng"]  # they fill the table of adapters
