"""Tensors without memory of their own, and hostile ones: an error, never a crash."""

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.distributed._functional_collectives import AsyncCollectiveTensor

from fastseed.digest.tensors import _table
from fastseed.digest.trees import compare, digest


class Wrapper(torch.Tensor):
    """A subclass with another tensor inside and no memory of its own, as for quantised weights."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        out = function(*(getattr(a, "inner", a) for a in args), **(kwargs or {}))
        return cls(out) if isinstance(out, torch.Tensor) else out


def _without_memory(kind):
    tensor = torch.ones(6, 1000)
    turned = tensor.t()
    if kind == "wrapper":
        return Wrapper(tensor)
    if kind == "fake":
        with FakeTensorMode():
            return torch.ones(6, 1000)
    tensor.untyped_storage().resize_(0 if kind.startswith("freed") else 23999)
    return turned if kind.endswith("turned") else tensor


@pytest.mark.parametrize(
    "kind", ["freed", "freed, turned", "cut", "cut, turned", "fake", "wrapper"]
)
def test_digest_refuses_tensors_without_memory(kind):
    """Reading it would end the process, or read other memory."""
    tensor = _without_memory(kind)
    for call in (digest, lambda tree: compare(tree, {"w": torch.ones(1)})):
        with pytest.raises(TypeError, match=r"the tensor at 'w' must be one with memory of"):
            call({"w": tensor})


def test_digest_where_tensors_have_no_values_leaves_later_ones_right():
    tensors = {f"{i}": torch.full((3,), float(i)) for i in range(5)}
    with (
        FakeTensorMode(allow_non_fake_inputs=True),
        pytest.raises(RuntimeError, match="must not be called in a mode"),
    ):
        digest(tensors)
    digest_before = digest({**tensors, "more": 1})
    _table.cache_clear()
    assert digest({**tensors, "more": 1}) == digest_before


def test_digest_of_views_at_the_end_of_memory():
    tensor = torch.arange(12.0).reshape(3, 4)
    for view in (tensor[1:], tensor[2], tensor[:, 3], tensor[2, 3], tensor.t()[2:]):
        assert digest(view) == digest(view.clone())


def test_digest_waits_for_a_collective():
    tensor = torch.arange(100.0)
    assert digest(AsyncCollectiveTensor(tensor)) == digest(tensor)


def hostile():
    """Tensors that an operator might read without checking."""
    yield torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    yield torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
    yield torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8)
    yield torch.ones(3, device="meta")
    yield torch.eye(3).to_sparse()
    freed = torch.ones(4, dtype=torch.complex64)
    freed.untyped_storage().resize_(0)
    yield freed.conj()
    yield torch.nn.Parameter(freed)


@pytest.mark.parametrize("index", range(7))
def test_hostile_tensors_are_refused(index):
    tensor = list(hostile())[index]
    for tree in (tensor, {"w": tensor}, [tensor]):
        with pytest.raises(TypeError, match=r"^fastseed\.debug\.digest: "):
            digest(tree)


def test_tensors_of_function_transforms_are_refused_or_digested():
    for transform in (torch.vmap, torch.func.grad):

        def inside(x):
            with pytest.raises(TypeError, match=r"fastseed\.debug\.digest: the tensor at ''"):
                digest(x)
            return x.sum()

        transform(inside)(torch.ones(3))


def test_a_parameter_that_is_not_yet_initialized_is_named():
    with pytest.raises(
        TypeError, match=r"^fastseed.debug.digest: the tensor at 'weight' must be ini"
    ):
        digest(torch.nn.LazyLinear(3))
