"""The registered operator of exact sums, ``torch.ops.fastseed.exact_sum``.

``.operators`` says where its implementations are, ``.reference.exact_sum`` what an accumulator is.
"""
# Annotations are read at run time: no `from __future__ import annotations` here.

from collections.abc import Sequence

import torch
from torch import Tensor

from .._utils.validation import value_error
from . import op_checks, operators, tensors
from .reference import exact_sum as reference

SIZE = reference.SIZE
MOST_VALUES = 2**60  # of a tensor

_OP = "exact_sum"


def exact_sum_in_numpy(total: Tensor, values: Sequence[Tensor], factors: Sequence[Tensor]) -> None:
    """Add all elements of all values, or with factors their products, and carry.

    Before and after it the limbs of ``total`` but the last are in [0, 2**32): accumulators of
    2**30 ranks can be added as integers before the next call carries.
    """
    _check(total, values, factors)
    with torch.inference_mode():
        sums = total.detach().numpy()
        for i, tensor in enumerate(values):
            other = factors[i] if factors else None
            reference.add(sums, _flat(tensor), None if other is None else _flat(other))
        reference.normalize(sums)
    if not total.is_inference():
        torch.autograd.graph.increment_version(total)


def _flat(tensor: Tensor) -> reference.F64:
    array: reference.F64 = tensor.detach().to(torch.float64).reshape(-1).numpy()
    return array


def _check(total: Tensor, values: Sequence[Tensor], factors: Sequence[Tensor]) -> None:
    """Refuse what csrc/ops/exact_sum_args.h refuses."""
    tensors.check_tensor(_OP, "total", total, torch.int64, (SIZE,))
    if len(factors) not in (0, len(values)):
        raise value_error(_OP, "factors", f"none or {len(values)} tensors", len(factors))
    for name, given in (("values", values), ("factors", factors)):
        for i, tensor in enumerate(given):
            argument = f"{name}[{i}]"
            tensors.check_dtype_of(_OP, argument, tensor, op_checks.REALS)
            tensors.check_dense(_OP, argument, tensor)
            if not tensor.is_contiguous():
                raise value_error(_OP, argument, "contiguous", tensor.stride())
            if (tensor.dtype, tensor.numel()) != (values[i].dtype, values[i].numel()):
                rule = f"of the dtype and size of values[{i}]"
                raise value_error(_OP, argument, rule, (tensor.dtype, tensor.numel()))
            if tensor.device != total.device:
                raise value_error(_OP, argument, f"on device {total.device}", tensor.device)
            tensors.check_writable(_OP, "total", total, **{argument: tensor})
    if not total.is_contiguous():
        raise value_error(_OP, "total", "contiguous", total.stride())


def _fake(total: Tensor, values: Sequence[Tensor], factors: Sequence[Tensor]) -> None:
    operators.fake(total, *values, *factors)


operators.IMPLEMENTATIONS[_OP] = exact_sum_in_numpy
operators.define(_OP, "(Tensor(a0!) total, Tensor[] values, Tensor[] factors) -> ()", _fake)
