"""Operators that run without torch's dispatcher: the same bits, and not where it would do more."""

import contextlib
import ctypes

import pytest
import torch
from helpers.operator_calls import overload
from helpers.operators import DRAWS, OPERATORS, draw, keys
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad

import fastseed
from fastseed._backend import native
from fastseed._backend.ops.draws import DIRECT_DRAW
from fastseed._backend.ops.keys import DERIVE

pytestmark = pytest.mark.skipif(native.generators is None, reason="needs _generators")
KEY = (2**64 - 3, 12345)
WHOLE = [(name, dtype) for name, kinds in DRAWS.items() for dtype in kinds]


@pytest.mark.parametrize(("name", "dtype"), WHOLE)
def test_a_draw_gives_the_bits_of_its_operator_and_counts_one_write(name, dtype):
    rest = DRAWS[name][dtype]
    for n in (0, 1, 3, 64, 4097, 70_001):
        out, _, _, *layout = draw(dtype, rest, 1, n)
        given = torch.tensor([KEY], dtype=torch.uint64)
        expected = torch.zeros_like(out)
        overload(f"draw_{name}")(expected, given, None, *layout)
        version = out._version
        assert DIRECT_DRAW[name](out, *KEY, *rest)
        assert torch.equal(out, expected) and out._version == version + 1, n


@pytest.mark.parametrize("name", ["derive_keys", "derive_seeds"])
def test_derived_words_are_those_of_the_operator(name):
    for out, *numbers in (*OPERATORS[name].samples(), *OPERATORS[name].sizes()):
        expected = out.clone()
        overload(name)(expected, *numbers)
        assert DERIVE[name][1](out, *(number % 2**64 for number in numbers))
        assert torch.equal(out, expected), numbers


def with_a_tangent():
    return forward_ad.make_dual(torch.zeros(4), torch.ones(4))


def freed():
    tensor = torch.zeros(4)
    tensor.untyped_storage().resize_(8)
    return tensor


def of_a_subclass():
    return torch.zeros(4).as_subclass(type("Mine", (torch.Tensor,), {}))


LEFT = {
    "has a tangent": with_a_tangent,
    "has half of its memory": freed,
    "is of a subclass": of_a_subclass,
    "is on meta": lambda: torch.zeros(4, device="meta"),
    "is sparse": lambda: torch.zeros(4).to_sparse(),
    "has steps": lambda: torch.zeros(8)[::2],
    "is negative lazily": lambda: torch._neg_view(torch.zeros(4)),
    "is zero without memory": lambda: torch._efficientzerotensor(4),
    "is none": lambda: [0.0] * 4,
}


@pytest.mark.parametrize("why", LEFT)
def test_what_is_no_ordinary_tensor_is_left_to_the_operator(why):
    with forward_ad.dual_level():
        assert not DIRECT_DRAW["normal"](LEFT[why](), *KEY, 0.0, 1.0)


SEEN = {
    "a fake mode": FakeTensorMode,
    "a dispatch mode": torch.utils._python_dispatch.TorchDispatchMode,
    "a profiler": torch.profiler.profile,
}


@pytest.mark.parametrize("by", SEEN)
def test_where_operators_are_seen_they_run(by):
    tensor = torch.zeros(4)
    with SEEN[by]():
        done = DIRECT_DRAW["normal"](tensor, *KEY, 0.0, 1.0)
    assert not done and not tensor.any()
    assert DIRECT_DRAW["normal"](tensor, *KEY, 0.0, 1.0) and tensor.all()


def test_a_profiler_counts_draws_and_they_are_the_same():
    alone = fastseed.random.normal(7, (5,))
    with torch.profiler.profile() as profile:
        assert torch.equal(fastseed.random.normal(7, (5,)), alone)
        assert torch.equal(fastseed.random.normal_(torch.empty(5), 7), alone)
    events = [event for event in profile.events() if event.name == "fastseed::draw_normal"]
    assert len(events) == 2


@pytest.mark.parametrize("derive", [fastseed.derive_keys, fastseed.derive_seeds])
def test_a_profiler_counts_what_is_derived_and_it_is_the_same(derive):
    fastseed.init(2**64 - 1, rank=0, world_size=1)
    alone = derive("a", 3, task=1)
    with torch.profiler.profile() as profile:
        assert torch.equal(derive("a", 3, task=1), alone)
    names = [event.name for event in profile.events()]
    assert names.count(f"fastseed::{derive.__name__}") == 1


def test_a_transform_sees_the_operator():
    seen = []

    def draw_one(x):
        seen.append(DIRECT_DRAW["normal"](torch.zeros(4), *KEY, 0.0, 1.0))
        return x

    torch.vmap(draw_one)(torch.zeros(3))
    torch.func.functionalize(draw_one)(torch.zeros(3))
    torch.jit.trace(draw_one, torch.zeros(3), check_trace=False)
    assert seen == [False] * 3


def test_a_parameter_is_filled_without_a_gradient():
    parameter = torch.nn.Parameter(torch.zeros(4))
    assert DIRECT_DRAW["normal"](parameter, *KEY, 0.0, 1.0)
    assert parameter.is_leaf and parameter.grad_fn is None and parameter._version == 1


@pytest.mark.parametrize("grad", [torch.no_grad, torch.inference_mode, contextlib.nullcontext])
def test_ordinary_tensors_of_any_mode_are_filled(grad):
    expected = fastseed.random.normal(7, (5,))
    with grad():
        tensor = torch.zeros(5)
        assert DIRECT_DRAW["normal"](tensor, 7, 0, 0.0, 1.0)
    assert torch.equal(tensor, expected)
    assert DIRECT_DRAW["normal"](tensor, 7, 0, 0.0, 1.0)  # also an inference tensor, outside


@pytest.fixture
def without_the_module():
    """Take away how the module counts writes: the last field of the table in interface.h."""
    field = torch.ops.fastseed.loop_table() + 6 * 8
    hook = ctypes.c_void_p.from_address(ctypes.c_void_p.from_address(field).value)
    before, hook.value = hook.value, None
    yield
    hook.value = before


def test_without_the_module_operators_of_torch_count_a_write(without_the_module):
    key = torch.tensor([KEY], dtype=torch.uint64)
    with torch.inference_mode():
        theirs = torch.zeros(5)
    counted = {}
    for name, tensor in (("theirs", theirs), ("ours", torch.zeros(5))):
        with torch.autograd.profiler.profile() as profile:
            overload("draw_normal")(tensor, key, None, [], [], 0, 0.0, 1.0)
        counted[name] = any(event.name == "aten::transpose_" for event in profile.function_events)
    # torch would take milliseconds to describe why it cannot count that of an inference tensor
    assert counted == {"theirs": False, "ours": True}
    assert tensor._version == 1 and torch.equal(theirs, tensor)


@pytest.mark.parametrize(
    ("numbers", "error"),
    [
        ((*KEY, 0.0), TypeError),
        ((*KEY, 0.0, 1.0, 2.0), TypeError),
        ((*KEY, 0.0, "1"), TypeError),
        ((*KEY, None, 1.0), TypeError),
    ],
)
def test_wrong_numbers_are_refused_and_nothing_is_written(numbers, error):
    tensor = torch.zeros(4)
    with pytest.raises(error):
        DIRECT_DRAW["normal"](tensor, *numbers)
    with pytest.raises(RuntimeError, match="must be of dtype"):
        DIRECT_DRAW["normal"](keys(1), *KEY, 0.0, 1.0)
    assert not tensor.any() and tensor._version == 0
