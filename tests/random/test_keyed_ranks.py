"""Blocks of ``random.keyed`` on real ranks: a DTensor is one tensor, and ranks differ or share."""

import pytest
import torch
import torch.distributed as dist
from helpers.meshes import shared_by
from helpers.parallel import layouts
from helpers.ranks import ranks
from torch.distributed import tensor as dtensors
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.nn import functional

import fastseed
from fastseed.random import keyed

SHAPE = (7, 6)  # which 2 and 4 ranks cut unevenly
CALLS = {
    "randn_like": torch.randn_like,
    "rand_like": lambda x: torch.rand_like(x, dtype=torch.float64),
    "randint_like": lambda x: torch.randint_like(x, -9, 9),
    "normal": lambda x: torch.normal(x, 2 * x),
    "bernoulli": lambda x: torch.bernoulli(x / 2),
    "uniform_": lambda x: x.clone().uniform_(-1, 1),
    "normal_": lambda x: x.clone().normal_(),
    "bernoulli_": lambda x: x.clone().bernoulli_(0.3),
    "exponential_": lambda x: x.clone().exponential_(2.0),
    "log_normal_": lambda x: x.clone().log_normal_(),
    "cauchy_": lambda x: x.clone().cauchy_(),
    "geometric_": lambda x: x.clone().geometric_(0.3),
    "random_": lambda x: x.clone().random_(0, 100),
    "dropout": lambda x: functional.dropout(x, 0.5),
    "dropout2d": lambda x: functional.dropout2d(x, 0.5),
    "alpha_dropout": lambda x: functional.alpha_dropout(x, 0.5, True),
}


def start(**where):
    fastseed.init(42, **where)
    fastseed.reseed(1, 0, 3)


def draw_like_dtensors():
    start()
    whole = torch.ones(SHAPE)
    for mesh, placements in layouts(SHAPE):
        tensor = distribute_tensor(whole, mesh, placements, src_data_rank=None)
        for name, call in CALLS.items():
            with keyed("flow", 0, distinct_over=()):
                expected = call(whole)
            with keyed("flow", 0):
                call(whole)
                own = torch.rand(3)
            with keyed("flow", 0):
                found = call(tensor)
                assert torch.equal(torch.rand(3), own), "this rank's own draws go on"
            assert torch.equal(found.full_tensor(), expected), (name, placements)
        x = tensor.detach().requires_grad_()
        with keyed("flow", 0):
            functional.dropout(x, 0.5).sum().backward()
        with keyed("flow", 0, distinct_over=()):
            assert torch.equal(x.grad.full_tensor(), functional.dropout(whole, 0.5))


@pytest.mark.parametrize("size", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_draws_of_dtensors_are_those_of_one_process(size):
    ranks(size, draw_like_dtensors)


def make_dtensors():
    start()
    ones = torch.ones(SHAPE)
    for mesh, placements in layouts(SHAPE):
        options = {"device_mesh": mesh, "placements": placements}
        state = torch.get_rng_state()

        def calls(options=options):
            return [
                dtensors.rand(*SHAPE, **options),
                dtensors.randn(SHAPE, dtype=torch.bfloat16, **options),
            ]

        with keyed("flow", 0):
            found = calls()
            torch.rand(2)  # of this rank
        with keyed("flow", 0, distinct_over=()):
            expected = [torch.rand(*SHAPE), torch.randn(SHAPE, dtype=torch.bfloat16)]
        assert torch.equal(torch.get_rng_state(), state)
        for each, whole in zip(found, expected, strict=True):
            assert isinstance(each, DTensor) and tuple(each.placements) == tuple(placements)
            assert torch.equal(each.full_tensor(), whole)
        with keyed("flow", 0):
            assert torch.equal(dtensors.full(SHAPE, 3.0, **options).full_tensor(), 3 * ones)


@pytest.mark.parametrize("size", [2, 4])
def test_new_dtensors_are_those_of_one_process(size):
    ranks(size, make_dtensors)


def draw_in_compiled_code():
    start()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    x = distribute_tensor(torch.ones(SHAPE), mesh, [Shard(0)], src_data_rank=None)

    def layer(x):
        return functional.dropout(x, 0.5) * torch.rand_like(x)

    with keyed("flow", 0):
        expected = layer(x).full_tensor()
    with keyed("flow", 0):
        found = torch.compile(layer, backend="aot_eager")(x)
    assert torch.equal(found.full_tensor(), expected)


@pytest.mark.slow
def test_compiled_draws_of_dtensors():
    ranks(2, draw_in_compiled_code)


def draw_over(given, distinct_over):
    """A number of a block; ``given`` are the dimensions that ``init`` says, of all or by name."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    start(mesh=mesh, distinct_over=given)
    with keyed("flow", 0, distinct_over=distinct_over):
        return torch.rand(()).item()


@pytest.mark.parametrize(
    ("given", "distinct_over", "groups"),
    [
        (None, None, [[0], [1], [2], [3]]),
        (None, (), [[0, 1, 2, 3]]),
        (None, ("dp",), [[0, 1], [2, 3]]),
        (None, ("tp",), [[0, 2], [1, 3]]),
        (("dp",), None, [[0, 1], [2, 3]]),
        ({"flow": ("dp",)}, None, [[0, 1], [2, 3]]),
        ({"flow": ("dp",)}, ("dp",), [[0, 1], [2, 3]]),
    ],
)
def test_ranks_differ_over_the_dimensions_that_a_block_says(given, distinct_over, groups):
    assert shared_by(ranks(4, draw_over, given, distinct_over)) == groups
