"""Keys for torch's own stateless functions, ``torch.func._random`` (on the CPU since 2.14)."""

from __future__ import annotations

import torch

from .._backend import private_torch, tensors
from .._utils import validation
from .functional import check_keys

_FUNCTION = "random.torch_key"


def torch_key(
    key: int | torch.Tensor, device: torch.device | str | int | None = None
) -> torch.Tensor:
    """Return a key for torch's experimental functions by key, ``torch.func._random``.

    They draw other numbers than ``fastseed.random``. A key of torch is a seed of 64 bits, here the
    low half of our key, and a position, here 0.

    Args:
        key: what ``fastseed.derive_key`` returns, or keys of ``derive_keys``, (..., 2)
            torch.uint64.
        device: where torch draws; of a tensor its own device, else the CPU, if it is None.

    Returns:
        Shape (2,), or that of ``key``, torch.uint64.

    Raises:
        TypeError, ValueError: an argument is invalid.
        RuntimeError: this torch has no ``torch.func._random``.

    Examples:
        >>> import fastseed, torch
        >>> fastseed.init(42)
        >>> key = fastseed.derive_key("noise", task=1)
        >>> if hasattr(torch.ops.aten, "_philox_normal_"):  # this torch has torch.func._random
        ...     words = fastseed.random.torch_key(key).tolist()
        ...     assert words == [key % 2**64, 0]
    """
    if not private_torch.has_random_by_key():
        raise RuntimeError(
            f"fastseed.{_FUNCTION}: needs a torch that draws by key (2.14 on the CPU), got "
            f"{torch.__version__}; fastseed.random.normal and its siblings do with every torch"
        )
    given = key.device if isinstance(key, torch.Tensor) else torch.device("cpu")
    where = given if device is None else tensors.check_device(_FUNCTION, device)
    if where.type == "cuda" and not torch.cuda.is_available():
        raise validation.value_error(_FUNCTION, "device", "one that is here", str(where))
    found = check_keys(_FUNCTION, "key", key, given).to(where, copy=True)
    found.view(torch.int64)[..., 1] = 0
    return found
