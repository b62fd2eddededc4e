"""Adapters that give a random library the state that belongs to a key; pools of generators."""

from . import default

__all__ = ["default"]  # its imports fill the table of adapters
