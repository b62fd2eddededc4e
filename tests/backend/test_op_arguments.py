"""Every native operator refuses what it cannot read or write, and changes nothing then."""

from __future__ import annotations

import ctypes
import functools
import importlib

import pytest
import torch
from helpers.support import needs_native

from fastseed._backend.ops.register import REFERENCES
from fastseed._backend.ops.sampling import BINS, LEAST_CODE

for _name in ("digest", "draws", "dropout", "exact", "keys", "sampling", "shuffle"):
    importlib.import_module(f"fastseed._backend.ops.{_name}")  # defines the operators

U64, I64, F64 = torch.uint64, torch.int64, torch.float64
NAMES = (7, -3)
WORDS = (0x2000003, 5, 11)  # rank word, worker, start


def keys(n=3):
    return (torch.arange(2 * n) + 2**40).view(U64).view(n, 2)


def longs(*values):
    return torch.tensor(values, dtype=I64)


def draw(dtype, *parameters):
    return (torch.zeros(3, 4, dtype=dtype), keys(), longs(0, 4, 8), [4], [1], 2, *parameters)


def race():
    heat, least = torch.full((3,), 0.7, dtype=F64), torch.full((3,), LEAST_CODE)
    numbers = torch.arange(27.0).view(3, 9).sin()
    out = torch.zeros(3, 2, dtype=F64), torch.zeros(3, 2, dtype=I64)
    return (*out, numbers, keys(), longs(1, 2, 3), heat, least, 5)


def histogram():
    heat, least = torch.full((3,), 0.7, dtype=F64), torch.full((3,), LEAST_CODE)
    numbers = torch.arange(27.0).view(3, 9).sin()
    prefix = longs(0xBF8, 0xBF0, 0xC00)
    return torch.zeros(3, BINS, dtype=I64), numbers, least, prefix, numbers.amax(1), heat, 3, 5


def scope():
    return longs(12, 13).view(U64)


VALID = {
    "draw_bits": lambda: draw(torch.uint32),
    "draw_uniform": lambda: draw(torch.float32, 1.0, 0.0, 0.9),
    "draw_normal": lambda: draw(torch.float64, 0.0, 1.0),
    "draw_exponential": lambda: draw(torch.float16, 1.0),
    "draw_trunc_normal": lambda: draw(
        torch.bfloat16, 0.0, 1.0, 0.0, 0.95, 0.025, 0.025, -2.0, 2.0
    ),
    "draw_bernoulli": lambda: draw(torch.bool, 2**31),
    "draw_randint": lambda: draw(torch.int32, -3, 9),
    "derive_keys": lambda: (keys(), *NAMES, *WORDS),
    "derive_seeds": lambda: (torch.zeros(3, dtype=U64), *NAMES, *WORDS),
    "reseed_streams": lambda: (keys(), longs(1, 2, 3), *NAMES, *WORDS),
    "reseed_streams_at": lambda: (keys(), longs(1, 2, 3), scope(), *NAMES, *WORDS),
    "reseed_streams_from": lambda: (
        keys(), longs(1, 2, 3), longs(7, 8, 9).view(U64), longs(0, 1, -1), *NAMES
    ),
    "mt19937_states": lambda: (torch.zeros(3, 632, dtype=torch.int64), keys()),
    "shuffle": lambda: (longs(0, 0, 0), *NAMES, 10, 1, 2),
    "shuffle_positions": lambda: (longs(0, 0, 0), longs(9, 10, 3), *NAMES, 10),
    "sampling_race": race,
    "sampling_histogram": histogram,
}  # fmt: skip
ELSEWHERE = {"dropout", "check_label", "layer_key", "perturb", "exact_sum", "shuffle_of_key"}
"""Tested in other folders."""
ALONE = {"advise_huge_pages", "digest"}  # native code only, below


def freed(t):
    t.untyped_storage().resize_(t.untyped_storage().nbytes() - 1)
    return t


def inference(t):
    with torch.inference_mode():
        return t.clone()


TENSORS = {
    "as it is": lambda t: t,
    "one row less": lambda t: t[1:].contiguous(),
    "one row more": lambda t: torch.cat([t, t[:1]]),
    "one column less": lambda t: t[..., 1:].contiguous(),
    "no rows": lambda t: t[:0],
    "no columns": lambda t: t[..., :0],
    "a scalar": lambda t: t.flatten()[0].clone(),
    "one dimension more": lambda t: t[None],
    "flat": lambda t: t.flatten(),
    "every other element": lambda t: torch.stack((t, t), -1)[..., 0],
    "transposed": lambda t: t.t().contiguous().t() if t.dim() == 2 else t,
    "expanded": lambda t: t[:1].expand(t.shape),
    "freed": freed,
    "sparse": lambda t: t.to_sparse(),
    "inference": inference,
    "grad": lambda t: t.requires_grad_() if t.is_floating_point() else t,
    **{
        f"of {dtype}": functools.partial(torch.Tensor.to, dtype=dtype)
        for dtype in (
            *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.bool),
            *(torch.int64, torch.uint64, torch.int32, torch.uint32, torch.uint8, torch.complex64),
        )
    },
}
INTEGERS = (-1, 0, 1, 2, 4, *(2**k for k in (24, 31, 32, 40, 48, 56)), 2**32 - 1, 2**63 - 1)
LISTS = ([], [4], [1], [2, 2], [0], [-4], [1, 4, 1], [2**62, 4], [5], [1] * 20)


def aliased(t, other):
    """A tensor like ``t`` in the memory of ``other``, or one element behind its beginning."""
    size = t.numel() * t.element_size()
    memory = torch.zeros(size + other.numel() * other.element_size() + 16, dtype=torch.uint8)
    first = memory[: other.numel() * other.element_size()].view(other.dtype).view(other.shape)
    first.copy_(other)
    return memory[8 : 8 + size].view(t.dtype).view(t.shape), first


def cases(name):
    """Argument lists that differ from a valid one in one argument, or in two that share memory."""
    make = VALID[name]
    for i, value in enumerate(make()):
        changes = []
        if isinstance(value, torch.Tensor):
            changes = [(what, change) for what, change in TENSORS.items()]
        elif isinstance(value, bool):
            changes = [(str(v), lambda _, v=v: v) for v in (False, True)]
        elif isinstance(value, int):
            changes = [(str(v), lambda _, v=v: v) for v in INTEGERS]
        elif isinstance(value, list):
            changes = [(str(v), lambda _, v=v: v) for v in LISTS]
        for what, change in changes:
            arguments = list(make())
            try:
                arguments[i] = change(arguments[i])
            except (RuntimeError, NotImplementedError, IndexError):
                continue  # torch has no such tensor
            yield f"argument {i}, {what}", arguments
        for j in range(i):
            arguments = list(make())
            if isinstance(arguments[j], torch.Tensor) and isinstance(value, torch.Tensor):
                arguments[j], arguments[i] = aliased(arguments[j], arguments[i])
                yield f"arguments {j} and {i} share memory", arguments


def layouts(name):
    """Pairs of sizes and strides, for the operators that have them."""
    for sizes in LISTS:
        for strides in ([], [1], [4], [0], [-1], [2, 1], [4, 2, 1], [2**56, 1], [1] * 20):
            arguments = list(VALID[name]())
            arguments[3:5] = sizes, strides
            yield f"sizes {sizes}, strides {strides}", arguments


def copied(memory):
    found = torch.empty(memory.nbytes(), dtype=torch.uint8)
    ctypes.memmove(found.data_ptr(), memory.data_ptr(), memory.nbytes())
    return found.untyped_storage()


def copies(arguments):
    """The same arguments in memory of their own, which they share as before."""
    storages: dict[int, torch.Tensor] = {}

    def copy(value):
        if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
            return value
        memory = value.untyped_storage()
        whole = storages.setdefault(memory._cdata, copied(memory))
        with torch.inference_mode(value.is_inference()):
            empty = torch.empty(0, dtype=value.dtype)
            found = empty.set_(whole, value.storage_offset(), value.shape, value.stride())
        if memory.nbytes() < value.numel() * value.element_size():
            freed(found)
        return found.requires_grad_(value.requires_grad)

    return [copy(value) for value in arguments]


def bytes_of(arguments):
    return [
        ctypes.string_at(value.untyped_storage().data_ptr(), value.untyped_storage().nbytes())
        for value in arguments
        if isinstance(value, torch.Tensor) and value.layout == torch.strided
    ]


def answer(function, arguments):
    """(the memory afterwards, the error or None); a refused call has changed nothing."""
    before = bytes_of(arguments)
    versions = [
        t._version for t in arguments if isinstance(t, torch.Tensor) and not t.is_inference()
    ]
    try:
        function(*arguments)
    except (TypeError, ValueError, RuntimeError) as error:  # NotImplementedError too
        after = [
            t._version for t in arguments if isinstance(t, torch.Tensor) and not t.is_inference()
        ]
        assert bytes_of(arguments) == before, "a refused call wrote"
        assert versions == after, "a refused call counted a write"
        return before, error
    return bytes_of(arguments), None


def is_clear(error):
    """Return whether an error is the operator's, or torch's for tensors without a kernel."""
    return "fastseed." in str(error) or isinstance(error, NotImplementedError)


def test_every_operator_is_in_the_table():
    found = {name.removeprefix("fastseed::") for name in torch._C._dispatch_get_all_op_names()
             if name.startswith("fastseed::") and "simd" not in name}  # fmt: skip
    assert found - {"loop_table"} - ELSEWHERE <= {*VALID, *ALONE}
    assert set(REFERENCES) - ELSEWHERE == set(VALID)


@needs_native
@pytest.mark.parametrize("name", VALID)
def test_operators_refuse_or_give_the_answer_of_their_reference(name):
    op = getattr(torch.ops.fastseed, name).default
    wrong, accepted, refused = [], 0, 0
    for what, arguments in (*cases(name), *(layouts(name) if name.startswith("draw_") else ())):
        found, error = answer(op, copies(arguments))
        if error is not None:
            refused += 1
            if not is_clear(error):
                wrong.append(f"{what}: unclear, {error!r}"[:400])
            continue
        accepted += 1
        expected = copies(arguments)
        REFERENCES[name](*expected)
        if found != bytes_of(expected):
            wrong.append(what)
    assert not wrong, "\n".join(wrong)
    assert accepted > 5 and refused > 20


# ---------------------------------------------------------------- operators of native code alone


def plan(*memory, rows=2, row_bytes=8):
    found = [[5, t.data_ptr(), row_bytes, rows, 16, 0, 1] for t in memory]
    return torch.tensor(found, dtype=I64).view(-1, 7)


def digest():
    memory = [torch.arange(8), torch.arange(9)]
    return torch.zeros(2, 2, dtype=U64), memory, plan(*memory)


def overlapping_digest():
    sums = torch.zeros(2, 2, dtype=U64)
    return sums, [sums, torch.arange(9)], plan(sums, torch.arange(9))


def edited(make, index, change):
    arguments = list(make())
    arguments[index] = change(arguments[index])
    return arguments


def shared_with(make, j, i):
    arguments = list(make())
    arguments[j], arguments[i] = aliased(arguments[j], arguments[i])
    return arguments


ALONE_REFUSED = [
    ("advise_huge_pages", lambda: [keys().t()], "out must be contiguous"),
    ("advise_huge_pages", lambda: [freed(keys())], "out must have memory"),
    ("digest", lambda: edited(digest, 0, lambda t: t[:1]), "sums must be"),
    ("digest", lambda: edited(digest, 0, lambda t: t.to(I64)), "sums must be"),
    ("digest", lambda: edited(digest, 1, lambda memory: memory[:1]), "plan must be"),
    ("digest", lambda: edited(digest, 2, lambda t: t.to(torch.int32)), "plan must be"),
    ("digest", lambda: edited(digest, 2, lambda t: t[:, :6].contiguous()), "plan must be"),
    ("digest", lambda: edited(digest, 2, lambda t: t + 1), "plan must name rows"),
    ("digest", lambda: edited(digest, 2, lambda t: t - t), "plan must name rows"),
    ("digest", lambda: edited(digest, 2, lambda t: t * 16), "plan must name rows"),
    ("digest", lambda: edited(digest, 1, lambda memory: [freed(t) for t in memory]), "plan must"),
    ("digest", lambda: shared_with(digest, 0, 2), "plan must not share memory"),
    ("digest", overlapping_digest, "memory must not share memory"),
]  # fmt: skip


@needs_native
@pytest.mark.parametrize(("name", "make", "says"), ALONE_REFUSED)
def test_native_operators_without_a_reference_refuse(name, make, says):
    arguments = make()
    _, error = answer(getattr(torch.ops.fastseed, name).default, arguments)
    assert says in str(error) and is_clear(error)


@needs_native
def test_digest_writes():
    arguments = digest()
    before = bytes_of(arguments)
    found, error = answer(torch.ops.fastseed.digest.default, arguments)
    assert error is None and found != before and arguments[0]._version > 0


@needs_native
@pytest.mark.parametrize(
    ("dtype", "size", "most"),
    [(torch.int64, 2**40, 2**55), (torch.int64, 9, 2**56), (torch.int32, 9, 2**56)],
)
def test_words_of_a_draw_are_below_2_56(dtype, size, most):
    """From there on a retry would have the counter of another word."""
    out = torch.zeros(1, 2, dtype=dtype)
    for sizes, strides, end in (((), (), 2), ((2, 1), (2**40, 1), 2**40 + 1)):
        torch.ops.fastseed.draw_randint(out, keys(1), None, sizes, strides, most - end, 0, size)
        with pytest.raises(RuntimeError, match=r"fastseed\.draw_randint: .* below 2\*\*56"):
            torch.ops.fastseed.draw_randint(
                out, keys(1), None, sizes, strides, most - end + 1, 0, size
            )


@needs_native
def test_the_digest_of_no_tensors_has_no_sums():
    sums = torch.zeros(0, 2, dtype=U64)
    assert torch.ops.fastseed.digest(sums, [], torch.zeros(0, 7, dtype=I64)) is None
