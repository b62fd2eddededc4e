"""Noise of diffusers pipelines from streams: each image has its own, alone and in any batch.

from fastseed.integrations.diffusers import use_streams

bank = fastseed.random.StreamBank(len(seeds), "image", "cuda")
bank.reseed_from_seeds(seeds)
with use_streams():
    images = pipeline(prompts, generator=bank).images
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

import torch

from .._backend import tensors
from .._utils.validation import type_error, value_error
from ..random import StreamBank
from . import _common

_NAME = "integrations.diffusers.randn_tensor"
_torch_utils: Any = _common.import_framework("diffusers.utils.torch_utils", "diffusers")
_randn_tensor: Any = _torch_utils.randn_tensor


def randn_tensor(
    shape: tuple[int, ...] | list[int],
    generator: object = None,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
) -> torch.Tensor:
    """Return normally distributed noise; with a bank, row k from stream k alone.

    The function of the same name in diffusers, which also takes a
    ``fastseed.random.StreamBank``. The numbers do not depend on the batch size or the device.

    Args:
        shape: the sizes of the result; the first one is the number of images.
        generator: a bank with a stream for each image, which advances; or what diffusers takes.
        device: where the result is, by default the CPU. The numbers are made where the bank is.
        dtype: float16, bfloat16, float32 or float64. Default: torch's.
        layout: torch.strided.

    Returns:
        A new tensor.

    Raises:
        TypeError, ValueError: an argument is invalid; the bank has not advanced.
        RuntimeError: the bank has no keys.

    Examples:
        >>> import diffusers
        >>> from fastseed.integrations.diffusers import randn_tensor
        >>> bank = fastseed.random.StreamBank(3, "image")
        >>> bank.reseed_from_seeds([7, 8, 9])
        >>> alone = fastseed.random.StreamBank(1, "image")
        >>> alone.reseed_from_seeds([8])
        >>> images = randn_tensor((3, 4, 8, 8), bank)
        >>> bool((randn_tensor((1, 4, 8, 8), alone)[0] == images[1]).all())
        True
    """
    if not isinstance(generator, StreamBank):
        found: torch.Tensor = _randn_tensor(shape, generator, device, dtype, layout)
        return found
    if layout not in (None, torch.strided):
        raise value_error(_NAME, "layout", "torch.strided with a bank", layout)
    if not isinstance(shape, (tuple, list)) or not shape:
        raise type_error(_NAME, "shape", "a tuple of sizes, at least one", shape)
    where = tensors.check_available(_NAME, "device", tensors.check_device(_NAME, device))
    images, *sizes = shape
    if images != len(generator):
        rule = f"of as many images as the bank has streams, {len(generator)}"
        raise value_error(_NAME, "shape", rule, tuple(shape))
    return generator.normal(tuple(sizes), dtype=dtype).to(where)


@contextlib.contextmanager
def use_streams() -> Iterator[None]:
    """Let pipelines and schedulers of diffusers take a StreamBank as their ``generator``.

    Inside, ``randn_tensor`` of the modules of diffusers that are imported is ``randn_tensor``,
    in all threads: what diffusers takes is passed to its own function. Blocks may not overlap in
    two threads, since the first that ends ends both.

    Examples:
        >>> import diffusers.utils.torch_utils
        >>> from fastseed.integrations.diffusers import use_streams
        >>> bank = fastseed.random.StreamBank(2, "image")
        >>> bank.reseed_from_seeds([7, 8])
        >>> with use_streams():
        ...     diffusers.utils.torch_utils.randn_tensor((2, 4), generator=bank).shape
        torch.Size([2, 4])
    """
    _replace(_randn_tensor, randn_tensor)
    try:
        yield
    finally:
        _replace(randn_tensor, _randn_tensor)


def _replace(old: object, new: object) -> None:
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "diffusers" and vars(module).get("randn_tensor") is old:
            vars(module)["randn_tensor"] = new
