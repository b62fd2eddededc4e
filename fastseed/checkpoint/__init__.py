"""The state of a job in files and in the formats of other libraries."""

from .files import load, save
from .tensors import Stateful, from_tensors, to_tensors

__all__ = ["Stateful", "from_tensors", "load", "save", "to_tensors"]
