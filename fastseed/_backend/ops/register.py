"""Define an operator: schema, fake and NumPy reference, which runs without the native library."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .. import native

Reference = Callable[..., Any]

REFERENCES: dict[str, Reference] = {}
"""The NumPy reference of each operator, by the operator's name."""


def fake(*_: object) -> None:
    """Do what the operators do to tensors without data: nothing."""


def writing(count: int, function: Reference) -> Reference:
    """Make a reference that writes to its first ``count`` arguments count that for autograd."""

    def call(*arguments: object) -> None:
        # operators are below autograd, and write to inference tensors too
        with torch.inference_mode():
            function(*map(_detached, arguments))
        for written in arguments[:count]:
            for tensor in written if isinstance(written, Sequence) else (written,):
                if isinstance(tensor, Tensor) and not tensor.is_inference():
                    torch.autograd.graph.increment_version(tensor)

    return call


def _detached(value: object) -> object:
    if isinstance(value, Sequence):
        return [v.detach() if isinstance(v, Tensor) else v for v in value]
    return value.detach() if isinstance(value, Tensor) else value


def define(
    schema: str,
    reference: Reference | None = None,
    on_fakes: Reference = fake,
    *,
    is_native: bool = True,
) -> Any:
    """Define an operator and return what calls it; None if nothing here implements it."""
    name = schema.partition("(")[0]
    if reference is not None:
        written = schema.count("!")
        reference = REFERENCES[name] = writing(written, reference) if written else reference
    if native.kernels is None and reference is None:
        return None
    native.library.define(schema)  # type: ignore[no-untyped-call]
    if native.kernels is None or not is_native:
        native.library.impl(name, reference, "CPU")  # type: ignore[no-untyped-call]
    torch.library.register_fake(f"fastseed::{name}", on_fakes, lib=native.library)
    return getattr(torch.ops.fastseed, name).default


def direct(name: str) -> Callable[..., bool]:
    """Return what runs an operator on (an output, numbers), sooner than torch's dispatcher does.

    Integers count modulo 2**64. It returns False, and has done nothing, where the operator has to
    do it: the output is no ordinary tensor of the CPU, or a mode, a transform or a profiler sees
    operators. For code that is neither compiled nor traced.
    """
    if native.generators is None:
        return lambda *_: False
    at = native.generators.direct_operators().index(name)
    return functools.partial(native.generators.call_directly, at)


def operator(schema: str) -> Callable[[Reference], Any]:
    """Replace a reference by the operator of its name, with these arguments and results."""
    return lambda function: define(function.__name__ + schema, function)
