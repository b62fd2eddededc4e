"""What one training step draws in blocks of ``random.keyed``, and one SHA-256 of it.

Each part of the step is a function of a namespace that makes tensors and of their size, so that
tensors may be plain ones or DTensors, and eager or compiled code may draw.
"""

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn import functional

from fastseed.random import keyed

SIZES = (0, 1, 255, 4097, 65537, 2**20 + 1, 2**24)
SMALL = SIZES[:4]
REALS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


class Plain:
    """Makes the tensors of one process."""

    rand, randn = torch.rand, torch.randn

    @staticmethod
    def whole(tensor: torch.Tensor) -> torch.Tensor:
        """Return what all ranks hold together."""
        return tensor

    @staticmethod
    def ones(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Return an input."""
        return torch.ones(shape, dtype=dtype)


def new(make: Any, n: int) -> list[torch.Tensor]:
    """New tensors."""
    return [
        *(make.rand(n, dtype=dtype) for dtype in REALS),
        *(make.randn(n, dtype=dtype) for dtype in REALS),
        torch.randint(0, 1000, (n,)),
        torch.randint(-5, 2**31, (n,)).to(torch.float64),
        torch.randint(-(2**31), 2**31 - 1, (n,), dtype=torch.int32),
        torch.normal(1.0, 0.02, (n,)),
        torch.randn(n, dtype=torch.complex64),
    ]


def like(make: Any, n: int) -> list[torch.Tensor]:
    """Tensors like others."""
    x = make.ones(n)
    return [
        torch.rand_like(x),
        torch.randn_like(x, dtype=torch.bfloat16),
        torch.randint_like(x, -9, 9),
        torch.normal(x, 2 * x),
        torch.bernoulli(x / 3),
        x.bernoulli(0.25),
    ]


def in_place(make: Any, n: int) -> list[torch.Tensor]:
    """Fills of tensors, every other element of which is another's."""

    def x(dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return make.ones(n, 2, dtype=dtype)[:, 1]

    return [
        x().uniform_(-1, 2),
        x(torch.float16).normal_(1, 2),
        x(torch.float64).normal_(),
        x().exponential_(2.0),
        x().log_normal_(0.5, 0.25),
        x().cauchy_(1, 2),
        x().geometric_(0.3),
        x().bernoulli_(0.3),
        x(torch.int64).random_(-3, 2**40),
        x(torch.int32).random_(),
    ]


def layers(make: Any, n: int) -> list[torch.Tensor]:
    """Layers of dropout, also of channels, in ``channels_last``."""
    rows = make.ones(2, 3, n // 6 + 1, 1)
    channels_last = rows.contiguous(memory_format=torch.channels_last)
    return [
        *(functional.dropout(make.ones(n, dtype=dtype), 0.1) for dtype in REALS),
        functional.alpha_dropout(make.ones(n), 0.5, True),
        functional.dropout(channels_last, 0.5),
        functional.dropout2d(channels_last, 0.5),
        functional.dropout1d(make.ones(n // 4 + 1, 4, 1), 0.5),
        torch.feature_dropout(make.ones(n // 4 + 1, 4), 0.5, True),
    ]


def orders(_: Any, n: int) -> list[torch.Tensor]:
    """What draws integers by weights or in an order; it takes no DTensors."""
    weights = torch.arange(1.0, max(n, 1) + 1)
    return [
        torch.randperm(n),
        torch.multinomial(torch.arange(100.0), max(n, 1), replacement=True),
        torch.multinomial(weights, min(len(weights), 100)),
    ]


PARTS: tuple[Callable[[Any, int], list[torch.Tensor]], ...] = (new, like, in_place, layers, orders)


def inside(part: Callable[[Any, int], list[torch.Tensor]], make: Any, n: int) -> list[torch.Tensor]:
    """Draw a part in a block that is the same on all ranks."""
    with keyed(part.__name__, n, distinct_over=()):
        return part(make, n)


def digest(
    sizes: Sequence[int] = SMALL, draw: Callable[..., Any] = inside, make: Any = Plain
) -> tuple[str, int, int]:
    """Return the SHA-256 of all draws in order, how many there are, and of how many values."""
    found, tensors, values = hashlib.sha256(), 0, 0
    for n in sizes:
        for part in PARTS:
            for drawn in draw(part, make, n):
                whole = make.whole(drawn).detach()
                whole = torch.empty(whole.shape, dtype=whole.dtype, device="cpu").copy_(whole)
                found.update(f"{part.__name__} {n} {whole.dtype} {tuple(whole.shape)}\n".encode())
                found.update(whole.reshape(-1).view(torch.uint8).numpy())
                tensors, values = tensors + 1, values + whole.numel()
    return found.hexdigest(), tensors, values
