"""The values of ``fuzz_calls.py``: hostile ones, and good ones by the name of a parameter."""

import functools
import random as python_random
from pathlib import Path

import numpy as np
import torch

import fastseed

U64, I64, F32 = torch.uint64, torch.int64, torch.float32
DTYPES = (
    *(U64, I64, torch.uint32, torch.int32, torch.uint8, torch.bool),
    *(torch.float16, torch.bfloat16, F32, torch.float64, torch.complex64),
)
SHAPES = ((), (0,), (1,), (2,), (3,), (3, 2), (0, 2), (2, 3), (3, 4), (1, 2), (2, 2, 2), (17,))
BASE = torch.zeros(64, dtype=U64)  # for tensors that share memory


def freed(t):
    t.untyped_storage().resize_(0)
    return t


def half_freed(t):
    t.untyped_storage().resize_(t.untyped_storage().nbytes() // 2)
    return t


def inference(t):
    with torch.inference_mode():
        return t.clone()


def of_wide_numpy(t):
    """A view whose last element comes first in memory, as NumPy has them."""
    return torch.as_strided(t, t.shape, [0] * t.dim())


MANGLED = {
    "plain": lambda t: t,
    "freed": freed,
    "half freed": half_freed,
    "expanded": lambda t: t[:1].expand(t.shape) if t.dim() and t.shape[0] else t,
    "zero strides": of_wide_numpy,
    "transposed": lambda t: t.t().contiguous().t() if t.dim() == 2 else t,
    "every other": lambda t: torch.stack((t, t), -1)[..., 0],
    "meta": lambda t: t.to("meta"),
    "sparse": lambda t: t.to_sparse(),
    "nested": lambda t: torch.nested.nested_tensor([t, t]),
    "negated": lambda t: torch._neg_view(t) if t.is_floating_point() else t,
    "efficient zero": lambda t: torch._efficientzerotensor(t.shape, dtype=t.dtype),
    "grad": lambda t: t.requires_grad_() if t.is_floating_point() else t,
    "inference": inference,
    "wrapped": lambda t: torch.nn.Parameter(t, requires_grad=False),
    "shared": lambda t: BASE[: t.numel()].view(t.shape),
    "huge": lambda t: torch.empty((2**40, *t.shape[1:]), dtype=t.dtype, device="meta"),
}


def mangled(rng, shape, dtype, kinds=tuple(MANGLED)):
    """(description, tensor) of a shape and dtype; plain where torch has no such tensor."""
    kind = rng.choice(kinds)
    try:
        found = MANGLED[kind](torch.zeros(shape, dtype=dtype))
    except (RuntimeError, NotImplementedError, IndexError):
        kind, found = "plain", torch.zeros(shape, dtype=dtype)
    return f"{kind} {tuple(shape)} {dtype}", found


def tensor(rng):
    """Any tensor."""
    dtypes = DTYPES[:2] if rng.random() < 0.6 else DTYPES
    return mangled(rng, rng.choice(SHAPES), rng.choice(dtypes))


def like(shape, dtype):
    """Mostly a tensor that fits, often without the memory for it."""
    kinds = ("plain", "plain", "freed", "half freed", "expanded", "shared", "zero strides")
    return lambda rng: tensor(rng) if rng.random() < 0.3 else mangled(rng, shape, dtype, kinds)


NUMBERS = (0, 1, 2, 3, -1, 7, 2**31, 2**32, 2**40, 2**63 - 1, -(2**63), 2**64, 2**128, 0.5, 1e300)
OTHERS = {
    "None": lambda: None, "True": lambda: True, "nan": lambda: float("nan"),
    "inf": lambda: float("inf"), "''": str, "'a'": lambda: "a", "'numpy'": lambda: "numpy",
    "NUL": lambda: "a\0", "surrogate": lambda: "\ud800", "long text": lambda: "x" * 5000,
    "b'x'": lambda: b"x", "[]": list, "[1]": lambda: [1], "['a']": lambda: ["a"], "()": tuple,
    "(1, 2)": lambda: (1, 2), "{}": dict, "{'a': 1}": lambda: {"a": 1},
    "{1: None}": lambda: {1: None},
    "set()": set,
    "{'a'}": lambda: {"a"}, "range": lambda: range(3), "object": object,
    "a class": lambda: torch.Generator, "a function": lambda: lambda *_: None,
    "np.int64": lambda: np.int64(3), "np.float32": lambda: np.float32(0.5),
    "np.str": lambda: np.str_("a"),
    "array": lambda: np.arange(3), "matrix": lambda: np.zeros((2, 2)),
    "objects": lambda: np.array([None]),
    "dtype": lambda: torch.float32, "device": lambda: torch.device("meta"), "cuda": lambda: "cuda",
    "path": lambda: Path("nowhere/here"), "module": lambda: torch.nn.Linear(2, 2),
    "generator": torch.Generator, "numpy generator": lambda: np.random.default_rng(0),
    "random.Random": lambda: python_random.Random(0),
    "RandomState": lambda: np.random.RandomState(0),
    "bank": lambda: bank(), "loader": lambda: plain_loader(), "complex": lambda: 1j,
    "shard": lambda: fastseed.random.Shard((4,), (1,)), "deep": lambda: deep(),
}  # fmt: skip


def deep():
    found: list = []
    for _ in range(300):  # Python can print it, as torch does in messages
        found = [found]
    return found


def hostile(rng):
    """(description, value) of anything."""
    chosen = rng.random()
    if chosen < 0.35:
        return tensor(rng)
    if chosen < 0.55:
        number = rng.choice(NUMBERS)
        return repr(number), number
    if chosen < 0.62:
        some = [tensor(rng) for _ in range(rng.randint(0, 2))]
        return f"{[name for name, _ in some]}", [value for _, value in some]
    if chosen < 0.66:
        some = [tensor(rng) for _ in range(rng.randint(1, 2))]
        return f"dict {[name for name, _ in some]}", {str(i): v for i, (_, v) in enumerate(some)}
    name = rng.choice(tuple(OTHERS))
    return name, OTHERS[name]()


def bank():
    made = fastseed.random.StreamBank(3, "fuzz")
    made.reseed_from_seeds([1, 2, 3])
    return made


def dataset():
    return torch.utils.data.TensorDataset(torch.arange(6.0))


def plain_loader():
    return torch.utils.data.DataLoader(dataset(), batch_size=2, generator=torch.Generator())


def one_of(*values):
    return lambda rng: (lambda value: (repr(value), value))(rng.choice(values))


def made(name, make):
    return lambda rng: (name, make())


def a_state():
    return fastseed.state_dict(rng=True)


GOOD = {
    "keys": like((3, 2), U64), "key": one_of(7, 2**100), "shape": one_of((2,), (), (0,), [3]),
    "positions": like((3,), I64), "position": one_of(0, 4), "out": like((3, 2), U64),
    "scope": like((2,), U64), "seeds": like((3,), U64), "indices": one_of(None),
    "rows": one_of(None),
    "tensor": like((3, 2), F32), "input": like((3, 4), F32), "logits": like((3, 5), F32),
    "draft_tokens": like((3, 1), I64), "draft_probs": like((3, 1, 4), F32),
    "target_probs": like((3, 2, 4), F32), "target_logits": like((3, 2, 4), F32),
    "task": one_of(0, 1), "epoch": one_of(0, 1), "step": one_of(0, 5), "name": one_of("x", "y"),
    "n": one_of(0, 3, 5), "dtype": one_of(None), "low": one_of(0), "high": one_of(1, 9),
    "p": one_of(0.5),
    "dataset": made("dataset", dataset), "data": one_of(5), "loader": made("loader", plain_loader),
    "model": made("model", functools.partial(torch.nn.Linear, 2, 2)),
    "module": made("model", functools.partial(torch.nn.Linear, 2, 2)),
    "generator": made("generator", torch.Generator), "state": made("state", a_state),
    "path": one_of("a", "b"), "a": one_of("a"), "b": one_of("b"), "every": one_of(1),
    "sources": one_of({"a": 5, "b": 6}), "weights": one_of({"a": 1.0, "b": 2.0}),
    "prompts": one_of([1, 2], ["a"]), "samples": one_of(2), "length": one_of(4),
    "prompt": one_of(1, "a", [1, 2]), "sample": one_of(0, 3),
    "fn": made("fn", lambda: lambda **at: 1),
    "epochs": one_of(2), "batch_size": one_of(2), "timeout": one_of(1.0), "sparsity": one_of(0.1),
    "master_seed": one_of(42), "states": like((73,), torch.uint8), "group": one_of(None),
    "ranks": one_of(None), "factory": made("Linear", lambda: lambda: torch.nn.Linear(2, 2)),
    "start": one_of(0), "total": one_of(8), "text": one_of("x"), "obj": like((3,), F32),
    "names": one_of(("dp",)), "sizes": one_of((2,)), "dimensions": one_of(("dp",)),
    "rank": one_of(0), "world_size": one_of(1), "spec": one_of("x"),
    "plan": like((3, 7), I64), "sums": like((3, 2), U64), "first_row": like((1,), I64),
}  # fmt: skip


def instances():
    """Makers of objects whose methods are called, by the public path of the class."""
    data, nn = fastseed.data, fastseed.nn
    return {
        "GeneratorPool": lambda: fastseed.GeneratorPool(
            [torch.Generator(), torch.Generator()], "fuzz"
        ),
        "random.StreamBank": bank,
        "data.ShuffleSampler": lambda: data.ShuffleSampler(9),
        "data.MixtureSampler": lambda: data.MixtureSampler({"a": 5, "b": 6}, {"a": 1.0, "b": 2.0}),
        "data.Loader": lambda: data.Loader(dataset(), 2),
        "data.Lineage": lambda: data.steps(plain_loader(), 2).lineage(),
        "rollouts.Ledger": lambda: fastseed.rollouts.Ledger(3, batch_size=1),
        "checkpoint.Stateful": lambda: fastseed.checkpoint.Stateful(),
        "debug.Digest": lambda: fastseed.debug.digest({"a": torch.ones(3)}),
        "nn.Dropout": lambda: nn.Dropout(0.5, name="d"),
        "nn.Dropout1d": lambda: nn.Dropout1d(0.5, name="d"),
        "nn.Dropout2d": lambda: nn.Dropout2d(0.5, name="d"),
        "nn.Dropout3d": lambda: nn.Dropout3d(0.5, name="d"),
    }
