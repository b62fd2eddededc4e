"""The operators of the draws as torch sees them, and draws in compiled code: the eager bits."""

from __future__ import annotations

import pytest
import torch
from helpers.support import needs_native, run_script

import fastseed.random
from fastseed._backend import native, tensors
from fastseed._backend.ops.register import REFERENCES
from fastseed._backend.reference import philox, scalar

SCOPE = scalar.scope_key(42, 1, 7, 0)
WORDS = scalar.name_words("bank")
NAME = scalar.name_key(SCOPE, WORDS)
RANK_WORD = 3 | scalar.DOMAIN_STREAM << 24
DTYPES = {
    **dict.fromkeys(
        ("draw_uniform", "draw_normal", "draw_exponential", "draw_trunc_normal"), torch.float16
    ),
    "draw_bits": torch.uint32,
    "draw_bernoulli": torch.bool,
    "draw_randint": torch.uint8,
}
PARAMETERS = {
    "draw_bits": (),
    "draw_uniform": (2.0, -1.0, 0.875),
    "draw_normal": (1.0, 2.0),
    "draw_exponential": (0.5,),
    "draw_trunc_normal": (1.0, 2.0, -0.125, 0.5, 0.125, 0.375, -1.5, 2.0),
    "draw_bernoulli": (3 << 30,),
    "draw_randint": (3, 200),
}
LAYOUT = ((2, 3), (10, 1), 4)  # sizes, strides, offset of what a row of 6 values holds


def signed(value):
    return value - 2**64 if value >> 63 else value


def some_keys(n):
    return torch.from_numpy(philox.derive_keys(NAME, 3, 0, 0, n))


def draw_inputs(op):
    """Sample inputs of a draw."""
    out = torch.zeros(3, 6, dtype=DTYPES[op])
    return (out, some_keys(3), torch.arange(3) * 4, *LAYOUT, *PARAMETERS[op])


def key_inputs(op, n):
    """Sample inputs of an operator on keys."""
    keys, positions = torch.zeros(n, 2, dtype=torch.uint64), torch.ones(n, dtype=torch.int64)
    scope = torch.tensor(SCOPE, dtype=torch.uint64)
    seeds = torch.arange(n).view(torch.uint64)
    words = tuple(map(signed, WORDS))
    stream = (RANK_WORD, 5, 2**40 - 7)
    return {
        "derive_keys": (keys, *map(signed, NAME), *stream),
        "derive_seeds": (positions.view(torch.uint64), *map(signed, NAME), *stream),
        "reseed_streams": (keys, positions, *map(signed, NAME), *stream),
        "reseed_streams_at": (keys, positions, scope, *words, *stream),
        "reseed_streams_from": (keys, positions, seeds, torch.arange(n) + 5, *words),
        "mt19937_states": (torch.ones(n, 632, dtype=torch.int64), keys),
        "shuffle": (positions, signed(SCOPE[0]), signed(SCOPE[1]), 1000, 3, 7),
        "shuffle_positions": (positions, torch.arange(n) * 4, *map(signed, SCOPE), 1000),
    }[op]


KEY_OPS = ["derive_keys", "derive_seeds", "reseed_streams", "reseed_streams_at"]
KEY_OPS += ["reseed_streams_from", "mt19937_states", "shuffle", "shuffle_positions"]
OPS = [*DTYPES, *KEY_OPS]


def overload(op):
    return getattr(torch.ops.fastseed, op).default


def check(op, inputs):
    assert set(torch.library.opcheck(overload(op), inputs).values()) == {"SUCCESS"}


def test_every_operator_is_checked_here():
    elsewhere = {
        "sampling_race",
        "sampling_histogram",
        "dropout",
        "layer_key",
        "exact_sum",
        "perturb",
        "shuffle_of_key",
    }
    assert set(REFERENCES) - elsewhere == set(OPS)


@pytest.mark.parametrize("op", OPS)
def test_opcheck(op):
    """Once for each operator: what it checks depends on the schema and the dispatch alone."""
    if op in KEY_OPS:
        check(op, key_inputs(op, 3))
    else:
        check(op, draw_inputs(op))


@needs_native
@pytest.mark.parametrize("op", KEY_OPS)
@pytest.mark.parametrize("n", [0, 1, 5, 33])
def test_native_keys_equal_the_fallback(op, n):
    found, answer = key_inputs(op, n), key_inputs(op, n)
    overload(op)(*found)
    REFERENCES[op](*answer)
    written = found[:2] if op.startswith("reseed") else found[:1]
    for a, b in zip(written, answer, strict=False):
        assert torch.equal(a, b)


@pytest.mark.parametrize("op", OPS)
def test_fakes_know_no_data(op):
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(allow_non_fake_inputs=True):
        if op in KEY_OPS:
            assert overload(op)(*key_inputs(op, 3)) is None
        else:
            keys = torch.empty(2**30, 2, dtype=torch.uint64)
            out = torch.empty(2**30, 2**10, dtype=DTYPES[op])
            assert overload(op)(out, keys, None, (), (), 0, *PARAMETERS[op]) is None


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_draws_have_the_eager_bits(backend):
    """In a process of its own, which then has imported Dynamo; parameters vary between calls."""
    found = run_script("compiled_draws.py", backend, timeout=280)
    assert found["wrong"] == [] and found["compared"] > 100


def test_a_compiled_function_has_the_eager_bits():
    """With Dynamo's own backend, which is quick; the slow tests take the others."""
    keys = torch.tensor([[1, 2], [3, 4]], dtype=torch.uint64)

    def sample(keys, scale):
        return fastseed.random.normal(keys, (5,), std=scale)

    compiled = torch.compile(sample, backend="eager", fullgraph=True)
    for scale in (1.0, 0.5):
        assert torch.equal(compiled(keys, scale), sample(keys, scale))


def test_build_info_says_whether_there_is_cuda(monkeypatch):
    monkeypatch.setattr(native, "cuda_missing", "there is no nvcc")
    assert fastseed.build_info()["cuda"] == "not used: there is no nvcc"
    monkeypatch.setattr(native, "cuda_missing", None)
    assert fastseed.build_info()["cuda"] == "loaded"


@needs_native
def test_reference_backend_gives_the_native_bits():
    found = [run_script("draw_everything.py", FASTSEED_BACKEND=b) for b in ("native", "reference")]
    assert found[0] == found[1] and len(found[0]) > 40


def test_other_devices_are_refused(monkeypatch):
    cuda = torch.device("cuda:0")
    monkeypatch.setattr(native, "has_cuda", False)
    with pytest.raises(
        ValueError,
        match=r"^fastseed\.random\.rand: keys must be on the CPU, as .* not used .*, got cuda:0$",
    ):
        tensors.check_supported("random.rand", "keys", cuda)
    monkeypatch.setattr(native, "has_cuda", True)
    tensors.check_supported("uniform", "keys", cuda)
    with pytest.raises(ValueError, match=r"keys must be on the CPU or a CUDA device, got xpu:1$"):
        tensors.check_supported("uniform", "keys", torch.device("xpu:1"))
