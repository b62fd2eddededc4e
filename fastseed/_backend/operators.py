"""Defining the registered operators, ``torch.ops.fastseed``: schema, fake and NumPy implementation.

The schemas are here and in the modules that use this one, nowhere else: the native library
implements them (csrc/ops). Without it the NumPy implementations do, on the CPU. All but ``dropout``
write into their first one or two arguments and return nothing.
"""
# Annotations are read at run time: no `from __future__ import annotations` here.

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from . import native, op_checks

Implementation = Callable[..., object]

IMPLEMENTATIONS: dict[str, Implementation] = {}
"""The operators in NumPy, by name, with their checks."""


def pair(low: int, high: int) -> tuple[int, int]:
    """Return two integers of a schema as the unsigned ones with the same bits."""
    return low & 2**64 - 1, high & 2**64 - 1


def checked(name: str, function: Implementation, names: Sequence[str], written: int) -> None:
    """Keep ``function`` as the NumPy implementation of an operator.

    Its arguments are checked first; a write to the first ``written`` of them is counted after it.
    """

    def call(*arguments: object) -> None:
        named = dict(zip(names, arguments, strict=True))
        op_checks.check(name, named, names[:written])
        # operators are below autograd, and write to inference tensors too
        with torch.inference_mode():
            function(*(v.detach() if isinstance(v, Tensor) else v for v in arguments))
        for tensor in arguments[:written]:
            if isinstance(tensor, Tensor) and not tensor.is_inference():
                torch.autograd.graph.increment_version(tensor)

    IMPLEMENTATIONS[name] = call


def fake(*given: object) -> None:
    """Do what the operators do to tensors without data: nothing."""
    devices = {t.device for t in given if isinstance(t, Tensor)}
    if len(devices) > 1:
        raise RuntimeError(f"fastseed: tensors must be on one device, got {devices}")


def define(name: str, schema: str, on_fakes: Implementation = fake) -> None:
    """Define an operator, if the native library or a NumPy implementation is there for it."""
    reference = IMPLEMENTATIONS.get(name)
    if native.kernels is None and reference is None:
        return
    native.library.define(name + schema)  # type: ignore[no-untyped-call]
    if native.kernels is None:
        native.library.impl(name, reference, "CPU")  # type: ignore[no-untyped-call]
    torch.library.register_fake(f"fastseed::{name}", on_fakes, lib=native.library)


def operator(*written: str) -> Callable[[Callable[..., None]], Implementation]:
    """Define the operator of a NumPy implementation, which writes its first arguments."""

    def register(function: Callable[..., None]) -> Implementation:
        name, code = function.__name__, function.__code__
        checked(name, function, code.co_varnames[: code.co_argcount], len(written))
        schema = torch.library.infer_schema(function, mutates_args=written)
        define(name, schema.replace("SymInt", "int"))
        return IMPLEMENTATIONS[name]

    return register
