"""What holds of every native operator, on every path of the CPU and on a device.

``helpers/operators.py`` has the table. Without a GPU the device is the CPU once more.
"""

import itertools

import pytest
import torch
from helpers.operator_calls import (
    CPU_PATHS,
    answer,
    bits,
    is_plan,
    mapped,
    moved,
    on_path,
    overload,
    tensors_of,
    written,
)  # fmt: skip
from helpers.operators import ON_CPU, OPERATORS
from helpers.support import needs_native
from torch._subclasses.fake_tensor import FakeTensorMode

from fastseed._backend.ops.register import REFERENCES

pytestmark = pytest.mark.cuda
each_operator = pytest.mark.parametrize("name", OPERATORS)
POISON = 0xFF  # the bytes of a number that is not one


def same(found, expected):
    return len(found) == len(expected) and all(map(torch.equal, found, expected))


def place_of(name, device):
    return "cpu" if name in ON_CPU else device


def test_every_operator_is_in_the_table():
    found = {name.removeprefix("fastseed::") for name in torch._C._dispatch_get_all_op_names()
             if name.startswith("fastseed::") and "simd" not in name}  # fmt: skip
    assert found - {"loop_table", "check_label"} == set(OPERATORS)  # but what has no kernel
    assert set(REFERENCES) == set(OPERATORS) - {"digest", "advise_huge_pages"}


@pytest.mark.costly("NumPy computes each case, which all paths share")
@each_operator
def test_every_path_gives_the_bits_of_the_reference_and_counts_its_writes(name, device):
    """Up to two seconds: NumPy computes each case, which all paths share."""
    paths = (*CPU_PATHS, place_of(name, device))
    for i, arguments in enumerate((*OPERATORS[name].samples(), *OPERATORS[name].sizes())):
        expected = None
        for path in paths:
            given = moved(arguments, "cpu" if path in CPU_PATHS else path)
            versions = {id(t): t._version for t in tensors_of(given)}
            found = answer(name, on_path(name, path), given)
            expected = expected or found
            assert same(found, expected), (path, i, arguments)
            counted = {id(t) for t in written(name, given)}
            for tensor in tensors_of(given):
                more = tensor._version > versions[id(tensor)]
                assert more == (id(tensor) in counted and name != "advise_huge_pages"), path


def at_address(arguments, shift, device):
    """The same behind bytes (on a device elements) of other memory; and what is around."""
    around = []

    def place(tensor, shift=shift):
        if is_plan(tensor) or not tensor.numel():
            return tensor.clone()
        size, shift = tensor.nbytes, shift * (1 if device == "cpu" else tensor.element_size())
        memory = torch.full((shift + size + 72,), POISON, dtype=torch.uint8, device=device)
        around.append((memory[:shift], memory[shift + size :]))
        if device == "cpu":  # at any byte, which views do not allow
            buffer = memory.numpy()
            flat = torch.frombuffer(buffer, dtype=tensor.dtype, offset=shift, count=tensor.numel())
        else:
            flat = memory[shift : shift + size].view(tensor.dtype)
        return flat.view(tensor.shape).copy_(tensor)

    return mapped(place, arguments), around


@each_operator
def test_any_address_and_number_of_threads_gives_the_same_and_nothing_else_is_written(name, device):
    device = place_of(name, device)
    shifts = (1, 4, 8, 16) if device == "cpu" else (1, 3, 8)
    for arguments in (*OPERATORS[name].samples(), *OPERATORS[name].large()):
        expected = answer(name, overload(name), moved(arguments, "cpu"))
        for shift, threads in zip(shifts, (2, 3, 1, 4), strict=False):
            torch.set_num_threads(threads)
            given, around = at_address(arguments, shift, device)
            kept = [bits(t) for t in tensors_of(given)]
            assert same(answer(name, overload(name), given), expected), (shift, threads)
            assert all((t == POISON).all() for t in itertools.chain(*around)), shift
            mine = {id(t) for t in written(name, given)}
            for tensor, before in zip(tensors_of(given), kept, strict=True):
                assert id(tensor) in mine or torch.equal(bits(tensor), before)


@needs_native
@each_operator
def test_opcheck(name, device):
    """Once for each form of its arguments."""
    for arguments in OPERATORS[name].samples():
        given = tuple(moved(arguments, place_of(name, device)))
        assert set(torch.library.opcheck(overload(name), given).values()) == {"SUCCESS"}


@each_operator
def test_fakes_have_the_layout_of_what_is_real(name):
    for arguments in OPERATORS[name].samples():
        real = overload(name)(*moved(arguments, "cpu"))
        with FakeTensorMode() as mode:
            fake = overload(name)(*mapped(mode.from_tensor, arguments))
        meta = overload(name)(*mapped(lambda t: t.to("meta"), arguments))
        for found, device in ((fake, "cpu"), (meta, "meta")):
            if real is None:
                assert found is None
            else:
                assert (found.shape, found.dtype, found.stride()) == (
                    real.shape, real.dtype, real.stride()
                )  # fmt: skip
                assert found.device.type == device


def call(name, arguments):
    """Return what an operator returns or writes to copies, as a function of its arguments."""
    given = mapped(torch.clone, arguments)
    result = overload(name)(*given)
    return written(name, given) if result is None else [result]


@pytest.mark.costly("compiles")
@needs_native
@pytest.mark.parametrize(
    "backend", ["eager", "aot_eager", pytest.param("inductor", marks=pytest.mark.slow)]
)
def test_all_operators_compile_into_one_graph(backend, device):
    torch._dynamo.reset()
    names = [name for name in OPERATORS if device == "cpu" or name not in ON_CPU]
    samples = {name: moved(OPERATORS[name].samples()[0], device) for name in names}

    def everything(samples):
        return {name: call(name, arguments) for name, arguments in samples.items()}

    found = torch.compile(everything, backend=backend, fullgraph=True)(samples)
    for name, expected in everything(samples).items():
        assert same(list(map(bits, found[name])), list(map(bits, expected))), name
