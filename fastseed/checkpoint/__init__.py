"""The state of a job in files and in the formats of other libraries.

``save`` and ``load`` write and read a file (``fastseed.checkpoint.files``); ``to_tensors``,
``from_tensors`` and ``Stateful`` serve safetensors and torch.distributed.checkpoint
(``fastseed.checkpoint.tensors``).
"""

from .files import load, save
from .tensors import Stateful, from_tensors, to_tensors

__all__ = ["Stateful", "from_tensors", "load", "save", "to_tensors"]
