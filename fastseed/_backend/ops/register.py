"""Define an operator: schema, fake and NumPy reference, which runs without the native library."""
# Annotations are read at run time: no `from __future__ import annotations` here.

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
    name: str, schema: str, reference: Reference | None = None, on_fakes: Reference = fake
) -> Any:
    """Define an operator and return what calls it; None if nothing here implements it."""
    if reference is not None:
        REFERENCES[name] = reference
    if native.kernels is None and reference is None:
        return None
    native.library.define(name + schema)  # type: ignore[no-untyped-call]
    if native.kernels is None:
        native.library.impl(name, reference, "CPU")  # type: ignore[no-untyped-call]
    torch.library.register_fake(f"fastseed::{name}", on_fakes, lib=native.library)
    return getattr(torch.ops.fastseed, name).default


def operator(*written: str) -> Callable[[Reference], Any]:
    """Replace a reference, which writes its first arguments, by the operator of its name."""

    def register(function: Reference) -> Any:
        schema = torch.library.infer_schema(function, mutates_args=written)
        reference = writing(len(written), function)
        return define(function.__name__, schema.replace("SymInt", "int"), reference)

    return register
