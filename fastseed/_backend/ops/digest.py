"""The operator of digests, ``torch.ops.fastseed.digest``, in native code alone.

``fastseed.debug`` calls ``fastseed._backend.reference.digest`` without it.
"""

from __future__ import annotations

from .register import define

digest = define("digest(Tensor(a0!) sums, Tensor[] memory, Tensor plan) -> ()")
