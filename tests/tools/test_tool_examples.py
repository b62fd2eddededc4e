"""The examples in the docstrings of the tools run."""

from __future__ import annotations

import doctest
import importlib

import pytest


@pytest.mark.parametrize(
    "name",
    [
        "checkpoints.jobs",
        "environment",
        "verify",
    ],
)
def test_examples(name):
    results = doctest.testmod(importlib.import_module(f"fastseed.tools.{name}"))
    assert results.attempted and not results.failed
