"""The tokens that survive the filters of sampling, by sorting."""

import torch


def survivors(
    logits: torch.Tensor,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
) -> torch.Tensor:
    """Return which tokens of each row survive, (B, V) bools."""
    probabilities, order = (logits.double() / temperature).softmax(1).sort(1, descending=True)
    alive = probabilities >= min_p * probabilities[:, :1]
    if top_k:
        alive[:, top_k:] = False
    kept = torch.where(alive, probabilities, 0.0)
    before = (kept.cumsum(1) - kept) / kept.sum(1, keepdim=True)
    alive &= before < top_p
    return torch.empty_like(alive).scatter_(1, order, alive)
