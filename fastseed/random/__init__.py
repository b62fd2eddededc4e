"""Random numbers as functions of keys: no generator, no state but a position.

``uniform``, ``normal``, ``trunc_normal``, ``randint``, ``bernoulli``, ``exponential`` and ``bits``
return new tensors; the forms with an underscore fill existing ones. A ``StreamBank`` holds many
streams on one device; ``keyed`` is a block in which torch's own functions draw from keys;
``Shard`` says which part of a larger tensor a tensor is; ``torch_key`` makes a key for torch's own
stateless functions.
"""

from .bank import StreamBank
from .functional import (
    bernoulli,
    bits,
    exponential,
    normal,
    randint,
    torch_key,
    trunc_normal,
    uniform,
)
from .inplace import bernoulli_, bits_, exponential_, normal_, randint_, trunc_normal_, uniform_
from .keyed import keyed
from .layout import Shard

__all__ = [
    "Shard",
    "StreamBank",
    "bernoulli",
    "bernoulli_",
    "bits",
    "bits_",
    "exponential",
    "exponential_",
    "keyed",
    "normal",
    "normal_",
    "randint",
    "randint_",
    "torch_key",
    "trunc_normal",
    "trunc_normal_",
    "uniform",
    "uniform_",
]
