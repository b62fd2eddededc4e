"""In-place fills: the values of the specification, whole or in parts, in tensors of any kind."""

import itertools
import math
import warnings

import pytest
import torch
from helpers.draws import CALLS, expected
from helpers.support import LOW64, freed, needs_native, snapshot
from hypothesis import given, settings
from hypothesis import strategies as st

from fastseed.random import Shard, inplace

KEY = 0x81B1E1C0FFEE0DD5_F00DCAFE12345678


def key_tensor(key: int = KEY) -> torch.Tensor:
    return torch.tensor([key & LOW64, key >> 64], dtype=torch.uint64)


def whole(name: str, dtype: torch.dtype, numel: int, key: int = KEY):
    """The first values of the draw of a name, by the reference."""
    return expected(FUNCTIONS[name], dtype, key_tensor(key)[None], numel, 0, torch.tensor([0]))[0]


FUNCTIONS = {  # in-place forms, and the functions of the same values
    **{
        f"{name}_": name for name in ("exponential", "trunc_normal", "bernoulli", "randint", "bits")
    },
    "uniform_": "uniform",
    "normal_": "normal",
}
CASES = [(name, d) for name, form in FUNCTIONS.items() for f, d in CALLS if f == form]
each_case = pytest.mark.parametrize(("name", "dtype"), CASES, ids=lambda v: str(v))


def fill(tensor, name, key=KEY, **more):
    arguments = CALLS[FUNCTIONS[name], tensor.dtype]
    filled = getattr(inplace, name)(tensor, key, **arguments, **more)
    assert filled is tensor
    return tensor


# ---------------------------------------------------------------- values


@each_case
def test_values_are_those_of_the_reference(name, dtype):
    """For every shape; with an integer key and a tensor in turn."""
    for i, shape in enumerate([(), (0,), (1,), (7,), (3, 5), (2, 0, 3), (301, 17)]):
        expected = whole(name, dtype, math.prod(shape)).view(shape)
        key = KEY if (i + dtype.itemsize) % 2 else key_tensor()
        assert fill(torch.zeros(shape, dtype=dtype), name, key).equal(expected), shape


def boxes(shape, cuts):
    """The grid of (offsets, shape) that cutting at these places makes."""
    axes = [list(itertools.pairwise([0, *sorted(c), n])) for c, n in zip(cuts, shape, strict=True)]
    for box in itertools.product(*axes):
        yield tuple(a for a, _ in box), tuple(b - a for a, b in box)


@st.composite
def cut_shapes(draw):
    shape = tuple(draw(st.lists(st.integers(0, 6), max_size=5)))
    return shape, [draw(st.lists(st.integers(0, n), max_size=2)) for n in shape]


@each_case
@settings(max_examples=4, deadline=None)
@given(cut_shapes(), st.integers(0, 2**128 - 1))
def test_parts_make_the_whole(name, dtype, cut, key):
    shape, cuts = cut
    together = torch.zeros(shape, dtype=dtype)
    for offsets, size in boxes(shape, cuts):
        part = torch.zeros(size, dtype=dtype)
        fill(part, name, key, shard=Shard(shape, offsets))
        together[tuple(slice(o, o + n) for o, n in zip(offsets, size, strict=True))] = part
    unsharded = fill(torch.zeros(shape, dtype=dtype), name, key)
    assert together.equal(unsharded)
    assert unsharded.equal(whole(name, dtype, math.prod(shape), key).view(shape))


@pytest.mark.cuda
@each_case
def test_parts_of_tensors_that_nobody_could_hold(name, dtype, device):
    """Indices far beyond 2**32, and rows that are one element."""
    shape, offsets = (2**20, 3, 2**30), (2**20 - 2, 1, 2**30 - 3)
    part = torch.zeros((2, 2, 3), dtype=dtype, device=device)
    part = fill(part, name, shard=Shard(shape, offsets)).cpu()
    for i, j in itertools.product(range(2), range(2)):
        start = ((offsets[0] + i) * 3 + offsets[1] + j) * 2**30 + offsets[2]
        row = fill(torch.zeros(3, dtype=dtype), name, shard=Shard((2**52,), (start,)))
        assert part[i, j].equal(row)
        for k in range(3):
            one = fill(torch.zeros(1, dtype=dtype), name, shard=Shard((2**52,), (start + k,)))
            assert one.item() == row[k].item()


# ---------------------------------------------------------------- any tensor

STRIDED = {
    "transposed": lambda: torch.zeros(8, 6).t(),
    "every other column": lambda: torch.zeros(6, 16)[:, ::2],
    "columns": lambda: torch.zeros(6, 20)[:, 3:11],
    "offset": lambda: torch.zeros(49)[1:].view(6, 8),
    "channels last": lambda: torch.zeros(2, 3, 2, 4).to(memory_format=torch.channels_last),
    "negated view": lambda: torch._neg_view(torch.zeros(6, 8)),
    "imaginary part": lambda: torch.zeros(6, 8, dtype=torch.complex64).conj().imag,
}


@pytest.mark.cuda
@pytest.mark.parametrize("make", STRIDED.values(), ids=STRIDED.keys())
def test_any_strides(make, device):
    with torch.device(device):
        tensor, other = make(), make()
    expected = whole("normal_", torch.float32, 48).view(tensor.shape)
    assert fill(tensor, "normal_", key_tensor().to(device)).cpu().equal(expected)
    part = other[1:, 2:] if other.dim() == 2 else other[1:, :, 1:]
    offsets = (1, 2) if part.dim() == 2 else (1, 0, 1, 0)
    fill(part, "normal_", shard=Shard(other.shape, offsets))
    assert part.cpu().equal(expected[tuple(map(slice, offsets, (None,) * 4))])


def test_nothing_else_is_written():
    base = torch.full((6, 20), -1.0)
    fill(base[:, 3:11], "uniform_")
    assert (base[:, 3:11] >= 0).all() and (base[:, :3] == -1).all() and (base[:, 11:] == -1).all()
    assert base[:, 3:11].equal(whole("uniform_", torch.float32, 48).view(6, 8))


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.zeros(3).expand(4, 3),
        lambda: torch.zeros(1).expand(5),
        lambda: torch.zeros(9).as_strided((4, 4), (1, 1)),
        lambda: torch.zeros(9).as_strided((3, 4), (2, 1)),
        lambda: torch.zeros(9).unfold(0, 4, 1),
    ],
)
def test_overlapping_memory_is_refused(make):
    with pytest.raises(ValueError, match="normal_: tensor must not overlap itself, got the strid"):
        fill(make(), "normal_")
    assert not make().any()


def ragged():
    return torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)])


@pytest.mark.parametrize(
    ("make", "shard", "says"),
    [
        (lambda: torch.eye(3).to_sparse(), None, r"must be strided, got torch\.sparse_coo"),
        (lambda: freed(torch.zeros(8)), None, "must have memory for all of its elements"),
        (ragged, None, "must be strided, got a nested tensor"),
        (ragged, Shard((4,), (0,)), "must be strided, got a nested tensor"),
    ],
)
def test_memory_of_other_kinds_is_refused(make, shard, says):
    with pytest.raises(ValueError, match=f"normal_: tensor {says}"):
        fill(make(), "normal_", shard=shard)


def test_axes_of_one_and_of_none_overlap_nothing():
    assert fill(torch.zeros(3).as_strided((3, 1), (1, 0)), "normal_").all()
    assert fill(torch.zeros(8).as_strided((1, 4), (0, 2)), "normal_").all()
    fill(torch.zeros(3).expand(0, 3), "normal_")


def test_parameters_are_filled_without_gradients():
    parameter = torch.nn.Parameter(torch.zeros(6, 8))
    before = parameter._version
    fill(parameter, "normal_")
    assert parameter.requires_grad and parameter.is_leaf and parameter.grad_fn is None
    assert parameter.equal(whole("normal_", torch.float32, 48).view(6, 8))
    assert parameter._version > before


@pytest.mark.parametrize("strided", [False, True])
def test_autograd_notices(strided):
    x = torch.ones(4, 4, requires_grad=True)
    y = (x * 1.0).t() if strided else x * 1.0
    z = (y * y).sum()
    fill(y, "uniform_")
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.backward()


def test_inference_mode():
    with torch.inference_mode():
        filled = fill(torch.zeros(5), "uniform_")
    assert filled.tolist() == whole("uniform_", torch.float32, 5).tolist()


@needs_native
def test_inference_tensors_are_written_outside_of_the_mode_too():
    with torch.inference_mode():
        tensor = torch.zeros(5)
    fill(tensor, "uniform_")
    assert tensor.tolist() == whole("uniform_", torch.float32, 5).tolist()


def test_meta_tensors_stay_without_data():
    for name, dtype in CASES:
        assert fill(torch.zeros(3, 4, dtype=dtype, device="meta"), name).is_meta


def test_no_generator_is_used():
    before = snapshot()
    for name, dtype in CASES:
        fill(torch.zeros(10, dtype=dtype), name)
    assert snapshot() == before


KEYS = torch.zeros(1, 2, dtype=torch.uint64)


@pytest.mark.parametrize(
    ("function", "arguments", "more", "error", "says"),
    [
        ("normal_", ([0.0], KEY), {}, TypeError, "tensor must be a torch.Tensor, got "),
        ("normal_", (0, True), {}, TypeError, "key must be an integer or a tensor"),
        ("normal_", (0, KEYS), {}, ValueError, r"key must be of shape \(2,\), got \(1, 2\)"),
        ("normal_", (0, KEY), {"shard": (4, 4)}, TypeError, "shard must be a fastseed.random.Sha"),
        ("normal_", (0, KEY), {"shard": Shard((4,), (0,))}, ValueError, "shard must hold"),
        ("normal_", (0, KEY, 0.0, -1.0), {}, ValueError, "std must"),
        ("trunc_normal_", (0, KEY, 0.0, -1.0), {}, ValueError, "std must"),
        ("randint_", (0, KEY, 0, 5), {}, ValueError, "dtype must"),
    ],
)
def test_errors_name_what_is_wrong(function, arguments, more, error, says):
    tensor = torch.full((8,), 7.0)
    first = arguments[0] if arguments[0] != 0 else tensor
    with pytest.raises(error, match=rf"^fastseed\.random\.{function}: {says}"):
        getattr(inplace, function)(first, *arguments[1:], **more)
    assert (tensor == 7).all() and tensor._version == 0


# ---------------------------------------------------------------- torch.compile


def compiled(function, *arguments, backend):
    torch._dynamo.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.compile(function, fullgraph=True, backend=backend)(*arguments)


@pytest.mark.costly("compiles")
def test_compiled_fills_are_the_eager_ones():
    def all_of_them(tensors):
        return [fill(x, name) for (name, _), x in zip(CASES, tensors, strict=True)]

    tensors = [torch.zeros(5, 8, dtype=dtype) for _, dtype in CASES]
    for (name, dtype), found in zip(
        CASES, compiled(all_of_them, tensors, backend="aot_eager"), strict=True
    ):
        assert found.equal(whole(name, dtype, 40).view(5, 8)), (name, dtype)


@pytest.mark.cuda
@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_compiled_fills_of_any_kind(backend, device):
    expected = whole("normal_", torch.float32, 48).view(6, 8)

    def step(contiguous, transposed, part, key):
        inplace.normal_(contiguous, key, 1.0, 2.0)
        inplace.normal_(transposed, KEY, 1.0, 2.0)
        inplace.normal_(part, key, 1.0, 2.0, shard=Shard((6, 8), (1, 2)))
        return contiguous * 2, transposed + 0, part + 0

    with torch.device(device):
        tensors = torch.zeros(6, 8), torch.zeros(8, 6).t(), torch.zeros(4, 5)
    found = compiled(step, *tensors, key_tensor().to(device), backend=backend)
    doubled, transposed, part = (t.cpu() for t in found)
    assert doubled.equal(expected * 2) and transposed.equal(expected)
    assert part.equal(expected[1:5, 2:7])
    assert tensors[0].cpu().equal(expected) and tensors[1].cpu().equal(
        expected
    )  # the arguments, in place


def test_compiled_fills_follow_a_key_that_changes():
    torch._dynamo.reset()
    step = torch.compile(lambda x, k: inplace.uniform_(x, k), fullgraph=True, backend="aot_eager")
    for key in (KEY, 1, 2**127):
        found = step(torch.zeros(9), key_tensor(key))
        assert found.equal(whole("uniform_", torch.float32, 9, key))
    for n in (10, 11, 12):  # shapes that change, too
        assert step(torch.zeros(n), key_tensor()).equal(whole("uniform_", torch.float32, n))
