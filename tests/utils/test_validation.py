"""The rules of arguments and their texts, which every public function shares."""

import collections
import math
import pathlib
import time
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import fastseed
from fastseed._utils import validation
from fastseed._utils.validation import short_repr


def check(name, value, *more):
    return getattr(validation, f"check_{name}")("f", "x", value, *more)


INT, FLOAT = ("int", 0, 9), ("float", -1.0, 2.0)


@pytest.mark.parametrize(
    ("rule", "value", "found"),
    [
        (INT, 0, 0),
        (INT, np.int8(9), 9),
        (INT, np.uint64(9), 9),
        (FLOAT, 2, 2.0),
        (FLOAT, np.float16(0.5), 0.5),
        (FLOAT, Fraction(1, 2), 0.5),
        (("bool",), np.bool_(True), True),
        (("bool",), False, False),
        (("text",), "é", "é"),
        (("path",), pathlib.Path("a"), "a"),
        (("path",), b"a", "a"),
        (("choice", ("a", 1)), "a", "a"),
        (("choice", ("a", 1)), 1, 1),
        (("instance", dict, "a dict"), {}, {}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_fits_is_returned_in_plain_types(rule, value, found):
    name, *more = rule
    result = check(name, value, *more)
    assert result == found and type(result) is type(found)


@pytest.mark.parametrize(
    ("rule", "value", "error", "says"),
    [
        (INT, True, TypeError, "an integer, got True of type bool"),
        (INT, 1.0, TypeError, "an integer, got 1.0 of type float"),
        (INT, "1", TypeError, "an integer, got '1' of type str"),
        (INT, None, TypeError, "an integer, got None of type NoneType"),
        (INT, np.float64(1), TypeError, "an integer, got np.float64(1.0) of type float64"),
        (INT, np.bool_(True), TypeError, "an integer, got np.True_ of type bool"),
        (INT, np.array(1), TypeError, "an integer, got array of shape () and dtype int64 of"),
        (INT, torch.tensor(1), TypeError, "an integer, got tensor of shape () and dtype torch.int"),
        (INT, 10, ValueError, "in [0, 9], got 10"),
        (INT, -1, ValueError, "in [0, 9], got -1"),
        (INT, 10**5000, ValueError, "in [0, 9], got an integer of 16610 bits"),
        (FLOAT, True, TypeError, "a number, got True of type bool"),
        (FLOAT, "1", TypeError, "a number, got '1' of type str"),
        (FLOAT, 1j, TypeError, "a number, got 1j of type complex"),
        (FLOAT, torch.ones(()), TypeError, "a number, got tensor of shape () and dtype"),
        (FLOAT, math.nan, ValueError, "in [-1.0, 2.0], got nan"),
        (FLOAT, math.inf, ValueError, "in [-1.0, 2.0], got inf"),
        (FLOAT, 10**400, ValueError, "in [-1.0, 2.0], got an integer of 1329 bits"),
        (FLOAT, 2.1, ValueError, "in [-1.0, 2.0], got 2.1"),
        (("bool",), 1, TypeError, "a bool, got 1 of type int"),
        (("text",), 5, TypeError, "a string, got 5 of type int"),
        (("text",), "", ValueError, "a non-empty string, got ''"),
        (("text",), "\ud800", ValueError, r"a string with a UTF-8 encoding, got '\ud800'"),
        (("path",), 5, TypeError, "a path, got 5 of type int"),
        (("path",), "", ValueError, "the name of a file, got ''"),
        (("path",), "a\0", ValueError, r"the name of a file, got 'a\x00'"),
        (("choice", ("a", 1)), "b", ValueError, "one of 'a', 1, got 'b'"),
        (("choice", ("a", 1)), True, ValueError, "one of 'a', 1, got True"),
        (("choice", ("a", 1)), torch.ones(2), ValueError, "one of 'a', 1, got tensor of shape"),
        (("instance", dict, "a dict"), [], TypeError, "a dict, got [] of type list"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_does_not_fit_is_refused_in_one_form(rule, value, error, says):
    name, *more = rule
    with pytest.raises(error) as caught:
        check(name, value, *more)
    assert str(caught.value).startswith(f"fastseed.f: x must be {says}")


def freed() -> torch.Tensor:
    """A tensor whose elements must not be read: that would end the process."""
    tensor = torch.zeros(4, 8)
    tensor.untyped_storage().resize_(0)
    return tensor


class Pair(collections.namedtuple("Pair", "a b")):
    pass


@dataclass
class Holder:
    tensor: torch.Tensor


class Loud(list):
    def __repr__(self):
        raise AssertionError("it is not asked for its own text")

    __iter__ = __len__ = __str__ = __repr__


TENSOR = "tensor of shape (4, 8) and dtype torch.float32"
FREED = {
    "tensor": (freed, TENSOR),
    "list": (lambda: [freed()], f"[{TENSOR}]"),
    "tuple": (lambda: (freed(),), f"({TENSOR},)"),
    "dict": (lambda: {"a": freed()}, f"{{'a': {TENSOR}}}"),
    "deque": (lambda: collections.deque([freed()]), f"deque([{TENSOR}])"),
    "state_dict": (lambda: collections.OrderedDict(a=freed()), f"OrderedDict({{'a': {TENSOR}}})"),
    "defaultdict": (
        lambda: collections.defaultdict(list, a=freed()),
        f"defaultdict({{'a': {TENSOR}}})",
    ),
    "named tuple": (lambda: Pair(freed(), 1), f"Pair(({TENSOR}, 1))"),
    "set": (lambda: {freed(), freed()}, f"set([{TENSOR}"),
    "dataclass": (lambda: Holder(freed()), "<test_validation.Holder object>"),
    "method": (lambda: Holder(freed()).__init__, "<method object>"),
    "of a tensor": (lambda: freed().sum, "<built-in method sum of Tensor object at"),
    "partial": (lambda: partial(print, freed()), "<functools.partial object>"),
    "values": (lambda: {"a": freed()}.values(), "<dict_values object>"),
    "namespace": (lambda: SimpleNamespace(a=freed()), "<types.SimpleNamespace object>"),
}


@pytest.mark.parametrize("kind", FREED)
def test_no_text_reads_a_tensor(kind):
    make, text = FREED[kind]
    assert short_repr(make()).startswith(text[:70])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([1, "a", None, 2.5], "[1, 'a', None, 2.5]"),
        ((), "()"),
        ({}, "{}"),
        (set(), "set([])"),
        (frozenset({1}), "frozenset([1])"),
        (fastseed.SHARED, "fastseed.SHARED"),
        (torch.float32, "torch.float32"),
        ([torch.strided, torch.channels_last], "[torch.strided, torch.channels_last]"),
        (torch.device("meta"), "device(type='meta')"),
        (torch.Generator, "<class 'torch._C.Generator'>"),
        (torch.nn.Linear(2, 2), "<torch.nn.modules.linear.Linear object>"),
        (Decimal(1), "<decimal.Decimal object>"),
        (Loud([1]), "a Loud without a repr"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_text_of_a_value(value, text):
    assert short_repr(value) == text


def nested(depth: int) -> list:
    found: list = [0] * 40
    for _ in range(depth):
        found = [found] * 40
    return found


def cyclic() -> list:
    found: list = []
    found.append(found)
    return found


@pytest.mark.parametrize(
    "make",
    [
        lambda: "x" * 10**8,
        lambda: b"x" * 10**8,
        lambda: list(range(10**6)),
        lambda: dict.fromkeys(range(10**6)),
        lambda: {1 << 10**7},
        lambda: nested(8),
        cyclic,
        lambda: torch.nn.ModuleList(torch.nn.Identity() for _ in range(1000)),
    ],
)
def test_texts_are_short_and_made_at_once(make):
    value = make()
    began = time.perf_counter()
    assert len(short_repr(value)) <= 80
    assert time.perf_counter() - began < 0.05
