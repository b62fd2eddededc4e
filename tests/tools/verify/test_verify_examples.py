"""The examples in docstrings run."""

from __future__ import annotations

import doctest
import importlib

import pytest

from fastseed.tools import environment


@pytest.mark.parametrize("module", ["", ".logs", ".options"])
def test_examples(module, monkeypatch):
    monkeypatch.setattr(environment, "capture", lambda folder: None)
    results = doctest.testmod(importlib.import_module(f"fastseed.tools.verify{module}"))
    assert results.attempted and not results.failed
