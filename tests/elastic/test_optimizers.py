"""Optimizers on shards of parameters, and on whole ones."""

import pytest
import torch

WITH_MOMENTUM = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}
CUTS = ([203], [102, 101], [68, 68, 67], [51, 51, 51, 50], [13] * 15 + [8])


def train(kind: str, sizes: list[int], dtype: torch.dtype, **options: object) -> torch.Tensor:
    """Return the values after six steps, with the tensor cut into pieces of ``sizes``."""
    generator = torch.Generator().manual_seed(1)
    value = torch.randn(sum(sizes), generator=generator).to(dtype)
    pieces = [piece.clone().requires_grad_() for piece in value.split(sizes)]
    optimizer = getattr(torch.optim, kind)(pieces, **options)
    for _ in range(6):
        scale = 10 ** torch.randn(sum(sizes), generator=generator)
        gradient = (torch.randn(sum(sizes), generator=generator) * scale).to(dtype)
        for piece, part in zip(pieces, gradient.split(sizes), strict=True):
            piece.grad = part.clone()
        optimizer.step()
    return torch.cat([piece.detach() for piece in pieces])


@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize(
    ("kind", "options"), [("SGD", WITH_MOMENTUM), ("Adam", {}), ("AdamW", {"amsgrad": True})]
)
def test_elementwise_optimizers_do_not_depend_on_shards(kind, options, foreach):
    whole, *cut = (train(kind, sizes, torch.float32, foreach=foreach, **options) for sizes in CUTS)
    assert all(torch.equal(whole, value) for value in cut)


@pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"), reason="no vector loops"
)
def test_fused_adamw_on_the_cpu_depends_on_shards():
    """The limit that the guide states: the last elements of a shard are rounded differently."""
    whole, cut = (
        train("AdamW", sizes, torch.float32, fused=True) for sizes in ([7 * 300], [7] * 300)
    )
    assert 0 < (whole != cut).sum() < 200
