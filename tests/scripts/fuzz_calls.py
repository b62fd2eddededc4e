"""Calls of public functions and operators with hostile tensors: none may end the process.

Writes each call to LOG before it is made, so that the last line names the one that ended it. Usage:
``fuzz_calls.py SEED CALLS LOG``. Errors are expected; those of functions begin with "fastseed.".
"""

import json
import random
import resource
import sys
import tempfile
import warnings

import torch

import fastseed

warnings.simplefilter("ignore")
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
SEED, CALLS = int(sys.argv[1]), int(sys.argv[2])
rng = random.Random(SEED)
fastseed.init(42, rank=0, world_size=1)
fastseed.reseed(0)

DTYPES = (
    *(torch.uint64, torch.int64, torch.uint32, torch.int32, torch.uint8, torch.bool),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64),
)
SHAPES = ((), (0,), (1,), (2,), (3,), (3, 2), (0, 2), (2, 3), (3, 4), (1, 2), (2, 2, 2), (17,))


def freed(t):
    t.untyped_storage().resize_(0)
    return t


def half_freed(t):
    t.untyped_storage().resize_(t.untyped_storage().nbytes() // 2)
    return t


def backwards(t):
    """A view whose last element comes first in memory, as NumPy has them."""
    return torch.as_strided(t, t.shape, [0] * t.dim())


BASE = torch.zeros(64, dtype=torch.uint64)  # for tensors that share memory
MANGLED = {
    "plain": lambda t: t,
    "freed": freed,
    "half freed": half_freed,
    "expanded": lambda t: t[:1].expand(t.shape) if t.dim() and t.shape[0] else t,
    "zero strides": backwards,
    "transposed": lambda t: t.t().contiguous().t() if t.dim() == 2 else t,
    "every other": lambda t: torch.stack((t, t), -1)[..., 0],
    "meta": lambda t: t.to("meta"),
    "sparse": lambda t: t.to_sparse(),
    "nested": lambda t: torch.nested.nested_tensor([t, t]),
    "negated": lambda t: torch._neg_view(t) if t.is_floating_point() else t,
    "efficient zero": lambda t: torch._efficientzerotensor(t.shape, dtype=t.dtype),
    "grad": lambda t: t.requires_grad_() if t.is_floating_point() else t,
    "inference": lambda t: inference(t),
    "wrapped": lambda t: torch.nn.Parameter(t, requires_grad=False),
    "shared": lambda t: BASE[: t.numel()].view(t.shape),
    "huge": lambda t: torch.empty((2**40, *t.shape[1:]), dtype=t.dtype, device="meta"),
}


def inference(t):
    with torch.inference_mode():
        return t.clone()


def tensor():
    dtype, shape = rng.choice(DTYPES[:2] if rng.random() < 0.6 else DTYPES), rng.choice(SHAPES)
    kind = rng.choice(list(MANGLED))
    try:
        found = MANGLED[kind](torch.zeros(shape, dtype=dtype))
    except (RuntimeError, NotImplementedError, IndexError):
        kind, found = "plain", torch.zeros(shape, dtype=dtype)
    return f"{kind} {tuple(shape)} {dtype}", found


def number():
    found = rng.choice((0, 1, 2, 3, -1, 7, 2**31, 2**32, 2**40, 2**63 - 1, -(2**63), 0.5, 1e300))
    return repr(found), found


def like(shape, dtype):
    """Mostly a tensor that fits, often without the memory for it."""

    def make():
        if rng.random() < 0.4:
            return tensor()
        kind = rng.choice(("plain", "freed", "half freed", "expanded", "shared", "zero strides"))
        try:
            return f"{kind} {shape} {dtype}", MANGLED[kind](torch.zeros(shape, dtype=dtype))
        except RuntimeError:
            return f"plain {shape} {dtype}", torch.zeros(shape, dtype=dtype)

    return make


def anything():
    chosen = rng.random()
    if chosen < 0.6:
        return tensor()
    if chosen < 0.8:
        return number()
    listed = [tensor() for _ in range(rng.randint(0, 2))]
    if chosen < 0.9:
        return f"{[name for name, _ in listed]}", [value for _, value in listed]
    return f"dict {[name for name, _ in listed]}", dict(enumerate(v for _, v in listed))


def optional(make):
    return lambda: ("None", None) if rng.random() < 0.5 else make()


def constant(value):
    return lambda: (repr(value), value)


def small():
    found = rng.choice(((2,), (), (0,), 3, (2, 2), (2**60,), -1, "a"))
    return repr(found), found


U64, I64, F32 = torch.uint64, torch.int64, torch.float32
keys, one_key = like((3, 2), U64), like((2,), U64)
positions, seeds, scope = like((3,), I64), like((3,), U64), like((2,), U64)
at = {"task": constant(0), "name": constant("x")}


def bank():
    made = fastseed.random.StreamBank(3)
    made.reseed_from_seeds([1, 2, 3])
    return made


def method(name):
    def call(*arguments, **named):
        made = bank()
        own = {"positions": made.positions, "keys": made.keys}
        if rng.random() < 0.1:
            if "out" in named:
                named["out"] = rng.choice(list(own.values()))
            else:
                arguments = (rng.choice(list(own.values())), *arguments[1:])
        return getattr(made, name)(*arguments, **named)

    return call


def save_and_load(value):
    with tempfile.TemporaryDirectory() as folder:
        fastseed.checkpoint.save(f"{folder}/a", value)


r = fastseed.random
maybe_tensor, maybe_positions = optional(tensor), optional(positions)
FUNCTIONS = {
    "random.rand": (r.rand, keys, small, {"positions": maybe_positions, "out": maybe_tensor}),
    "random.randn": (r.randn, keys, constant((2,)), {"out": optional(like((3, 2), F32))}),
    "random.bits": (r.bits, keys, constant((2,)), {"out": like((3, 2), U64)}),
    "random.randint": (r.randint, keys, number, number, small, {"out": maybe_positions}),
    "random.bernoulli": (r.bernoulli, keys, number, small, {"out": maybe_tensor}),
    "random.exponential": (r.exponential, one_key, small, {"rate": anything}),
    "random.trunc_normal": (r.trunc_normal, one_key, small, {"a": anything, "b": anything}),
    "random.trunc_normal_": (r.trunc_normal_, tensor, one_key, {"std": anything}),
    "random.rand parameters": (r.rand, keys, small, {"low": anything, "high": anything}),
    "random.uniform_": (r.uniform_, tensor, one_key, {}),
    "random.normal_": (r.normal_, like((3, 2), F32), one_key, {"mean": number}),
    "random.bits_": (r.bits_, like((2,), U64), one_key, {}),
    "random.randint_": (r.randint_, tensor, anything, number, number, {}),
    "random.bernoulli_": (r.bernoulli_, tensor, anything, {"position": number}),
    "StreamBank": (r.StreamBank, constant(3), anything, {}),
    "StreamBank.rand": (
        method("rand"), constant(2), {"rows": maybe_positions, "out": maybe_tensor}),
    "StreamBank.bits": (method("bits"), constant(2), {"out": like((3, 2), torch.uint32)}),
    "StreamBank.randint": (method("randint"), constant(0), constant(9), {"out": positions}),
    "StreamBank.reseed_from_scope": (method("reseed_from_scope"), scope, {}),
    "StreamBank.reseed_from_seeds": (
        method("reseed_from_seeds"), seeds, {"indices": maybe_positions}
    ),
    "StreamBank.load_states": (method("load_states"), like((73,), torch.uint8), {}),
    "derive_scope": (fastseed.derive_scope, constant(0), {"out": scope}),
    "derive_key": (fastseed.derive_key, anything, {"task": anything}),
    "fork_rng": (lambda name: fastseed.fork_rng(name).__enter__(), tensor, {}),
    "load_state_dict": (fastseed.load_state_dict, anything, {}),
    "reseed": (fastseed.reseed, anything, {}),
    "register_generator": (fastseed.register_generator, anything, {"name": anything}),
    "debug.digest": (fastseed.debug.digest, anything, {}),
    "debug.compare": (fastseed.debug.compare, anything, anything, {}),
    "data.ShuffleSampler.index": (fastseed.data.ShuffleSampler(9).index, anything, {}),
    "data.ShuffleSampler.indices": (
        fastseed.data.ShuffleSampler(9).indices, constant(0), constant(3),
        {"task": constant(0), "epoch": constant(0), "out": positions},
    ),
    "nn.functional.dropout": (
        fastseed.nn.functional.dropout, tensor, constant(0.5), one_key, {"offset": number},
    ),
    "nn.functional.dropout parameters": (
        fastseed.nn.functional.dropout, like((3, 2), F32), anything, anything, {"shard": anything},
    ),
    "GeneratorPool": (fastseed.GeneratorPool, anything, {}),
    "sampling.sample": (fastseed.sampling.sample, tensor, keys, positions, {"top_p": number}),
    "sampling.merge": (fastseed.sampling.merge, tensor, tensor, {}),
    "sampling.accept_or_resample": (
        fastseed.sampling.accept_or_resample, tensor, tensor, tensor, keys, positions, {},
    ),
}  # fmt: skip
ARGUMENTS = {
    "Tensor": tensor, "Optional[Tensor]": maybe_tensor, "int": number, "float": number,
    "List[int]": lambda: rng.choice((("[]", []), ("[2]", [2]), ("[3, 2]", [3, 2]))),
    "List[Tensor]": lambda: (lambda some: (str([n for n, _ in some]), [v for _, v in some]))(
        [tensor() for _ in range(rng.randint(0, 3))]
    ),
    "str": constant("avx2"), "bool": lambda: rng.choice((("False", False), ("True", True))),
}  # fmt: skip
SHAPED = {
    "out": like((3, 2), U64), "keys": keys, "positions": positions, "scope": scope,
    "input": like((3, 4), F32), "first_row": like((1,), I64),
    "seeds": seeds, "indices": maybe_positions, "sums": keys, "plan": like((3, 7), I64),
}  # fmt: skip


def operators():
    for qualified in sorted(torch._C._dispatch_get_all_op_names()):
        name = qualified.removeprefix("fastseed::")
        if name != qualified and "simd" not in name:
            op = getattr(torch.ops.fastseed, name).default
            if torch._C._dispatch_has_kernel_for_dispatch_key(qualified, "CPU"):
                yield name, op


def call_of_operator(name, op):
    makers = [SHAPED.get(a.name, ARGUMENTS[str(a.type)]) for a in op._schema.arguments]
    if name == "derive_seeds":
        makers[0] = seeds
    integers = {"int": lambda v: int(v) if abs(v) < 2**62 else 1, "float": float}
    given = [make() for make in makers]
    values = [
        integers.get(str(a.type), lambda v: v)(v)
        for a, (_, v) in zip(op._schema.arguments, given, strict=True)
    ]
    return [n for n, _ in given], lambda: op(*values)


def call_of_function(function, *makers):
    positional = [make() for make in makers[:-1]]
    named = {key: make() for key, make in makers[-1].items()}
    names = [n for n, _ in positional] + [f"{k}={n}" for k, (n, _) in named.items()]
    values, keywords = [v for _, v in positional], {k: v for k, (_, v) in named.items()}
    return names, lambda: function(*values, **keywords)


OPERATORS = dict(operators())
raised, unclear = 0, []
log = open(sys.argv[3], "w")  # noqa: SIM115
for i in range(CALLS):
    if i % 3 == 0 and OPERATORS:
        name = rng.choice(list(OPERATORS))
        names, call = call_of_operator(name, OPERATORS[name])
        name = f"ops.{name}"
    else:
        name = rng.choice(list(FUNCTIONS))
        names, call = call_of_function(*FUNCTIONS[name])
    print(f"{i} {name}({', '.join(names)})", file=log, flush=True)
    try:
        with torch.no_grad() if rng.random() < 0.1 else torch.enable_grad():
            call()
    except (TypeError, ValueError, RuntimeError, NotImplementedError) as error:
        raised += 1
        internal = name == "StreamBank.load_states"
        if name.startswith(("random.", "StreamBank", "nn.")) and not internal:
            if str(error).startswith("fastseed."):
                continue
            unclear.append(f"{name}({', '.join(names)}): {error!r}"[:300])
    except Exception as error:
        unclear.append(f"{name}({', '.join(names)}): {error!r}"[:300])
    fastseed.init(42, rank=0, world_size=1)  # which forgets what was registered
print(json.dumps({"calls": CALLS, "raised": raised, "unclear": unclear}))
