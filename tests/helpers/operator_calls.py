"""Calls of the operators of ``helpers.operators`` on a path, and what they write."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch

from fastseed._backend import derive
from fastseed._backend.ops.register import REFERENCES, writing
from fastseed._backend.reference import digest as reference
from helpers.operators import OPERATORS, Arguments
from helpers.simd import set_simd

CPU_PATHS = ("reference", *derive.simd_paths())


def digest_in_numpy(sums: torch.Tensor, memory: list[torch.Tensor], plan: torch.Tensor) -> None:
    """Write the digests of whole tensors."""
    for i, (tensor, key) in enumerate(zip(memory, plan[:, 0].tolist(), strict=True)):
        found = 0
        if tensor.numel():
            rows = tensor.reshape(-1, *tensor.shape[-1:] or (1,)).view(torch.uint8).numpy()
            step = -(-rows.shape[1] // reference.GROUP)
            found = reference.digest_rows(key, rows, 0, step)
        sums[i] = torch.from_numpy(np.array([found % 2**64, found >> 64], np.uint64))


IN_NUMPY: dict[str, Callable[..., Any]] = {
    **REFERENCES,
    "digest": writing(1, digest_in_numpy),
    "advise_huge_pages": lambda out: None,
}


def overload(name: str) -> Any:
    """Return an operator."""
    return getattr(torch.ops.fastseed, name).default


def on_path(name: str, path: str) -> Callable[..., Any]:
    """Return the operator of a backend: the reference, an instruction set, or a device."""
    if path == "reference":
        return IN_NUMPY[name]
    if path in CPU_PATHS:
        set_simd(path)
    return overload(name)


def mapped(change: Callable[[torch.Tensor], Any], arguments: Iterable[Any]) -> Arguments:
    """Return arguments with every tensor changed, those in lists too."""
    return [
        change(a) if isinstance(a, torch.Tensor)
        else mapped(change, a) if isinstance(a, list) else a
        for a in arguments
    ]  # fmt: skip


def tensors_of(arguments: Iterable[Any]) -> list[torch.Tensor]:
    """Return every tensor of arguments."""
    found: list[torch.Tensor] = []
    mapped(found.append, arguments)
    return found


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """Return the bytes of a tensor, so that NaN payloads and signed zeros count."""
    return tensor.detach().cpu().reshape(-1).contiguous().view(torch.uint8)


def written(name: str, arguments: Arguments) -> list[torch.Tensor]:
    """Return the tensors that a call has written, those in lists too."""
    return tensors_of(arguments[i] for i in OPERATORS[name].written)


def is_plan(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is the plan of a digest, which stays on the CPU."""
    return tensor.shape[1:] == (7,) and tensor.dtype == torch.int64


def moved(arguments: Arguments, device: str) -> Arguments:
    """Return copies of the same strides on a device."""

    def copy(tensor: torch.Tensor) -> torch.Tensor:
        where = {"dtype": tensor.dtype, "device": "cpu" if is_plan(tensor) else device}
        return torch.empty_strided(tensor.shape, tensor.stride(), **where).copy_(tensor)

    return mapped(copy, arguments)


def in_order(rows: torch.Tensor) -> torch.Tensor:
    """Return rows of two numbers in their order."""
    rows = rows[rows[:, 1].argsort(stable=True)]
    return rows[rows[:, 0].argsort(stable=True)]


def answer(name: str, function: Callable[..., Any], arguments: Arguments) -> list[torch.Tensor]:
    """Call, and return the bytes that were written or returned."""
    result = function(*arguments)
    found = written(name, arguments) if result is None else [result]
    if name == "sampling_race":
        found = [found[0].nan_to_num(-7.0), *found[1:]]
    if name == "perturb":  # rows of lists may have any order
        found = [in_order(t) if t.dtype == torch.int64 else t for t in found]
    return [bits(tensor) for tensor in found]
