"""Tensors of one step that ``fastseed.debug.Watch`` keeps, and by how much two of them differ."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from .._utils import regular_file
from .._utils.validation import check_instance, check_int


class ElementDifference(NamedTuple):
    """The elements in which two tensors of one shape and dtype differ."""

    differing: int
    numel: int
    first: tuple[int, ...]  # the index of the first one
    ulps: int | None  # the largest distance in representable numbers; None for NaNs and integers
    nans: int  # how many are NaN in at least one tensor

    def __str__(self) -> str:
        text = f"in {self.differing:,} of {self.numel:,} elements"
        if self.ulps is not None:
            text += f" by {'at most ' * (self.differing > 1)}{self.ulps:,} ulp"
        return text + (f", {self.nans:,} with NaN" if self.nans else "")


def check_keep(function: str, keep: object, last: int) -> Mapping[int, str]:
    """Return ``keep`` if it is a mapping from steps to prefixes of names."""
    if keep is None:
        return {}
    found = check_instance(function, "keep", keep, Mapping, "a mapping from steps to names or None")
    for step, name in found.items():
        check_int(function, "a step of keep", step, 0, last)
        check_instance(function, f"keep[{step}]", name, str, "the name of a module or tensor")
    return dict(found)


def is_kept(keep: Mapping[int, str], step: int, key: str) -> bool:
    """Return whether a tensor of this group and name is kept at a step."""
    prefix, name = keep.get(step), key.partition(" ")[2]
    return prefix is not None and (
        prefix in ("", name) or name.startswith((f"{prefix}.", f"{prefix} #"))
    )


def save(folder: Path, rank: int, step: int, tensors: Mapping[str, torch.Tensor]) -> None:
    """Write the tensors of a step, or remove what an earlier recording kept of it."""
    path = _path(folder, rank, step)
    if not tensors:
        path.unlink(missing_ok=True)
        return
    temporary = path.with_suffix(".tmp")
    try:
        torch.save(dict(tensors), temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def load(folder: Path, rank: int, step: int, key: str) -> torch.Tensor | None:
    """Return a tensor that was kept, by group and name; None if it was not."""
    path = _path(folder, rank, step)
    if not path.exists():
        return None
    try:
        regular_file.open_file(path).close()  # torch would wait for a pipe
        found = torch.load(path, map_location="cpu", weights_only=True, mmap=True).get(key)
    except Exception as error:  # torch raises many types for files of other kinds
        raise ValueError(
            f"fastseed.debug.bisect: {str(path)!r} must be a file of Watch(keep=...), not damaged"
        ) from error
    return check_instance(
        "debug.bisect", f"{key!r} in {str(path)!r}", found, (torch.Tensor, type(None)), "a tensor"
    )


def _path(folder: Path, rank: int, step: int) -> Path:
    return folder / f"rank-{rank}-step-{step}.pt"


def measure(a: torch.Tensor, b: torch.Tensor) -> ElementDifference:
    """Return the difference of two tensors of one shape and dtype whose bits differ."""
    shape, floating = a.shape, a.is_floating_point() or a.is_complex()
    if a.is_complex():
        a, b = (torch.view_as_real(x.resolve_conj()) for x in (a, b))
    nan = (a.isnan() | b.isnan()).numpy() if floating else np.zeros(a.shape, bool)
    left, right = _ordered(a), _ordered(b)
    distance = np.maximum(left, right) - np.minimum(left, right)
    differs = distance != 0
    where = differs if a.shape == shape else differs.any(-1)  # the two halves of a complex number
    counted = distance[differs & ~nan]
    return ElementDifference(
        differing=int(where.sum()),
        numel=where.size,
        first=tuple(int(i) for i in np.argwhere(where)[0]) if where.any() else (),
        ulps=int(counted.max()) if floating and counted.size else None,
        nans=int((differs & nan).sum()),
    )


def _ordered(tensor: torch.Tensor) -> npt.NDArray[np.unsignedinteger]:
    """Return each element's position among all values of its dtype, as unsigned integers."""
    bits = 8 * tensor.element_size()
    kind = {8: torch.uint8, 16: torch.int16, 32: torch.int32, 64: torch.int64}[bits]
    words = tensor.contiguous().view(kind).numpy().view(f"u{bits // 8}")
    if not tensor.is_floating_point():
        return words
    sign = words.dtype.type(1 << (bits - 1))
    return np.where(words & sign, ~words, words | sign)
