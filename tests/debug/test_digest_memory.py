"""Tensors whose memory is not theirs, or not there."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.distributed._functional_collectives import AsyncCollectiveTensor

from fastseed.debug.tree_digest import digest


class Wrapper(torch.Tensor):
    """As quantised weights are: another tensor inside, and no memory of its own."""

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
def test_digest_refuses_what_has_no_memory(kind):
    """Reading it would end the process, or read what lies behind it."""
    with pytest.raises(TypeError, match=r"must hold tensors with data, got .* at 'w'"):
        digest({"w": _without_memory(kind)})


def test_digest_takes_what_lies_at_the_end_of_its_memory():
    tensor = torch.arange(12.0).reshape(3, 4)
    for view in (tensor[1:], tensor[2], tensor[:, 3], tensor[2, 3], tensor.t()[2:]):
        assert digest(view) == digest(view.clone())


def test_digest_waits_for_a_collective():
    tensor = torch.arange(100.0)
    assert digest(AsyncCollectiveTensor(tensor)) == digest(tensor)
