"""A small transformer in plain torch, which knows of no layout, and text to train it on."""

from __future__ import annotations

import pydoc_data.topics

import torch
from torch import nn
from torch.nn import functional as F

CHARACTERS, LENGTH, WIDTH, HEADS, BLOCKS = 128, 32, 64, 4, 2


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, p: float) -> None:
        super().__init__()
        self.size = width // heads
        self.q, self.k, self.v, self.out = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.dropout = nn.Dropout(p)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = (*x.shape[:2], -1, self.size)  # all of them, or those of this rank
        q, k, v = (f(x).view(heads).transpose(1, 2) for f in (self.q, self.k, self.v))
        past = torch.ones(x.size(1), x.size(1), dtype=torch.bool, device=x.device).tril()
        scores = (q @ k.transpose(-2, -1) * self.size**-0.5).masked_fill(~past, -torch.inf)
        return self.out((self.dropout(scores.softmax(-1)) @ v).transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    def __init__(self, width: int, p: float) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(p)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(self.dropout(F.gelu(self.up(x))))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, p: float) -> None:
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(width), Attention(width, heads, p)
        self.norm2, self.feed_forward = nn.LayerNorm(width), FeedForward(width, p)
        self.dropout1, self.dropout2 = nn.Dropout(p), nn.Dropout(p)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.dropout1(self.attention(self.norm1(x)))
        return x + self.dropout2(self.feed_forward(self.norm2(x)))


class Transformer(nn.Module):
    def __init__(self, p: float = 0.1) -> None:
        super().__init__()
        self.characters, self.positions = (
            nn.Embedding(CHARACTERS, WIDTH),
            nn.Embedding(LENGTH, WIDTH),
        )
        self.dropout = nn.Dropout(p)
        self.blocks = nn.ModuleList(Block(WIDTH, HEADS, p) for _ in range(BLOCKS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CHARACTERS)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        place = torch.arange(text.size(1), device=text.device)
        x = self.dropout(self.characters(text) + self.positions(place))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))

    def init_weights(self) -> None:
        for module in self.modules():
            if isinstance(module, nn.LayerNorm):
                module.reset_parameters()
            elif isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.trunc_normal_(module.weight, std=0.1)
                if getattr(module, "bias", None) is not None:
                    nn.init.zeros_(module.bias)


def samples() -> torch.utils.data.Dataset:
    """Return windows of the text, each with the characters that follow."""
    pages = "\n".join(text for _, text in sorted(pydoc_data.topics.topics.items()))
    text = torch.frombuffer(bytearray(pages, "ascii", "replace"), dtype=torch.uint8).long()
    windows = text.unfold(0, LENGTH + 1, LENGTH)
    return torch.utils.data.TensorDataset(windows[:, :-1], windows[:, 1:])
