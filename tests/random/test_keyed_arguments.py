"""Calls in a block of ``random.keyed`` take and return what those of torch do, or raise."""

import contextlib

import pytest
import torch
from helpers.support import freed
from torch import nn
from torch.autograd import forward_ad
from torch.nn import functional

import fastseed
from fastseed.random import keyed

HALF = torch.full((3, 4), 0.5)
FREED = freed(torch.ones(4))
WRONG = {
    "int8": (
        lambda: torch.randint(0, 300, (3,), dtype=torch.int8),
        r"\.randint_: .* in \[-128, 127\]",
    ),
    "uint16": (lambda: torch.randint(-1, 3, (3,), dtype=torch.uint16), r"in \[0, 65535\]"),
    "bool": (lambda: torch.empty(3, dtype=torch.bool).random_(5), r"in \[0, 1\]"),
    "float16": (lambda: torch.empty(3).half().random_(2**40), r"in \[-65504, 65504\]"),
    "bernoulli": (lambda: torch.bernoulli(HALF * 3), r"p must be in \[0, 1\]"),
    "bernoulli_": (lambda: HALF.clone().bernoulli_(HALF * torch.nan), r"p must be in \[0, 1\]"),
    "std": (lambda: torch.normal(HALF, -HALF), "std must be 0 or more"),
    "std number": (lambda: torch.normal(HALF, -1.0), "std must be 0 or more"),
    "sigma": (lambda: HALF.clone().cauchy_(0, -1), "sigma must be above 0"),
    "cauchy_": (lambda: torch.empty(3, dtype=torch.int64).cauchy_(), "must be of dtype"),
    "log_normal_": (lambda: torch.empty(3, dtype=torch.int64).log_normal_(), "must be of dtype"),
    "randperm": (lambda: torch.randperm(300, dtype=torch.int8), "a vector, of elements that are"),
    "randperm of halves": (lambda: torch.randperm(2050, dtype=torch.float16), "a vector, of"),
    "out": (lambda: torch.multinomial(HALF, 2, out=torch.empty(0)), "dtype"),
    "freed": (lambda: torch.multinomial(FREED, 2), "multinomial must have memory"),
    "mode": (lambda: nn.init.kaiming_uniform_(torch.empty(2, 3), mode="x"), "Mode x not supported"),
}


WITHOUT_MEMORY = {
    "random_": lambda t: t.random_(0, 9),
    "geometric_": lambda t: t.geometric_(0.5),
    "log_normal_": lambda t: t.log_normal_(),
    "bernoulli_ of p": lambda t: torch.ones(4).bernoulli_(t),
    "bernoulli": torch.bernoulli,
    "normal of std": lambda t: torch.normal(0.0, std=t),
    "normal out": lambda t: torch.normal(HALF, 1.0, out=t),
    "rand out": lambda t: torch.rand((2, 3), out=t),
    "mask of attention": lambda t: functional.scaled_dot_product_attention(
        HALF[:, :2], HALF[:, :2], HALF[:, :2], attn_mask=t, dropout_p=0.5
    ),
    "gumbel_softmax": functional.gumbel_softmax,
    "alpha_dropout": lambda t: functional.alpha_dropout(t, 0.5, True),
}


@pytest.fixture(autouse=True)
def _started():
    fastseed.init(42, rank=0, world_size=1)
    fastseed.reseed(1, 0, 3)


def test_a_permutation_into_overlapping_memory_is_refused():
    """torch writes it; the error names the function of the caller."""
    with keyed("flow"), pytest.raises(ValueError, match=r"random\.keyed: tensor must not overlap"):
        torch.randperm(4, out=torch.empty(1, dtype=torch.int64).expand(4))


@pytest.mark.parametrize("call", WITHOUT_MEMORY.values(), ids=WITHOUT_MEMORY)
def test_a_tensor_without_memory_is_refused(call):
    """Most of these end the process in torch; nobody reads a tensor of zeros that has none."""
    zeros = torch._efficientzerotensor(4)
    with keyed("flow"):
        for tensor in (FREED, zeros):
            written = call in [WITHOUT_MEMORY[name] for name in ("random_", "rand out")]
            if tensor is FREED or written:
                with pytest.raises(ValueError, match="must have memory for all of its elements"):
                    call(tensor)
        for draw in (torch.rand_like, torch.randn_like, lambda t: torch.randint_like(t, 3)):
            assert draw(FREED).shape == torch.normal(zeros, 1.0).shape == (4,)


@pytest.mark.parametrize(("call", "message"), WRONG.values(), ids=WRONG)
def test_a_call_that_torch_refuses_raises_and_counts_nothing(call, message):
    with pytest.raises((TypeError, ValueError, RuntimeError, NotImplementedError)):
        call()
    with keyed("flow"):
        with pytest.raises((TypeError, ValueError, RuntimeError), match=message):
            call()
        expected = fastseed.random.uniform(fastseed.derive_key("keyed/flow"), (2,))
        assert torch.equal(torch.rand(2), expected)


@pytest.mark.parametrize(
    "call",
    [
        lambda: torch.bernoulli(HALF.t()),
        lambda: HALF.t().bernoulli(0.5),
        lambda: torch.empty(9, dtype=torch.bool).random_(),
        lambda: torch.randperm(2049, dtype=torch.float16, requires_grad=True),
        lambda: torch.randperm(5, out=torch.empty(0, dtype=torch.int32), dtype=torch.int32),
        lambda: torch.normal(torch.tensor(0.0), torch.tensor(1.0), (3,)),
        lambda: torch.multinomial(torch.full((5,), 60000.0).half(), 2),
        lambda: functional.dropout(HALF, torch.tensor(0.5)),
    ],
)
def test_a_result_is_as_torchs(call):
    expected = call()
    with keyed("flow"):
        found = call()
    for what in ("shape", "dtype", "requires_grad"):
        assert getattr(found, what) == getattr(expected, what)
    assert found.stride() == expected.stride()


OVERWRITING = [
    lambda w: (w * 2).random_(),
    lambda w: torch.bernoulli(w),
    lambda w: torch.normal(w, w * 2),
    lambda w: torch.normal(0.0, w),
]


@pytest.mark.parametrize("draw", OVERWRITING)
def test_what_a_draw_replaces_has_a_gradient_of_zero(draw):
    w = torch.full((3,), 0.5, requires_grad=True)
    with keyed("flow"):
        draw(w).sum().backward()
    assert torch.equal(w.grad, torch.zeros(3))


@pytest.mark.parametrize(
    "draw",
    [
        *OVERWRITING,
        lambda w: torch.nn.init.normal_(w * 1),
        lambda w: fastseed.random.normal_(w * 1, 42),
        lambda w: fastseed.random.normal_((w * 1)[::2], 42),
    ],
)
def test_what_a_draw_replaces_has_a_tangent_of_zero(draw):
    w = torch.full((3,), 0.5)
    with keyed("flow", 0):
        expected = draw(w)
    with keyed("flow", 0):
        found, tangent = torch.func.jvp(draw, (w,), (w,))
    assert torch.equal(found, expected)
    assert torch.equal(tangent, torch.zeros_like(found))
    with forward_ad.dual_level(), keyed("flow", 0):
        found, tangent = forward_ad.unpack_dual(draw(forward_ad.make_dual(w, w)))
        assert torch.equal(found, expected) and (tangent is None or not tangent.any())


def test_linearize_is_refused_where_it_would_lose_the_numbers():
    def in_block(x):
        with keyed("flow", 0):
            return x * torch.rand(8)

    for draw in (
        in_block,
        lambda x: x * fastseed.random.uniform(42, (8,)),
        lambda x: fastseed.nn.functional.dropout(x, 0.5, 42),
    ):
        with pytest.raises(RuntimeError, match=r"^fastseed\..*: must not draw in torch.func.lin"):
            torch.func.linearize(draw, torch.ones(8))


@pytest.mark.parametrize("draws", [2**24, 2**24 + 1])
def test_a_block_draws_at_most_as_often_as_an_index_has_keys(draws):
    ends = pytest.raises(RuntimeError, match=r"must draw at most 2\*\*24 times")
    with contextlib.nullcontext() if draws == 2**24 else ends, keyed("flow", 3) as block:
        block.draws.number[0] += draws


def test_the_default_device():
    with torch.device("meta"), keyed("flow"):
        assert torch.normal(0.0, 1.0, (3,)).is_cpu  # as torch
        assert torch.rand(3).is_meta


def test_fake_tensors_are_not_read():
    with torch._subclasses.FakeTensorMode(), keyed("flow"):
        found = torch.multinomial(torch.ones(2, 5), 3)
    assert found.shape == (2, 3) and found.dtype == torch.int64


def test_torchs_default_generator_is_replaced_also_where_it_is_given():
    torch.manual_seed(1)
    state = torch.get_rng_state()
    with keyed("flow", 0):
        first, second = torch.utils.data.random_split(range(9), [4, 5])
        expected = fastseed.derive_key("keyed/flow", index=1)
        drawn = torch.rand(2, generator=torch.default_generator)
        assert torch.equal(drawn, fastseed.random.uniform(expected, (2,)))
    assert torch.equal(torch.get_rng_state(), state)
    with keyed("flow", 0):
        assert list(first.indices) + list(second.indices) == torch.randperm(9).tolist()


@pytest.mark.parametrize("randomness", ["error", "different"])
def test_vmap_does_not_repeat_numbers_unseen(randomness):
    def draw(x):
        with keyed("inside", 0):
            return x + torch.rand(2)

    for function in (draw, torch.func.grad(lambda x: draw(x).sum())):
        with pytest.raises(RuntimeError, match=r"torch\.vmap would give all .* the same numbers"):
            torch.vmap(function, randomness=randomness)(torch.zeros(3, 2))
    same = torch.vmap(draw, randomness="same")(torch.zeros(3, 2))
    assert torch.equal(same, draw(torch.zeros(3, 2)))


def test_a_mode_around_a_block_is_not_asked_about_what_a_fill_calls():
    class Recorder(torch.overrides.TorchFunctionMode):
        names = ()

        def __torch_function__(self, func, types, args=(), kwargs=None):
            self.names += (func.__name__,)
            return func(*args, **kwargs or {})

    with Recorder() as around, keyed("flow"):
        torch.randn(3, dtype=torch.complex64)
    assert "empty" in around.names
    assert not {"view_as_real", "empty_like", "copy_"} & set(around.names)
