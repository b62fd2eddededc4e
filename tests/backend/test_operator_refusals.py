"""Every native operator refuses what it cannot read or write, and changes nothing then."""

import ctypes
import functools
import itertools

import pytest
import torch
from helpers.operator_calls import IN_NUMPY, bits, is_plan, mapped, overload, tensors_of, written
from helpers.operators import OPERATORS, U64, keys, nine, race, shuffle
from helpers.support import needs_native

pytestmark = needs_native


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
    "one column more": lambda t: torch.cat([t, t[..., :1]], -1),
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
            *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.bool, torch.int8),
            *(torch.int64, torch.uint64, torch.int32, torch.uint32, torch.uint8, torch.complex64),
        )
    },
}
INTEGERS = (-1, 0, 1, 2, 4, *(2**k for k in (16, 24, 31, 32, 40, 48, 56)), 2**32 - 1, 2**63 - 1)
LISTS = (
    [], [4], [1], [2, 2], [0], [-4], [1, 4, 1], [2**62, 4], [5], [1] * 20, [5, 2**62, 1], [4, 0],
    [5, -1, 0, 0], [5, 1, 78, 1, 0, 0], [2**55, 0, 0, 0], [5, 1, 77, 2, 0, 0], [5, 0, 0, 0, 0],
)  # fmt: skip
STRIDES = ([], [1], [4], [0], [-1], [2, 1], [4, 2, 1], [2**56, 1], [1] * 20)


def aliased(t, other):
    """A tensor like ``t`` in the memory of ``other``, or one element behind its beginning."""
    size = t.numel() * t.element_size()
    memory = torch.zeros(size + other.numel() * other.element_size() + 16, dtype=torch.uint8)
    first = memory[: other.numel() * other.element_size()].view(other.dtype).view(other.shape)
    first.copy_(other)
    return memory[8 : 8 + size].view(t.dtype).view(t.shape), first


def changes_of(value):
    """(what it is, the change) of an argument, or of an element of a list of tensors."""
    if isinstance(value, torch.Tensor):
        return list(TENSORS.items())
    if isinstance(value, bool):
        return [(str(v), lambda _, v=v: v) for v in (False, True)]
    if isinstance(value, int):
        return [(str(v), lambda _, v=v: v) for v in INTEGERS]
    if isinstance(value, float) or value is None:
        return []
    if not (value and isinstance(value[0], torch.Tensor)):
        return [(str(v), lambda _, v=v: v) for v in LISTS]
    within = [(f"first {what}", lambda v, c=c: [c(v[0]), *v[1:]]) for what, c in TENSORS.items()]
    return [("empty", lambda v: []), ("one less", lambda v: v[:-1]),
            ("one more", lambda v: [*v, v[0].clone()]), *within]  # fmt: skip


def cases(name):
    """Arguments that differ from valid ones in one."""
    make = OPERATORS[name].samples
    for i, value in enumerate(make()[0]):
        for what, change in changes_of(value):
            arguments = make()[0]
            try:
                arguments[i] = change(arguments[i])
            except (RuntimeError, NotImplementedError, IndexError):
                continue  # torch has no such tensor
            yield f"argument {i}, {what}", arguments
    if name.startswith("draw_") or name == "dropout":
        at = 3 if name.startswith("draw_") else 2
        for sizes in LISTS:
            for strides in STRIDES:
                arguments = make()[0]
                arguments[at : at + 2] = sizes, strides
                yield f"sizes {sizes}, strides {strides}", arguments


def shared(name):
    """Arguments of which two share memory, one of them written; so that one is read too late."""
    for i, j in itertools.permutations(range(len(tensors_of(OPERATORS[name].samples()[0]))), 2):
        if name == "perturb" and max(i, j) < 6 and i % 2 != j % 2:
            continue  # numbers, bytes or lists of two tensors, which it takes one after the other
        arguments = OPERATORS[name].samples()[0]
        a, b = (tensors_of(arguments)[k] for k in (i, j))
        if b.nbytes > 8 and any(t is a or t is b for t in written(name, arguments)):
            twin = dict(zip((id(a), id(b)), aliased(a, b), strict=True))
            yield mapped(lambda t, twin=twin: twin.get(id(t), t), arguments)


def copied(memory):
    found = torch.empty(memory.nbytes(), dtype=torch.uint8)
    ctypes.memmove(found.data_ptr(), memory.data_ptr(), memory.nbytes())
    return found.untyped_storage()


def copies(arguments):
    """The same arguments in memory of their own, which they share as before."""
    storages: dict[int, torch.Tensor] = {}

    def copy(value):
        if value.layout != torch.strided:
            return value
        memory = value.untyped_storage()
        whole = storages.setdefault(memory._cdata, copied(memory))
        with torch.inference_mode(value.is_inference()):
            empty = torch.empty(0, dtype=value.dtype)
            found = empty.set_(whole, value.storage_offset(), value.shape, value.stride())
        if memory.nbytes() < value.numel() * value.element_size():
            freed(found)
        return found.requires_grad_(value.requires_grad)

    return mapped(copy, arguments)


def bytes_of(arguments):
    memory = [t.untyped_storage() for t in tensors_of(arguments) if t.layout == torch.strided]
    return [ctypes.string_at(storage.data_ptr(), storage.nbytes()) for storage in memory]


def attempt(function, arguments):
    """(the memory afterwards and the result, the error or None); refused, nothing has changed."""
    counted = [t for t in tensors_of(arguments) if not t.is_inference()]
    before, versions = bytes_of(arguments), [t._version for t in counted]
    try:
        result = function(*arguments)
    except (TypeError, ValueError, RuntimeError) as error:  # NotImplementedError too
        assert bytes_of(arguments) == before, "a refused call wrote"
        assert [t._version for t in counted] == versions, "a refused call counted a write"
        return before, error
    return [*bytes_of(arguments), result if result is None else bits(result).tolist()], None


def is_clear(error):
    """Return whether an error is the operator's, or torch's for tensors without a kernel."""
    return "fastseed." in str(error) or isinstance(error, NotImplementedError)


CHECKED = [name for name in OPERATORS if name != "shuffle_of_key"]  # whose caller checks


@pytest.mark.parametrize("name", CHECKED)
def test_operators_refuse_or_give_the_answer_of_their_reference(name):
    wrong, accepted, refused = [], 0, 0
    for what, arguments in cases(name):
        found, error = attempt(overload(name), copies(arguments))
        if error is not None:
            refused += 1
            if not is_clear(error):
                wrong.append(f"{what}: unclear, {error!r}"[:400])
            continue
        accepted += 1
        expected, error = attempt(IN_NUMPY[name], copies(arguments))
        if found != expected or error is not None:
            wrong.append(f"{what} {error or ''}"[:400])
    assert not wrong, "\n".join(wrong)
    assert name == "advise_huge_pages" or (accepted > 5 and refused > 20)
    for arguments in shared(name):
        _, error = attempt(overload(name), arguments)
        assert "must not share memory" in str(error)


def rows_of(first, change=lambda plan: plan):
    """Return a digest of two rows of 8 bytes in each of two tensors, with a changed plan."""
    memory = [first, torch.arange(9)]
    plan = torch.tensor([[5, t.data_ptr(), 8, 2, 16, 0, 1] for t in memory])
    sums = first if first.dtype == U64 else torch.zeros(2, 2, dtype=U64)
    return [sums, memory, change(plan)]


BOUNDS = {
    (3, 0, 0, 1): "n must be in", (3, 2**48 + 1, 0, 1): "n must be in",
    (3, 10, -1, 3): "start must be in", (3, 10, 11, 3): "start must be in",
    (3, 10, 2, 0): "stride must be in", (3, 10, 2, 2**48 + 1): "stride must be in",
    (3, 10, 8, 3): "out must be of no more elements", (3, 10, 0, 5): "out must be of no more",
}  # fmt: skip
PLANS = (
    torch.Tensor.int, lambda plan: plan[:, :6].contiguous(), lambda plan: plan + 1,
    lambda plan: plan - plan, lambda plan: plan * 16,
)  # fmt: skip
REFUSED = [
    *(("shuffle", lambda given=given: shuffle(*given), says) for given, says in BOUNDS.items()),
    *(("sampling_race", lambda first=first: race(3, nine(3), first=first), "tokens must be below")
      for first in (2**24 - 8, -1)),
    *(("digest", lambda change=change: rows_of(torch.arange(8), change), "plan must")
      for change in PLANS),
    ("digest", lambda: rows_of(freed(torch.arange(3))), "plan must name rows within the memory"),
    ("digest", lambda: rows_of(torch.zeros(2, 2, dtype=U64)), "memory must not share memory"),
    ("advise_huge_pages", lambda: [keys(4).t()], "out must be contiguous"),
    ("advise_huge_pages", lambda: [freed(keys(4))], "out must have memory"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "make", "says"), REFUSED)
def test_operators_say_what_they_refuse(name, make, says):
    with pytest.raises(RuntimeError, match=rf"fastseed\.{name}: .*{says}"):
        overload(name)(*make())


@pytest.mark.parametrize(
    ("dtype", "size", "most"),
    [(torch.int64, 2**40, 2**55), (torch.int64, 9, 2**56), (torch.int32, 9, 2**56)],
)
def test_words_of_a_draw_are_below_2_56(dtype, size, most):
    """From there on a retry would have the counter of another word."""
    out, key, randint = torch.zeros(1, 2, dtype=dtype), keys(1), overload("draw_randint")
    for sizes, strides, end in (((), (), 2), ((2, 1), (2**40, 1), 2**40 + 1)):
        randint(out, key, None, sizes, strides, most - end, 0, size)
        with pytest.raises(RuntimeError, match=r"fastseed\.draw_randint: .* below 2\*\*56"):
            randint(out, key, None, sizes, strides, most - end + 1, 0, size)


@pytest.mark.needs_cuda
def test_a_tensor_on_another_device_is_refused(device):
    for name in set(CHECKED) - {"advise_huge_pages"}:
        for i in range(len(tensors_of(OPERATORS[name].samples()[0]))):
            arguments = OPERATORS[name].samples()[0]
            left = tensors_of(arguments)[i]
            given = mapped(lambda t, left=left: t if t is left else t.to(device), arguments)
            if not is_plan(left):
                with pytest.raises((RuntimeError, NotImplementedError)):
                    overload(name)(*given)
