"""Initializers as functions of a key: the same values however a tensor is laid out over devices.

``fastseed.nn.initialize`` calls them for the parameters of a model. A tensor is a whole one or a
``DTensor``. ``uniform_``, ``normal_``, ``trunc_normal_``, ``exponential_`` and ``bernoulli_`` are
in ``fastseed.random``. An invalid argument is a ``TypeError`` or ``ValueError``, and nothing
is written.
"""

from .functions import (
    kaiming_normal_,
    kaiming_uniform_,
    orthogonal_,
    randperm_,
    sparse_,
    xavier_normal_,
    xavier_uniform_,
)

__all__ = [
    "kaiming_normal_",
    "kaiming_uniform_",
    "orthogonal_",
    "randperm_",
    "sparse_",
    "xavier_normal_",
    "xavier_uniform_",
]
