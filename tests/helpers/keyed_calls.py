"""One call of each function that a block of ``random.keyed`` maps."""

import torch
from torch import nn
from torch.nn import functional

ONES = torch.ones(2, 3)
HEADS = torch.ones(1, 2, 3, 4)
CALLS = {
    "rand": lambda: torch.rand(2, 3),
    "rand_like": lambda: torch.rand_like(ONES),
    "randn": lambda: torch.randn((2, 3), dtype=torch.float64),
    "randn_like": lambda: torch.randn_like(ONES, dtype=torch.bfloat16),
    "complex": lambda: torch.randn(3, dtype=torch.complex64),
    "randint": lambda: torch.randint(0, 1000, (5,)),
    "randint of 16 bits": lambda: torch.randint(high=9, size=(5,), dtype=torch.int16),
    "randint_like": lambda: torch.randint_like(ONES, 5),
    "randperm": lambda: torch.randperm(7, dtype=torch.int32),
    "normal": lambda: torch.normal(0.0, 2.0, (3,)),
    "normal of tensors": lambda: torch.normal(torch.arange(3.0), torch.ones(2, 1)),
    "bernoulli": lambda: torch.bernoulli(torch.full((6,), 0.5)),
    "bernoulli method": lambda: ONES.bernoulli(0.5),
    "multinomial": lambda: torch.multinomial(torch.ones(2, 8), 3),
    "multinomial again": lambda: torch.ones(8).multinomial(20, replacement=True),
    "uniform_": lambda: torch.empty(4).uniform_(1, to=2),
    "normal_": lambda: torch.empty(4).normal_(mean=5),
    "exponential_": lambda: torch.empty(4).exponential_(lambd=2.0),
    "log_normal_": lambda: torch.empty(4).log_normal_(0, 0.5),
    "cauchy_": lambda: torch.empty(4).cauchy_(1, 2),
    "geometric_": lambda: torch.empty(4).geometric_(0.3),
    "bernoulli_": lambda: torch.empty(6).bernoulli_(torch.full((6,), 0.5)),
    "random_": lambda: torch.empty(4, dtype=torch.int64).random_(3, to=9),
    "random_ of floats": lambda: torch.empty(4).random_(),
    "dropout": lambda: functional.dropout(ONES, 0.3),
    "dropout1d": lambda: functional.dropout1d(torch.ones(4, 3)),
    "dropout2d": lambda: functional.dropout2d(torch.ones(2, 4, 3, 3)),
    "dropout3d": lambda: functional.dropout3d(torch.ones(4, 3, 3, 3)),
    "feature_dropout": lambda: torch.feature_dropout(ONES, 0.5, True),
    "dropout_": lambda: torch.dropout_(ONES.clone(), 0.5, True),
    "alpha_dropout": lambda: nn.AlphaDropout(0.5)(ONES),
    "feature_alpha_dropout": lambda: nn.FeatureAlphaDropout(0.5)(torch.ones(2, 4, 3)),
    "attention": lambda: functional.scaled_dot_product_attention(
        HEADS, HEADS, HEADS, dropout_p=0.5
    ),
    "gumbel_softmax": lambda: functional.gumbel_softmax(torch.ones(8, 8), hard=True),
    "init.uniform_": lambda: nn.init.uniform_(torch.empty(3)),
    "init.normal_": lambda: nn.init.normal_(torch.empty(3), std=0.1),
    "init.kaiming_uniform_": lambda: nn.init.kaiming_uniform_(torch.empty(3, 2), a=5**0.5),
    "init.trunc_normal_": lambda: nn.init.trunc_normal_(torch.empty(3)),
    "Linear": lambda: nn.Linear(3, 2).weight.detach(),
    "MultiheadAttention": lambda: nn.MultiheadAttention(4, 2, dropout=0.5)(*[HEADS[0]] * 3)[0],
}
# What Dynamo of torch 2.13 cannot trace, inside of a block or not: a branch on drawn numbers, and
# new parameters.
UNTRACEABLE = ("init.trunc_normal_", "Linear", "MultiheadAttention")
