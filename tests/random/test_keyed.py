"""A block of ``random.keyed``: its draws are those of keys, whatever torch's generators hold."""

import threading

import pytest
import torch
from helpers import paths
from helpers.keyed_calls import CALLS, HEADS, ONES
from helpers.processes import in_child
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import fastseed
from fastseed.derivation import blocks, context
from fastseed.random import keyed
from fastseed.random.keyed import leave_inherited

UNKEYED = {
    "poisson": lambda: torch.poisson(ONES),
    "binomial": lambda: torch.binomial(ONES, ONES / 2),
    "Beta": lambda: torch.distributions.Beta(1.0, 1.0).sample(),
    "Gamma": lambda: torch.distributions.Gamma(1.0, 1.0).sample(),
    "rrelu": lambda: nn.RReLU()(ONES),
    "lstm": lambda: nn.LSTM(3, 3, 2, dropout=0.5)(torch.ones(2, 2, 3)),
    "fractional": lambda: functional.fractional_max_pool2d(torch.ones(1, 1, 8, 8), 2, 3),
    "native_dropout": lambda: torch.native_dropout(ONES, 0.5, True),
}

# What C++ calls in torch 2.10 to 2.15. It moves a default generator, so that the block raises.
UNSEEN = """
_cudnn_attention_backward _cudnn_attention_forward _cudnn_attention_forward_no_dropout_inplace
_cudnn_init_dropout_state _cudnn_rnn _efficient_attention_forward _fill_mem_eff_dropout_mask_
_flash_attention_forward _flash_attention_forward_no_dropout_inplace _fused_dropout
_fused_sdp_choice _lstm_mps _nested_tensor_softmax_with_shape _scaled_dot_product_attention_math
_scaled_dot_product_attention_math_for_mps _scaled_dot_product_cudnn_attention
_scaled_dot_product_cudnn_attention_backward _scaled_dot_product_efficient_attention
_scaled_dot_product_efficient_attention_backward _scaled_dot_product_flash_attention
_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_fused_attention_overrideable
_triton_scaled_dot_attention cauchy exponential geometric log_normal miopen_rnn normal_functional
random rrelu_with_noise rrelu_with_noise_ rrelu_with_noise_functional uniform"""


@pytest.fixture(autouse=True)
def _started():
    fastseed.init(42, rank=0, world_size=1)
    fastseed.reseed(1, 0, 3)


def run(call, name="flow", index=0):
    with keyed(name, index):
        return call()


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_function_draws_from_the_key_of_the_block(call):
    torch.manual_seed(1)
    first = run(call)
    torch.manual_seed(2)
    before = torch.get_rng_state()
    assert torch.equal(run(call), first)
    assert torch.equal(torch.get_rng_state(), before)
    others = [run(call, "other"), run(call, index=1)]
    fastseed.reseed(1, 0, 4)
    others.append(run(call))
    assert not all(torch.equal(other, first) for other in others)


@pytest.mark.parametrize("call", UNKEYED.values(), ids=UNKEYED)
def test_a_function_without_a_keyed_form_is_named(call):
    before = torch.get_rng_state()
    with pytest.raises(RuntimeError, match=r"has no keyed form and would draw .*: \w"), keyed("x"):
        torch.nn.Linear(1, 1)
        call()
    assert torch.equal(torch.get_rng_state(), before)


def test_fractional_pooling_takes_samples_that_the_block_drew():
    images, samples = torch.arange(16.0).view(1, 1, 4, 4), torch.rand(1, 1, 2)
    pool = torch.nn.FractionalMaxPool2d(2, 2, _random_samples=samples)
    assert torch.equal(run(lambda: pool(images)), pool(images))


def key_of(k, name="flow", index=0, **place):
    return fastseed.derive_key(f"keyed/{name}", index=index << 24 | k, **place)


def test_draw_k_has_the_key_that_the_documentation_says():
    with keyed("flow", 7):
        found = [
            torch.randn(5), torch.randint(-3, 9, (5,)), torch.rand(5), ONES.clone().bernoulli_(0.3),
            torch.empty(5).exponential_(2.0), functional.dropout(ONES, 0.5), torch.randperm(9),
        ]  # fmt: skip
    random, keys = fastseed.random, [key_of(k, index=7) for k in range(7)]
    expected = [
        random.normal(keys[0], (5,)), random.randint(keys[1], (5,), -3, 9),
        random.uniform(keys[2], (5,)),
        random.bernoulli(keys[3], (2, 3), 0.3, dtype=torch.float32),
        random.exponential(keys[4], (5,), 2.0),
        fastseed.nn.functional.dropout(ONES, 0.5, keys[5]),
    ]  # fmt: skip
    assert all(map(torch.equal, found, expected))
    assert sorted(found[6].tolist()) == list(range(9))


def test_what_draws_nothing_does_not_count():
    with keyed("flow"):
        functional.dropout(ONES, 0.5, training=False)
        functional.dropout(ONES, 0.0)
        torch.native_dropout(ONES, 0.5, False)
        nn.AlphaDropout(0.5).eval()(ONES)
        functional.scaled_dot_product_attention(HEADS, HEADS, HEADS)
        nn.LSTM(3, 3, 2, dropout=0.5).eval()
        with keyed("weights"):
            lstm = nn.LSTM(3, 3)
        lstm(torch.ones(2, 2, 3))
        found = torch.rand(2)
    # the weights of the first LSTM, and nothing else
    assert any(torch.equal(found, fastseed.random.uniform(key_of(k), (2,))) for k in range(1, 40))
    with keyed("flow", 0):
        functional.dropout(ONES, 0.5, training=False)
        functional.alpha_dropout(ONES, 0.5)  # which drops in training alone
        for empty in (torch.rand(0), torch.randperm(0), torch.empty(3, 0, dtype=torch.cfloat)):
            functional.dropout(empty.real.float().normal_(), 0.5)
        torch.empty(3).uniform_(2, 2)
        torch.empty(3, dtype=torch.cfloat).uniform_(2, 2)
        functional.dropout(ONES, 1.0)
        functional.alpha_dropout(ONES, 1.0, training=True)
        functional.scaled_dot_product_attention(HEADS, HEADS, HEADS, dropout_p=1.0)
        assert torch.equal(torch.rand(2), fastseed.random.uniform(key_of(0), (2,)))


@pytest.mark.parametrize(
    "drop",
    [
        lambda x: functional.dropout(x, 0.5, inplace=True),
        lambda x: torch.dropout_(x, 0.5, True),
        lambda x: torch.feature_dropout_(x, 0.5, True),
        lambda x: torch.alpha_dropout_(x, 0.5, True),
        lambda x: torch.feature_alpha_dropout_(x, 0.5, train=True),
    ],
)
def test_dropout_in_place_writes_its_input(drop):
    x = torch.ones(9, 9)
    with keyed("flow"):
        assert drop(x) is x
    assert not torch.equal(x, torch.ones(9, 9))


def test_the_strides_of_a_tensor_do_not_matter():
    def draws(x):
        return [
            torch.randn_like(x), x.clone().uniform_(), functional.dropout(x, 0.5),
            torch.rand_like(x, dtype=torch.float64),
        ]  # fmt: skip

    x = torch.ones(2, 3, 4, 5)
    expected = run(lambda: draws(x))
    for view in (
        x.to(memory_format=torch.channels_last),
        x.transpose(0, 3).clone().transpose(0, 3),
    ):
        assert all(map(torch.equal, run(lambda view=view: draws(view)), expected))


def test_a_users_generator_stays():
    generator = torch.Generator().manual_seed(5)
    expected = torch.rand(3, generator=torch.Generator().manual_seed(5))
    with keyed("flow"):
        assert torch.equal(torch.rand(3, generator=generator), expected)
        assert torch.equal(torch.rand(2), fastseed.random.uniform(key_of(0), (2,)))


def test_the_innermost_block_draws():
    with keyed("outer"):
        first = torch.rand(2)
        with keyed("inner"):
            inner = torch.rand(2)
        second = torch.rand(2)
    for found, key in ((first, key_of(0, "outer")), (inner, key_of(0, "inner"))):
        assert torch.equal(found, fastseed.random.uniform(key, (2,)))
    assert torch.equal(second, fastseed.random.uniform(key_of(1, "outer"), (2,)))


def test_distributions_draw_through_these_functions():
    d = torch.distributions
    made = [
        d.Normal(0.0, 1.0), d.Uniform(0.0, 1.0), d.Bernoulli(0.5), d.Categorical(torch.ones(5)),
        d.Exponential(1.0), d.Geometric(0.5), d.Laplace(0.0, 1.0), d.Cauchy(0.0, 1.0),
        d.LogNormal(0.0, 1.0), d.Gumbel(0.0, 1.0),
        d.MultivariateNormal(torch.zeros(2), torch.eye(2)),
        d.VonMises(torch.tensor(0.0), torch.tensor(1.0)),
    ]  # fmt: skip
    first = run(lambda: [dist.sample((3,)) for dist in made])
    torch.manual_seed(9)
    assert all(map(torch.equal, run(lambda: [dist.sample((3,)) for dist in made]), first))


def test_an_overwritten_tensor_gives_no_gradient():
    w = torch.ones(3, requires_grad=True)
    with keyed("flow"):
        (w * 2).normal_().sum().backward()
    assert torch.equal(w.grad, torch.zeros(3))


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_checkpoints(use_reentrant):
    def inside(x):
        with keyed("in", 0):
            return functional.dropout(x, 0.5) * x

    def gradient(function):
        x = torch.ones(64, requires_grad=True)
        function(x).sum().backward()
        return x.grad

    expected = gradient(inside)
    found = gradient(lambda x: checkpoint(inside, x, use_reentrant=use_reentrant))
    assert torch.equal(found, expected) and 0 < (found == 0).sum() < 64
    x = torch.ones(4, requires_grad=True)
    with pytest.raises(RuntimeError, match="open the block inside the function"), keyed("out"):
        checkpoint(lambda x: functional.dropout(x, 0.5) * x, x, use_reentrant=use_reentrant)


def test_a_backward_pass_does_not_draw_in_a_block_around_it():
    class Draws(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * torch.rand(2)

    x = torch.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="a generator of torch has moved"), keyed("flow"):
        Draws.apply(x).sum().backward()


def test_reseed_in_a_block():
    wrong = r"leave the block before fastseed\.reseed"
    with keyed("flow"):
        torch.rand(1)
        fastseed.reseed(1, 0, 5)
        with pytest.raises(RuntimeError, match=wrong):
            torch.rand(1)


def test_a_generator_that_moves_is_noticed():
    with pytest.raises(RuntimeError, match="a generator of torch has moved"), keyed("flow"):
        torch.ops.aten.bernoulli_(torch.empty(3), 0.5)
    with keyed("flow", 0):
        functional.scaled_dot_product_attention(HEADS, HEADS, HEADS)
        torch.rand(2)


def test_another_thread_is_not_in_the_block():
    drawn = []
    with keyed("flow"):
        state = torch.get_rng_state()
        thread = threading.Thread(target=lambda: drawn.append(run(lambda: torch.rand(2), "own")))
        thread.start()
        thread.join()
        assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(drawn[0], fastseed.random.uniform(key_of(0, "own"), (2,)))


def test_os_fork_in_a_block():
    def draw():
        with pytest.raises(RuntimeError, match="open one in the child"):
            torch.rand(1)

    with keyed("flow"):
        in_child(draw)


def test_a_block_of_this_process_is_not_left_as_one_that_was_inherited():
    with keyed("flow", 0):
        leave_inherited()
        drawn = torch.rand(2)
    assert torch.equal(drawn, run(lambda: torch.rand(2)))


def test_blocks_that_are_left_out_of_order():
    outer, inner = keyed("outer"), keyed("inner")
    outer.__enter__()
    inner.__enter__()
    with pytest.raises(RuntimeError, match="must be left before the blocks around it"):
        outer.__exit__(None, None, None)
    inner.__exit__(None, None, None)
    assert not torch.overrides._get_current_function_mode_stack()


def test_an_object_is_entered_once_at_a_time():
    block = keyed("flow", 0)
    with block:
        first = torch.rand(2)
        with pytest.raises(RuntimeError, match="a second time: call keyed again"):
            block.__enter__()
    with block:
        assert torch.equal(torch.rand(2), first)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("",), "name must be"),
        ((3,), "name must be"),
        (("x", -1), r"index must be in \[0, 549755813887\]"),
        (("x", 0.5), "index must be"),
    ],
)
def test_invalid_arguments(arguments, message):
    with pytest.raises((TypeError, ValueError), match=rf"fastseed\.random\.keyed: {message}"):
        keyed(*arguments)
    with pytest.raises((TypeError, ValueError), match="distinct_over must"):
        keyed("x", distinct_over=("nowhere",)).__enter__()


def test_before_init_and_reseed(monkeypatch):
    monkeypatch.setattr(context, "seeder", None)
    with pytest.raises(RuntimeError, match=r"call fastseed\.init"):
        keyed("x").__enter__()
    seeder = fastseed.Seeder(42, rank=0, world_size=1)
    monkeypatch.setattr(context, "seeder", seeder)
    with pytest.raises(RuntimeError, match=r"call fastseed.reseed\(task, epoch\) first"):
        keyed("x").__enter__()


def test_bad_arguments_of_a_function_count_nothing():
    with keyed("flow"):
        for call in (
            lambda: torch.rand(-1),
            lambda: torch.empty(3).normal_(0, -1),
            lambda: torch.randint(5, 5, (2,)),
            lambda: torch.multinomial(torch.zeros(3), 2),
            lambda: torch.multinomial(torch.ones(3), 4),
            lambda: torch.empty(3).geometric_(0.0),
            lambda: functional.dropout(ONES, 1.5),
            # after the draw
            lambda: functional.gumbel_softmax(ONES, dim=5),
            lambda: functional.dropout(ONES.clone().requires_grad_(), 0.5, inplace=True),
            lambda: torch.normal(torch.zeros(3), 1.0, out=torch.zeros(1).expand(3)),
            lambda: functional.scaled_dot_product_attention(HEADS, HEADS, ONES, dropout_p=0.5),
        ):
            with pytest.raises((TypeError, ValueError, RuntimeError, IndexError)):
                call()
        assert torch.equal(torch.rand(2), fastseed.random.uniform(key_of(0), (2,)))


def test_every_seeded_operator_of_torch_is_known():
    """A new one in torch has to get a row in docs/same-noise.md and a handler, or is unseen."""
    names = set()
    for full in torch._C._dispatch_get_all_op_names():
        base, _, overload = full.partition(".")
        if base.startswith("aten::"):
            packet = getattr(torch.ops.aten, base[6:])
            operator = getattr(packet, overload or "default", None)
            if operator is not None and torch.Tag.nondeterministic_seeded in operator.tags:
                names.add(base[6:])
    page = (paths.ROOT / "docs/same-noise.md").read_text()
    assert len(names) > 60
    assert {name for name in names if f"`{name}`" not in page} <= {*UNSEEN.split()}


def test_ranks_draw_distinct_numbers_unless_told_otherwise():
    own, shared = [], []
    for rank in range(3):
        fastseed.init(42, rank=rank, world_size=3)
        fastseed.reseed(1, 0, 3)
        own.append(run(lambda: torch.rand(4, 2)))
        with keyed("flow", distinct_over=()):
            shared.append(torch.rand(4, 2))
        assert torch.equal(own[-1], fastseed.random.uniform(key_of(0), (4, 2)))
    assert not any(torch.equal(own[i], own[i - 1]) for i in range(3))
    assert all(torch.equal(whole, shared[0]) for whole in shared)
    # a part of the whole, for what has no DTensor
    part = fastseed.random.Shard(global_shape=(4, 2), offsets=(2, 0))
    key = key_of(0, rank=fastseed.SHARED)
    rows = fastseed.random.uniform_(torch.empty(2, 2), key, shard=part)
    assert torch.equal(rows, shared[0][2:])


@pytest.mark.parametrize("name", ["uniform_", "normal_", "kaiming_uniform_"])
def test_a_substitute_for_a_function_of_init_draws_the_same(name, monkeypatch):
    """Libraries put their own in torch's place while they build a model."""
    original = getattr(torch.nn.init, name)
    with keyed("whole", 0):
        expected = [original(torch.empty(3, 4)), torch.rand(2)]

    def substitute(tensor, *args, **options):
        return original(tensor, *args, **options)

    substitute.__name__ = name
    monkeypatch.setattr(torch.nn.init, name, substitute)
    with keyed("whole", 0):
        found = [getattr(torch.nn.init, name)(torch.empty(3, 4)), torch.rand(2)]
    assert all(map(torch.equal, found, expected))


def test_the_mode_of_another_library_is_no_block():
    with keyed("x", index=0) as block, torch.device("cpu"):
        assert blocks.open_keyed() == [block]
