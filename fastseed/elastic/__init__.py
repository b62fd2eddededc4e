"""The same weights on any number of ranks, to the bit."""

from .clipping import clip_grad_norm_, get_total_norm
from .means import mean
from .slot import Slot
from .slots import SlotGradients

__all__ = ["Slot", "SlotGradients", "clip_grad_norm_", "get_total_norm", "mean"]
