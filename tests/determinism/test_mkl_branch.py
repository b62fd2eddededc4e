"""``fastseed.deterministic`` sets ``MKL_CBWR``: products do not depend on addresses."""

import json
import os
import subprocess
import sys

import pytest
import torch
from helpers.processes import alone

import fastseed
from fastseed.determinism import hash_seed, variables
from fastseed.determinism.switches import SET, TOO_LATE, UNCHANGED, deterministic


@pytest.mark.parametrize(
    ("value", "has_read", "status"),
    [
        (None, False, SET),
        (None, True, TOO_LATE),
        ("OFF", False, SET),
        ("COMPATIBLE", False, UNCHANGED),
        ("avx2,strict", False, UNCHANGED),
        ("BRANCH=AVX512", False, UNCHANGED),
        ("AUTO", True, TOO_LATE),  # set after MKL had read it
    ],
)
def test_the_branch_is_set_unless_mkl_has_read_another(monkeypatch, value, has_read, status):
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)
    monkeypatch.setattr(variables, "mkl_depends_on_alignment", lambda: has_read)
    monkeypatch.delenv("MKL_CBWR", raising=False)
    if value is not None:
        monkeypatch.setenv("MKL_CBWR", value)
    with deterministic() as report:
        assert report["MKL_CBWR"].status == status
        assert os.environ.get("MKL_CBWR") == ("AUTO" if status == SET else value)
    assert os.environ.get("MKL_CBWR") == value


def products_at_addresses(is_late):
    """Return the status, whether MKL depends on addresses, and the number of products."""
    if is_late:
        torch.mm(torch.ones(3, 3), torch.ones(3, 3))
    report = fastseed.deterministic()
    generator = torch.Generator().manual_seed(0)
    matrix, vector = (torch.randn(*size, generator=generator) for size in ((65, 333), (1, 333)))
    memory, products = torch.empty(2, matrix.numel() + 16), set()
    for first in range(4):
        a, b = (
            row[first : first + x.numel()].view_as(x).copy_(x)
            for row, x in zip(memory, (matrix, vector), strict=True)
        )
        products.add(tuple(torch.nn.functional.linear(b, a).flatten().tolist()))
    return report["MKL_CBWR"].status, variables.mkl_depends_on_alignment(), len(products)


@pytest.mark.slow
@pytest.mark.skipif(not torch.backends.mkl.is_available(), reason="this torch has no MKL")
def test_a_product_does_not_depend_on_addresses(monkeypatch):
    monkeypatch.delenv("MKL_CBWR", raising=False)
    assert alone(products_at_addresses, False) == (SET, False, 1)
    # Some processors and versions of MKL do without; where products differ the report says so.
    status, depends, count = alone(products_at_addresses, True)
    assert status == (TOO_LATE if depends else SET) and (count > 1) <= depends


PROGRAM = """
import json, os, sys
sys.path.insert(0, {folder!r})
import hash_seed
{before}
print(json.dumps(hash_seed.found()))
"""


def found(*options, before="", value=None):
    """Return what a new Python finds; it imports hash_seed alone, without torch."""
    program = PROGRAM.format(folder=os.path.dirname(hash_seed.__file__), before=before)
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONHASHSEED"}
    if value is not None:
        environment["PYTHONHASHSEED"] = value
    command = [sys.executable, *options, "-c", program]
    return tuple(json.loads(subprocess.check_output(command, env=environment, timeout=60)))


@pytest.mark.parametrize(
    "value, seed", [("0", 0), ("7", 7), (str(2**32 - 1), 2**32 - 1), ("random", None), (None, None)]
)
def test_the_seed_in_use(value, seed):
    assert found(value=value) == (value, seed)


@pytest.mark.parametrize("option", ["-E", "-I"])
def test_an_ignored_variable_is_not_in_use(option):
    assert found(option, value="7") == ("7", None)


@pytest.mark.parametrize("start, seed", [("random", None), ("7", 7), (None, None), ("0", 0)])
@pytest.mark.skipif(not os.path.exists("/proc/self/environ"), reason="no /proc")
def test_a_variable_set_in_the_script_is_not_in_use(start, seed):
    assert found(before="os.environ['PYTHONHASHSEED'] = '8'", value=start) == ("8", seed)


def test_the_initial_environment_may_be_unreadable_or_overwritten(monkeypatch):
    for entries in (None, b"python: a title\0\0\0"):

        def read(path, entries=entries):
            if entries is None:
                raise FileNotFoundError
            return entries

        monkeypatch.setattr(hash_seed.Path, "read_bytes", read)
        assert hash_seed._initial("12") == "12"


@pytest.mark.parametrize(
    "text, seed",
    [
        *(("0", 0), ("007", 7), ("4294967295", 2**32 - 1), ("random", None), ("", None)),
        *((None, None), ("-1", None), ("1.0", None), ("٣", None), (str(2**32), None)),
        *(("9" * 5000, None), (" 1", None)),
    ],
)
def test_values_of_the_variable(text, seed):
    assert hash_seed.parse(text) == seed
