"""DebugMode with torch's hashes and with fastseed's, as in docs/first-difference.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch.utils._debug_mode import DebugMode

from fastseed.debug import debug_hash, digest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "first-difference.md"
HASHES = {'"norm"': "norm", '"hash_tensor"': "hash_tensor", "debug_hash": debug_hash}


def exchanged(x):
    return x[torch.tensor([0, 2, 1, *range(3, len(x))])]


def negated(x):
    return torch.cat([x[:5], -x[5:6], x[6:]])


def is_found(change, hash_fn):
    """Return whether DebugMode finds an operation whose result differs after a change."""
    logs = []
    x = torch.randn(64, generator=torch.Generator().manual_seed(1))
    for value in (x, change(x)):
        with DebugMode() as mode, DebugMode.log_tensor_hashes(hash_fn=hash_fn, hash_inputs=True):
            value * 2
        logs.append(mode.logs)
    return bool(DebugMode.check_hash_mismatches(*logs, compare_inputs=True))


def test_the_table_of_the_page():
    rows = re.findall(
        r"^\| `(.*?)`.* \| (not found|found) \| (not found|found) \|$", PAGE.read_text(), re.M
    )
    assert len(rows) == len(HASHES)
    for name, *expected in rows:
        hash_fn = HASHES[name.removeprefix("fastseed.debug.")]
        found = [is_found(change, hash_fn) for change in (exchanged, negated)]
        assert [("not found", "found")[one] for one in found] == expected, name


def test_equal_runs_have_equal_hashes():
    assert not is_found(torch.clone, debug_hash)


def test_a_hash_is_the_digest():
    for x in (torch.randn(3, 5, requires_grad=True), torch.eye(4).to_sparse(), torch.zeros(0)):
        found = debug_hash(x)
        assert type(found) is int and found == digest(x.detach()).value < 2**128
    with pytest.raises(TypeError, match=r"fastseed.debug.debug_hash: tensor must be a tensor, got"):
        debug_hash([1.0])
