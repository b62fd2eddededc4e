"""Which values of a logical tensor a part holds: against torch's own cutting of index tensors."""

import itertools
import math
from types import SimpleNamespace

import pytest
import torch
from helpers import parallel
from helpers.ranks import ranks
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, distribute_tensor
from torch.distributed.tensor import Shard as Cut
from torch.distributed.tensor.placement_types import _StridedShard

import fastseed
from fastseed.random import Shard, layout


def values(shape, pieces) -> torch.Tensor:
    """Return what a local tensor of ``shape`` holds, as operators read pieces; -1 where nothing."""
    out = torch.full(shape, -1)
    for box, sizes, strides, offset in pieces:
        view = out[box] if box else out
        assert (view == -1).all(), "pieces overlap"
        if not sizes:
            sizes, strides = (view.numel(),), (1,)
        assert strides[-1] == 1 and math.prod(sizes) == view.numel()
        found = torch.tensor(offset)
        for size, stride in zip(sizes, strides, strict=True):
            found = found[..., None] + torch.arange(size) * stride
        view.copy_(found.reshape(view.shape))
    return out


def indices(shape) -> torch.Tensor:
    return torch.arange(math.prod(shape)).view(shape)


BOXES = st.lists(
    st.integers(0, 5).flatmap(
        lambda n: st.tuples(st.integers(0, n), st.integers(0, n), st.just(n))
    ),
    max_size=5,
)


@given(BOXES)
def test_boxes(axes):
    low = [min(a, b) for a, b, _ in axes]
    high = [max(a, b) for a, b, _ in axes]
    shape = tuple(n for *_, n in axes)
    expected = indices(shape)[tuple(map(slice, low, high))]
    pieces = layout.of_shard("f", expected.shape, Shard(shape, low))
    assert torch.equal(values(expected.shape, pieces), expected)
    assert len(pieces) == (1 if expected.numel() else 0)


@pytest.mark.parametrize(
    ("shape", "shard", "error", "says"),
    [
        ((2,), ((4,), (0,)), TypeError, "shard must be a fastseed.random.Shard or None"),
        ((2,), Shard(4, (0,)), TypeError, "shard.global_shape must be a sequence of integers"),
        ((2,), Shard((4,), (0.0,)), TypeError, r"shard.offsets\[0\] must be an integer"),
        ((2,), Shard((4, True), (0, 0)), TypeError, r"shard.global_shape\[1\] must be an integer"),
        ((2,), Shard((4,), (-1,)), ValueError, r"shard.offsets\[0\] must be in \[0"),
        ((2,), Shard((4,), (3,)), ValueError, r"shard must hold a tensor of shape \(2,\), got"),
        ((2,), Shard((4, 4), (0, 0)), ValueError, "shard must hold"),
        ((2,), Shard((4,), (0, 0)), ValueError, "shard must hold"),
        ((0,), Shard((4,), (5,)), ValueError, "shard must hold"),
        ((1,), Shard((2**53 + 1,), (0,)), ValueError, r"at most 2\*\*53 elements"),
    ],
)
def test_shards_are_checked(shape, shard, error, says):
    with pytest.raises(error, match=rf"fastseed\.f: .*{says}"):
        layout.of_shard("f", shape, shard)


def dtensor(local, shape, mesh_shape, coordinate, placements, shard_order=None):
    """A stand-in with what :func:`layout.of_dtensor` reads of a ``DTensor``."""
    return SimpleNamespace(
        device_mesh=SimpleNamespace(
            size=lambda d: mesh_shape[d], get_coordinate=lambda: coordinate, shape=mesh_shape
        ),
        placements=placements,
        shape=torch.Size(shape),
        dim=lambda: len(shape),
        to_local=lambda: local,
        _spec=SimpleNamespace(shard_order=shard_order),
    )


def torch_cuts(whole, mesh_shape, coordinate, placements):
    """The local shard as torch itself cuts it, placement by placement."""
    for n, i, placement in zip(mesh_shape, coordinate, placements, strict=True):
        if not isinstance(placement, Replicate):
            whole = placement._split_tensor(whole, n, with_padding=False, contiguous=False)[0][i]
    return whole


@st.composite
def layouts(draw, strided):
    shape = tuple(draw(st.lists(st.integers(0, 9), min_size=1, max_size=4)))
    mesh = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    dims = st.integers(0, len(shape) - 1)
    choices = [st.just(Replicate()), st.builds(Cut, dims)]
    if strided:
        choices.append(
            st.builds(lambda d, f: _StridedShard(d, split_factor=f), dims, st.integers(1, 4))
        )
    placements = tuple(draw(st.one_of(choices)) for _ in mesh)
    return shape, mesh, placements


@settings(deadline=None)
@given(layouts(strided=False))
def test_any_mesh_and_placements(mesh_layout):
    shape, mesh, placements = mesh_layout
    seen = torch.zeros(shape)
    for coordinate in itertools.product(*map(range, mesh)):
        expected = torch_cuts(indices(shape), mesh, coordinate, placements)
        given_ = dtensor(expected.clone(), shape, mesh, coordinate, placements)
        _, pieces = layout.of_dtensor("f", given_)
        assert torch.equal(values(expected.shape, pieces), expected)
        assert len(pieces) <= 1
        seen.view(-1)[expected.reshape(-1)] += 1
    repeats = math.prod(
        n for n, p in zip(mesh, placements, strict=True) if isinstance(p, Replicate)
    )
    assert (seen == repeats).all()


@settings(deadline=None)
@given(layouts(strided=True))
def test_strided_placements_left_to_right(mesh_layout):
    """Placements alone: factors that no order of cuts explains are read from left to right."""
    shape, mesh, placements = mesh_layout
    for coordinate in itertools.product(*map(range, mesh)):
        expected = torch_cuts(indices(shape), mesh, coordinate, placements)
        cuts = [
            [
                (d, mesh[d], coordinate[d], p)
                for d, p in enumerate(placements)
                if dim == getattr(p, "dim", None)
            ]
            for dim in range(len(shape))
        ]
        along = [
            layout._held_indices(n, length, cut, None)
            for n, length, cut in zip(shape, expected.shape, cuts, strict=True)
        ]
        assert torch.equal(values(expected.shape, layout.pieces(shape, along)), expected)


@settings(deadline=None)
@given(
    st.integers(1, 40),
    st.lists(st.integers(1, 4), min_size=2, max_size=3).flatmap(
        lambda mesh: st.tuples(st.just(tuple(mesh)), st.permutations(range(len(mesh))))
    ),
)
def test_strided_placements_stand_for_an_order_of_cuts(size, mesh_and_order):
    """FSDP2 on tensors that tensor parallelism has cut, evenly or not."""
    mesh, order = mesh_and_order
    placements = []
    for d in range(len(mesh)):
        place = order.index(d)
        factor = math.prod(mesh[e] for e in order[:place] if e > d)
        placements.append(_StridedShard(0, split_factor=factor) if factor > 1 else Cut(0))
    held = []
    for coordinate in itertools.product(*map(range, mesh)):
        expected = indices((size,))
        for d in order:
            expected = Cut(0)._split_tensor(expected, mesh[d], with_padding=False)[0][coordinate[d]]
        _, pieces = layout.of_dtensor(
            "f", dtensor(expected.clone(), (size,), mesh, coordinate, tuple(placements))
        )
        assert torch.equal(values(expected.shape, pieces), expected)
        held.append(expected)
    assert torch.cat(held).sort().values.equal(indices((size,)))


def test_an_explicit_order_of_cuts():
    entry = SimpleNamespace(tensor_dim=0, mesh_dims=(1, 0))
    for coordinate in itertools.product(range(2), range(3)):
        expected = indices((10,)).chunk(3)[coordinate[1]].chunk(2)[coordinate[0]]
        given_ = dtensor(expected, (10,), (2, 3), coordinate, (Cut(0), Cut(0)), (entry,))
        assert values(expected.shape, layout.of_dtensor("f", given_)[1]).equal(expected)


def test_regular_pieces_are_one_grid():
    """Rows that lie apart at even distances take one launch."""
    placements = (_StridedShard(0, split_factor=4), Replicate())
    local = torch.empty(8, 5)
    _, pieces = layout.of_dtensor("f", dtensor(local, (16, 5), (2, 4), (1, 0), placements))
    assert [piece[1:] for piece in pieces] == [((4, 2, 1, 5), (20, 5, 0, 1), 10)]


def test_irregular_runs_are_as_many_grids_as_they_need():
    runs = [(0, 2), (4, 2), (8, 2), (11, 2), (14, 1), (16, 3), (19, 0)]
    pieces = layout.pieces((20,), [runs])
    assert [piece.sizes for piece in pieces] == [(3, 2), (1, 2), (1, 1), (1, 3)]
    held = torch.cat([torch.arange(first, first + count) for first, count in runs])
    assert values(held.shape, pieces).equal(held)


def test_a_rank_outside_the_mesh_has_nothing_to_fill():
    _, pieces = layout.of_dtensor("f", dtensor(torch.empty(0), (4,), (2,), None, (Cut(0),)))
    assert pieces == []


def test_sums_have_no_elements():
    with pytest.raises(ValueError, match=r"fastseed\.f: tensor must have no placements but"):
        layout.of_dtensor("f", dtensor(torch.empty(2), (4,), (2, 2), (0, 0), (Cut(0), Partial())))


@pytest.mark.parametrize("local", [(3,), (2, 1)])
def test_a_local_shard_of_another_shape_is_refused(local):
    with pytest.raises(ValueError, match=r"local shape that its placements say, got \("):
        layout.of_dtensor("f", dtensor(torch.empty(local), (4,), (2,), (0,), (Cut(0),)))


KEY = 0x81B1E1C0FFEE0DD5_F00DCAFE12345678
FILLS = {
    "uniform_": (torch.float32, ()),
    "normal_": (torch.bfloat16, (0.5, 2.0)),
    "exponential_": (torch.float64, (3.0,)),
    "bernoulli_": (torch.uint8, (0.25,)),
    "randint_": (torch.int64, (-5, 2**40)),
}


def same(a, b):
    """Bit for bit: dtypes that have no equality of their own are compared as bytes."""
    a, b = (x.detach().contiguous().view(torch.uint8) for x in (a, b))
    return torch.equal(a, b)


def fill_layouts():
    for shape in ((13, 6), (3, 2)):
        strided = [_StridedShard(0, split_factor=2), Cut(0)]
        for mesh, along in (*parallel.layouts(shape), (parallel.mesh(2, 2), strided)):
            for name, (dtype, arguments) in FILLS.items():
                fill, zeros = getattr(fastseed.random, name), torch.zeros(shape, dtype=dtype)
                tensor = distribute_tensor(zeros, mesh, along, src_data_rank=None)
                fill(tensor, KEY, *arguments)
                alone = fill(zeros.clone(), KEY, *arguments)
                assert same(tensor.full_tensor(), alone), (along, shape, name)


def test_gathered_tensors_are_those_of_one_process():
    ranks(4, fill_layouts)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(12, 22)
        self.down = nn.Linear(22, 12)


def fill_module(parallelise):
    alone, model = Block(), Block()
    parallelise(model)
    assert any(isinstance(p, DTensor) for p in model.parameters())
    for each in (alone, model):
        for i, (name, parameter) in enumerate(sorted(each.named_parameters())):
            assert fastseed.random.normal_(parameter, KEY + i, std=0.02) is parameter, name
    whole = dict(alone.named_parameters())
    for name, parameter in model.named_parameters():
        full = parameter.full_tensor() if isinstance(parameter, DTensor) else parameter
        assert same(full, whole[name])


@pytest.mark.parametrize("name", ("fsdp", "tensor_parallel", "fsdp_over_tensor_parallel", "hybrid"))
def test_parameters_of_a_parallel_module_are_those_of_one_process(name):
    ranks(4, fill_module, getattr(parallel, name))


def fill_sum():
    tensor = DTensor.from_local(torch.zeros(3), init_device_mesh("cpu", (4,)), [Partial()])
    rule = r"random\.normal_: tensor must have no placements but Replicate"
    with pytest.raises(ValueError, match=rule):
        fastseed.random.normal_(tensor, KEY)
    assert not tensor.to_local().any()


def test_gathered_sums_are_refused_and_stay():
    ranks(4, fill_sum)


def initialize_by_torch():
    torch.manual_seed(1)
    tensor = distribute_tensor(torch.zeros(16, 4), init_device_mesh("cpu", (4,)), [Cut(0)])
    return nn.init.normal_(tensor).full_tensor()


def test_initialization_by_torch_itself_depends_on_the_mesh():
    """The reason for these fills: on the CPU, torch repeats the numbers of one shard on each."""
    torch.manual_seed(1)
    found = ranks(4, initialize_by_torch)[0]
    assert not found.equal(nn.init.normal_(torch.zeros(16, 4)))
    first, *others = found.chunk(4)
    assert all(other.equal(first) for other in others)
