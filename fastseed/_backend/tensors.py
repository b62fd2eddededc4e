"""Argument checks for tensors: dtype, layout, shape, device, and the memory behind them.

Memory is not checked in compiled code, under ``vmap``, and of fake and meta tensors.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch.nn.parameter import UninitializedTensorMixin  # type: ignore[attr-defined]

from .._utils.validation import check_int, type_error, value_error
from . import native, private_torch
from .reference.scalar import signed

_INTEGERS = (
    *(torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.uint8, torch.uint16, torch.uint32, torch.uint64),
)

INTEGER_OF_SIZE = {2: torch.int16, 4: torch.int32, 8: torch.int64}
"""The signed integers that hold the bits of an element of so many bytes."""


def check_device(function: str, device: object) -> torch.device:
    """Return a ``device`` argument as a ``torch.device``; None is the CPU."""
    try:
        return torch.device("cpu" if device is None else cast(str, device))
    except TypeError:
        raise type_error(function, "device", "a device", device) from None
    except (RuntimeError, ValueError):  # an integer of more than 64 bits is a ValueError
        raise value_error(function, "device", "a device of this torch", device) from None


def check_supported(function: str, argument: str, device: torch.device) -> torch.device:
    """Return ``device`` if the operators run on it."""
    if device.type in ("cpu", "meta") or (device.type == "cuda" and native.has_cuda):
        return device
    rule = "on the CPU or a CUDA device"
    if not native.has_cuda:
        rule = "on the CPU, as the CUDA kernels are not used (see fastseed.build_info())"
    raise ValueError(f"fastseed.{function}: {argument} must be {rule}, got {device}")


def check_dtype(function: str, argument: str, value: object, *dtypes: torch.dtype) -> torch.Tensor:
    """Return ``value`` if it is a tensor of one of some dtypes."""
    if not isinstance(value, torch.Tensor):
        raise type_error(function, argument, "a tensor", value)
    if value.dtype not in dtypes:
        names = ", ".join(map(str, dtypes))
        raise TypeError(
            f"fastseed.{function}: {argument} must be of dtype {names}, got {value.dtype}"
        )
    return value


def check_tensor(
    function: str,
    argument: str,
    value: object,
    dtype: torch.dtype,
    shape: tuple[int, ...] | None = None,
    device: torch.device | None = None,
) -> torch.Tensor:
    """Return ``value`` if it is a dense tensor of ``dtype``, with memory, of a shape and device."""
    tensor = check_dtype(function, argument, value, dtype)
    check_dense(function, argument, tensor)
    if shape is not None and tuple(tensor.shape) != shape:
        raise value_error(function, argument, f"of shape {shape}", tuple(tensor.shape))
    if device is not None and not (
        tensor.device.type == device.type and device.index in (None, tensor.device.index)
    ):
        raise ValueError(
            f"fastseed.{function}: {argument} must be on device {device}, got {tensor.device}"
        )
    return tensor


def check_dense(function: str, argument: str, tensor: torch.Tensor) -> None:
    """ValueError for a sparse or nested tensor, and for one whose memory was freed."""
    if isinstance(tensor, UninitializedTensorMixin):
        raise ValueError(
            f"fastseed.{function}: {argument} must be initialized, got a parameter without a shape"
        )
    if tensor.layout != torch.strided or tensor.is_nested:
        kind = "a nested tensor" if tensor.is_nested else str(tensor.layout)
        raise ValueError(f"fastseed.{function}: {argument} must be strided, got {kind}")
    if not has_memory(tensor):
        raise ValueError(
            f"fastseed.{function}: {argument} must have memory for all of its elements, "
            f"got shape {tuple(tensor.shape)} on a storage that is smaller (freed?)"
        )


def check_memory(function: str, argument: str, tensor: torch.Tensor) -> None:
    """ValueError for a tensor that the operators cannot write."""
    check_dense(function, argument, tensor)
    check_supported(function, argument, tensor.device)
    check_writable(function, argument, tensor)


def check_data(function: str, argument: str, tensor: torch.Tensor) -> None:
    """ValueError for a meta tensor, whose elements can be neither read nor copied."""
    if tensor.is_meta:
        raise ValueError(f"fastseed.{function}: {argument} must have data, got a meta tensor")


def check_out(
    function: str, out: object, shape: tuple[int, ...], dtype: torch.dtype
) -> torch.Tensor:
    """Return ``out`` if a result of ``shape`` and ``dtype`` can be written to it."""
    tensor = check_tensor(function, "out", out, dtype, shape)
    check_writable(function, "out", tensor)
    if tensor.requires_grad and torch.is_grad_enabled():
        raise ValueError(
            f"fastseed.{function}: out must not require grad where gradients are recorded, "
            "got a tensor that does"
        )
    return tensor


def check_writable(function: str, argument: str, tensor: torch.Tensor) -> None:
    """ValueError where two elements may share memory."""
    if not tensor.is_contiguous():
        axes = [axis for axis in zip(tensor.stride(), tensor.shape, strict=True) if axis[1] != 1]
        for i, (stride, _) in enumerate(axes):
            # from the first to the last element along the axes whose steps are not longer
            reach = sum(t * (n - 1) for j, (t, n) in enumerate(axes) if t <= stride and j != i)
            if stride <= reach and tensor.numel():
                raise ValueError(
                    f"fastseed.{function}: {argument} must not overlap itself, got the strides "
                    f"{tensor.stride()} for the shape {tuple(tensor.shape)}"
                )


def check_apart(function: str, argument: str, value: object, *others: torch.Tensor) -> None:
    """ValueError for a tensor on the storage of one of ``others``, which a call writes or reads."""
    if not (isinstance(value, torch.Tensor) and value.layout == torch.strided and _is_plain(value)):
        return
    storage = private_torch.storage_of(value)
    if any(storage == private_torch.storage_of(other) for other in others):
        rule = "a tensor that does not share memory with the keys and positions"
        raise value_error(function, argument, rule, value)


def check_values(function: str, argument: str, values: torch.Tensor, top: int) -> None:
    """ValueError unless integers are in [0, top]; not checked where reading them would wait."""
    if values.numel() == 0 or not is_readable(values):
        return
    least, most = (int(v) for v in values.aminmax())
    if least < 0 or most > top:
        raise value_error(function, argument, f"in [0, {top}]", least if least < 0 else most)


def as_int64(
    function: str, argument: str, values: Any, n: int, low: int, high: int, device: torch.device
) -> torch.Tensor:
    """Return n integers as contiguous int64 with the same 64 bits, on the device they are on.

    Those of a sequence must be in [low, high]; those of a tensor are not read.
    """
    if not isinstance(values, torch.Tensor):
        is_one = getattr(values, "ndim", 1) == 0 or not hasattr(values, "__iter__")
        if is_one or isinstance(values, (set, frozenset)):  # which has no order
            raise type_error(function, argument, "a tensor or a sequence of integers", values)
        checked = [
            check_int(function, f"{argument}[{i}]", v, low, high) for i, v in enumerate(values)
        ]
        words = list(map(signed, checked))
        values = torch.tensor(words, dtype=torch.int64, device="cpu")
    elif values.dtype not in _INTEGERS:
        raise TypeError(
            f"fastseed.{function}: {argument} must be integers, got dtype {values.dtype}"
        )
    values = check_tensor(function, argument, values, values.dtype, (n,)).contiguous()
    if device.type != "meta":
        check_data(function, argument, values)
    same_bits = values.dtype == torch.uint64
    found: torch.Tensor = values.view(torch.int64) if same_bits else values.to(torch.int64)
    return found


def is_whole(tensor: torch.Tensor) -> bool:
    """Return whether an ordinary tensor is one piece of CPU memory that needs no further check."""
    return (
        type(tensor) is torch.Tensor
        and tensor.is_cpu
        and tensor.layout is torch.strided
        and not tensor.is_nested
        and not tensor.requires_grad
        and not private_torch.is_wrapped(tensor)
        and tensor.is_contiguous()
        and not tensor.is_neg()
        and not private_torch.is_zero(tensor)
        and not private_torch.has_tangents()
        and tensor.untyped_storage().nbytes()
        >= (tensor.storage_offset() + tensor.numel()) * tensor.element_size()
    )


def has_memory(tensor: torch.Tensor) -> bool:
    """Return whether the storage of a strided tensor holds all of its elements."""
    if not _is_plain(tensor) or tensor.numel() == 0:
        return True
    if private_torch.is_zero(tensor):
        return False
    try:
        reach = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
        end = tensor.storage_offset() + 1 + reach
        return tensor.untyped_storage().nbytes() >= end * tensor.element_size()
    except (RuntimeError, NotImplementedError):  # a kind of tensor that has no storage
        return False


def is_expanded(tensor: torch.Tensor) -> bool:
    """Return whether elements of a tensor share memory, as those of ``Tensor.expand`` do."""
    return any(
        size > 1 and step == 0 for size, step in zip(tensor.shape, tensor.stride(), strict=True)
    )


def bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return the bytes of a dense tensor in one row: its memory, where this is contiguous."""
    return tensor.resolve_conj().resolve_neg().contiguous().view(-1).view(torch.uint8)


def has_data(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is neither a meta nor a fake tensor."""
    return not (tensor.is_meta or private_torch.is_fake(tensor))


def is_readable(tensor: torch.Tensor) -> bool:
    """Return whether the values of a tensor can be read now, without waiting for a device."""
    return tensor.is_cpu and _is_plain(tensor)


def _is_plain(tensor: torch.Tensor) -> bool:
    """Return whether a tensor's memory can be read: not in compiled code, under vmap or if fake."""
    if torch.compiler.is_compiling() or private_torch.is_fake(tensor):
        return False
    return not private_torch.is_wrapped(tensor)
