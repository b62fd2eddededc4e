"""The operator of digests, ``torch.ops.fastseed.digest``, in native code alone.

``fastseed.debug`` calls ``fastseed._backend.reference.digest`` without it.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from .register import define, fake


def _fake(sums: Tensor, memory: Sequence[Tensor], plan: Tensor) -> None:
    """Do nothing; the plan is on the CPU."""
    fake(sums, *memory)


digest = define("digest", "(Tensor(a0!) sums, Tensor[] memory, Tensor plan) -> ()", on_fakes=_fake)
