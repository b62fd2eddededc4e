"""``fastseed.deterministic`` sets ``MKL_CBWR``: products do not depend on addresses."""

import os

import pytest
import torch
from helpers.support import run_script

from fastseed.determinism import variables
from fastseed.determinism.settings import SET, TOO_LATE, UNCHANGED
from fastseed.determinism.switches import deterministic


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


@pytest.mark.slow
@pytest.mark.skipif(not torch.backends.mkl.is_available(), reason="this torch has no MKL")
def test_a_product_does_not_depend_on_addresses(monkeypatch):
    monkeypatch.delenv("MKL_CBWR", raising=False)
    early, late = (run_script("determinism_mkl.py", order) for order in ("early", "late"))
    assert (early["status"], early["depends"], early["products"]) == (SET, False, 1)
    # Some processors and versions of MKL do without; where products differ the report says so.
    assert late["status"] == (TOO_LATE if late["depends"] else SET)
    assert (late["products"] > 1) <= late["depends"]
