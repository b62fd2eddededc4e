"""The weights of a model by name, beside the model's own initialization."""

from __future__ import annotations

import functools

import torch
from torch import nn

import fastseed

from ..case import Case, Contest, Side, expect


class Gpt2(nn.Module):
    """Parameters of the shapes of GPT-2 (124M), initialized as it initializes them."""

    def __init__(self, layers: int = 12, width: int = 768, words: int = 50257) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.positions = nn.Embedding(1024, width)
        shapes = ((width, 3 * width), (width, width), (width, 4 * width), (4 * width, width))
        self.layers = nn.ModuleList(nn.Linear(*shape) for _ in range(layers) for shape in shapes)

    def init_weights(self) -> None:
        """Draw the weights."""
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)


def keyed(model: Gpt2) -> None:
    """Initialize by name."""
    with fastseed.nn.initialize(model):
        model.init_weights()


def gpt2(layers: int, words: int, _: str) -> Contest:
    """The model's own init_weights, in the context and outside of it."""
    fastseed.init(42, 1, 0)
    model = Gpt2(layers, words=words)
    weight = model.layers[1].weight

    def wanted() -> torch.Tensor:
        key = fastseed.derive_key("init/layers.1.weight", task=0, rank=fastseed.SHARED)
        return fastseed.random.normal(key, tuple(weight.shape), std=0.02)

    def check(side: Side) -> None:
        side.run()
        expect(torch.equal(weight, wanted()), "the weight that its name gives")

    def check_torch(side: Side) -> None:
        side.run()
        expect(not torch.equal(weight, wanted()), "other weights by torch")
        expect(abs(float(weight.std()) / 0.02 - 1) < 0.01, "weights of the same distribution")

    names = {"model": model, "keyed": keyed}
    theirs = Side("init_weights", "model.init_weights()", names)
    side = Side("nn.initialize", "keyed(model)", names)
    return Contest(side, check, {"init_weights": lambda: [theirs]}, check_torch)


def cases() -> list[Case]:
    """The row of this module."""
    build = functools.partial(gpt2, 12, 50257)
    return [Case("initialize", "gpt2-124m", {"init_weights": 1.5}, build)]
