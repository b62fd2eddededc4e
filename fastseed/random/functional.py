"""Random numbers from keys, on the device of the key.

Value j of a row is a function of (key, position, j) that ``docs/spec/random.md`` specifies: a
longer row begins with the values of a shorter one. A key is a 128-bit integer as
``fastseed.derive_key`` returns it, or (2,) torch.uint64, [lo, hi]: its position is 0. A
``StreamBank`` has a position for each of its streams, which a draw moves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeGuard

import numpy as np
import torch

from .._backend import private_torch, tensors
from .._backend.ops.draws import DIRECT_DRAW, DRAW
from .._backend.reference.scalar import signed
from .._utils import validation
from . import bank, distributions
from .bank import Streams
from .distributions import MAX_WORDS, Distribution

_SIZES = (int, np.integer, torch.SymInt)
_CPU = torch.device("cpu")
_UINT64 = np.dtype("<u8")
MAX_KEY = 2**128 - 1

Shape = Sequence[int] | int
Key = int | torch.Tensor
KeyOrStreams = int | torch.Tensor | Streams


def uniform(
    key: KeyOrStreams,
    shape: Shape,
    low: float = 0.0,
    high: float = 1.0,
    *,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """Return uniform random numbers in [low, high), never ``high`` itself.

    Args:
        key: a 128-bit integer, or (2,) torch.uint64; or many keys, (..., 2); or a ``StreamBank``,
            or ``bank[rows]``, whose streams then move on.
        shape: the shape for each key or stream.
        low: the lower bound, finite in ``dtype``.
        high: the upper bound, above ``low`` in ``dtype``; ``high - low`` is finite there.
        dtype: torch.float16, bfloat16, float32 or float64. Default: torch's.

    Returns:
        A new contiguous tensor: (..., *shape).

    Raises:
        TypeError, ValueError: an argument is invalid; no stream moves.
        RuntimeError: the bank has no keys yet.

    Examples:
        >>> fastseed.random.uniform(42, (3,))
        tensor([0.6130, 0.4686, 0.0732])
    """
    return _draw(distributions.uniform, "random.uniform", key, shape, dtype, low, high)


def normal(
    key: KeyOrStreams,
    shape: Shape,
    mean: float = 0.0,
    std: float = 1.0,
    *,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """Return normally distributed random numbers.

    The rest is as for ``fastseed.random.uniform``.

    Args:
        mean: the mean, finite in ``dtype``.
        std: the standard deviation, finite in ``dtype``, 0 or more.

    Examples:
        >>> import torch
        >>> keys = torch.tensor([[1, 0], [2, 0]], dtype=torch.uint64)
        >>> fastseed.random.normal(keys, (3,))
        tensor([[ 0.3804, -0.2963, -0.2492],
                [-1.3072,  0.0223, -0.1819]])
    """
    return _draw(distributions.normal, "random.normal", key, shape, dtype, mean, std)


def exponential(
    key: KeyOrStreams,
    shape: Shape,
    rate: float = 1.0,
    *,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """Return exponentially distributed random numbers, of mean 1 / rate.

    The rest is as for ``fastseed.random.uniform``.

    Args:
        rate: above 0, with 1 / rate finite and above 0 in ``dtype``.

    Examples:
        >>> fastseed.random.exponential(42, (3,), rate=2.0)
        tensor([0.2447, 0.3790, 1.3071])
    """
    return _draw(distributions.exponential, "random.exponential", key, shape, dtype, rate)


def trunc_normal(
    key: KeyOrStreams,
    shape: Shape,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    *,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """Return random numbers of the normal distribution within [a, b].

    The rest is as for ``fastseed.random.uniform``.

    Args:
        mean: the mean of the whole normal distribution, finite in ``dtype``.
        std: its standard deviation, above 0 and finite in ``dtype``.
        a: the lower bound, finite in ``dtype``.
        b: the upper bound, with at least 2**-64 of the normal distribution and one number of
            ``dtype`` between.

    Examples:
        >>> fastseed.random.trunc_normal(42, (4,), std=0.02, a=-0.04, b=0.04)
        tensor([-0.0225,  0.0324,  0.0035,  0.0187])
    """
    make, parameters = distributions.trunc_normal, (mean, std, a, b)
    return _draw(make, "random.trunc_normal", key, shape, dtype, *parameters)


def bernoulli(
    key: KeyOrStreams,
    shape: Shape,
    p: float = 0.5,
    *,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """Return ones (True) with probability ``p``, to within 2**-33, else zeros.

    The rest is as for ``fastseed.random.uniform``.

    Args:
        p: the probability of a one, in [0, 1].
        dtype: torch.bool, uint8, float16, bfloat16, float32 or float64, with the same values in
            each. Default: torch.bool.

    Examples:
        >>> fastseed.random.bernoulli(42, (4,))
        tensor([False,  True,  True,  True])
    """
    return _draw(distributions.bernoulli, "random.bernoulli", key, shape, dtype, p)


def randint(
    key: KeyOrStreams,
    shape: Shape,
    low: int,
    high: int,
    *,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """Return random integers of [low, high), each exactly as likely as any other.

    The rest is as for ``fastseed.random.uniform``.

    Args:
        low: the smallest value, an integer of ``dtype``.
        high: one more than the largest value, above ``low``; ``high - low`` is below 2**64, for
            torch.int32 below 2**32.
        dtype: torch.uint8, int32 or int64, with the same values in each. Default: torch.int64.

    Examples:
        >>> fastseed.random.randint(42, (5,), 1, 7)
        tensor([4, 3, 1, 3, 6])
    """
    return _draw(distributions.randint, "random.randint", key, shape, dtype, low, high)


def bits(
    key: KeyOrStreams,
    shape: Shape,
    *,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """Return random words of 32 or 64 bits: the stream itself.

    The rest is as for ``fastseed.random.uniform``.

    Args:
        dtype: torch.uint32, or uint64 (two words, the lower one first). Default: torch.uint32.

    Examples:
        >>> fastseed.random.bits(42, (2,)).tolist()
        [2632642643, 2012563771]
    """
    return _draw(distributions.bits, "random.bits", key, shape, dtype)


def torch_key(key: Key) -> torch.Tensor:
    """Return a key of ``torch.func._random`` for a key of fastseed.

    torch's functions by key are experimental; they draw other numbers than ``fastseed.random``
    does. A key of torch is a seed of 64 bits and a position: the seed is the low half of our key,
    as for an accelerator's generator, and the position is 0. So keys are equal more often than
    those of 128 bits: among n of them, n^2 / 2^65 pairs.

    Args:
        key: what ``fastseed.derive_key`` returns, or keys of ``derive_keys``, (..., 2)
            torch.uint64.

    Returns:
        Shape (2,) on the CPU, or that of ``key`` on its device, torch.uint64.

    Raises:
        TypeError, ValueError: an argument is invalid.
        RuntimeError: this torch has no ``torch.func._random``.

    Examples:
        >>> import fastseed, torch
        >>> fastseed.init(42)
        >>> key = fastseed.derive_key("noise", task=1)
        >>> if hasattr(torch.ops.aten, "_philox_normal_"):  # this torch has torch.func._random
        ...     words = fastseed.random.torch_key(key).tolist()
        ...     assert words == [key % 2**64, 0]
    """
    function = "random.torch_key"
    if not private_torch.has_random_by_key():
        raise RuntimeError(
            f"fastseed.{function}: needs a torch that draws by key (2.14 on the CPU), got "
            f"{torch.__version__}; fastseed.random.normal and its siblings do with every torch"
        )
    found = check_keys(function, "key", key, _CPU).clone()
    found.view(torch.int64)[..., 1] = 0
    return found


def _draw(
    make: Callable[..., Distribution],
    function: str,
    key: object,
    shape: object,
    dtype: torch.dtype | None,
    *parameters: object,
) -> torch.Tensor:
    is_plain = private_torch.is_plain_eager()
    if not is_plain:
        parameters = tuple(map(distributions.constant, parameters))
    distribution = make(function, dtype, *parameters)
    sizes, count = check_shape(function, shape, distribution.words)
    if is_plain and is_key(key):
        # one by one: torch takes longer to read a tuple of sizes
        found = torch.empty(*sizes or ((),), dtype=distribution.dtype, device=_CPU)
        directly = DIRECT_DRAW[distribution.name]
        if not directly(found, key, key >> 64, *distribution.parameters):
            operator = DRAW[distribution.name]
            operator(found, words_of(key), None, (), (), 0, *distribution.parameters)
        return found
    if isinstance(key, bank.STREAMS):
        with bank.locked(key):
            keys, positions = bank.begin(function, key)
            found = keys.new_empty((keys.size(0), *sizes), dtype=distribution.dtype)
            DRAW[distribution.name](found, keys, positions, (), (), 0, *distribution.parameters)
            bank.move(key, positions, distribution.advance(count))
        bank.zero_others(key, found)
        return found
    keys = check_keys(function, "key", key, _CPU)
    refuse_batched(function, keys)
    found = keys.new_empty((*keys.shape[:-1], *sizes), dtype=distribution.dtype)
    DRAW[distribution.name](found, keys.view(-1, 2), None, (), (), 0, *distribution.parameters)
    return found


def refuse_batched(function: str, *values: torch.Tensor) -> None:
    """RuntimeError for tensors that ``torch.vmap`` maps over, which a draw does not see."""
    if not torch.compiler.is_compiling() and any(map(private_torch.is_batched, values)):
        raise RuntimeError(
            f"fastseed.{function}: must not draw in torch.vmap: draw before it, for many keys at "
            "once, as normal(keys, shape)"
        )


def is_key(key: object) -> TypeGuard[int]:
    """Return whether ``key`` is a Python integer that is a key."""
    return type(key) is int and 0 <= key <= MAX_KEY


def words_of(key: int) -> torch.Tensor:
    """Return a key as (1, 2) uint64 on the CPU, for code that is neither compiled nor traced."""
    return torch.from_numpy(np.ndarray((1, 2), _UINT64, bytearray(key.to_bytes(16, "little"))))


def check_keys(function: str, argument: str, keys: object, device: torch.device) -> torch.Tensor:
    """Return keys as contiguous (..., 2) uint64; an integer becomes (2,) on ``device``."""
    is_eager = not torch.compiler.is_compiling()
    if is_eager and private_torch.has_tangents() and private_torch.is_traced():
        raise RuntimeError(
            f"fastseed.{function}: must not draw in torch.func.linearize, which loses what "
            "operators write in place: draw outside of it, or use torch.func.jvp"
        )
    if isinstance(keys, torch.Tensor):
        tensors.check_tensor(function, argument, keys, torch.uint64)
        if keys.dim() == 0 or keys.size(-1) != 2:
            raise validation.value_error(function, argument, "of shape (..., 2)", tuple(keys.shape))
        tensors.check_supported(function, argument, keys.device)
        return keys.contiguous()
    if isinstance(keys, bool) or not isinstance(keys, (int, np.integer)):
        raise validation.type_error(
            function, argument, "an integer or a tensor of torch.uint64", keys
        )
    key = validation.check_int(function, argument, keys, 0, MAX_KEY)
    if device.type == "cpu" and private_torch.is_plain_eager():
        return words_of(key).view(2)
    found = torch.empty(2, dtype=torch.int64, device=device)  # filled without a copy to a device
    found[0] = signed(key & 2**64 - 1)
    found[1] = signed(key >> 64)
    return found.view(torch.uint64)


def key_on(function: str, argument: str, key: object, device: torch.device) -> torch.Tensor:
    """Return one key as (1, 2) uint64 on a device."""
    keys = check_keys(function, argument, key, device)
    if keys.dim() != 1:
        raise validation.value_error(function, argument, "of shape (2,)", tuple(keys.shape))
    if device.type != "meta":
        tensors.check_data(function, argument, keys)
    return keys.to(device).view(1, 2)


def check_shape(function: str, shape: object, words: int) -> tuple[tuple[int, ...], int]:
    """Return a shape as a tuple, and its count of values; one integer is one dimension."""
    if isinstance(shape, _SIZES):
        shape = (shape,)
    elif not isinstance(shape, (tuple, list)):
        raise validation.type_error(function, "shape", "a tuple of integers", shape)
    count = 1
    for i, size in enumerate(shape):
        if type(size) is not int:
            if isinstance(size, bool) or not isinstance(size, _SIZES):
                raise validation.type_error(function, f"shape[{i}]", "an integer", size)
            size = int(size) if isinstance(size, np.integer) else size  # which may overflow
        if size < 0:
            raise validation.value_error(function, f"shape[{i}]", "0 or more", size)
        count = count * size
    if count * words > MAX_WORDS:
        raise validation.value_error(function, "shape", "of at most 2**56 words", shape)
    return tuple(shape), count
