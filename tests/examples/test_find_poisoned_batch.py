"""The recipe of docs/lineage.md, command by command; and that its comparison can fail."""

import importlib.util

import pytest
import torch
from helpers.paths import ROOT
from helpers.sessions import replay

pytestmark = pytest.mark.slow


@pytest.mark.timeout(300)
def test_the_session_of_the_page(tmp_path):
    replay("lineage.md", tmp_path)


def test_the_comparison_counts_rows_that_differ():
    path = ROOT / "examples" / "find_poisoned_batch.py"
    spec = importlib.util.spec_from_file_location("find_poisoned_batch", path)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)

    def record(samples, images):
        return {7: {"samples": torch.tensor(samples), "images": torch.tensor(images)}}

    old = record([1, 2, 3], [[1.0], [2.0], [3.0]])
    gone = torch.tensor([2])
    assert "0 equal" in (
        text := example.compare(old, record([1, 9, 3], [[1.0], [9.0], [3.0]]), gone)
    )
    assert "1 rows of removed" in text and "0 other rows differ" in text
    for other in (record([1, 9, 4], [[1.0], [9.0], [3.0]]), record([1, 9, 3], [[1.0], [9], [3.5]])):
        assert "1 other rows differ" in example.compare(old, other, gone)
    with pytest.raises(AssertionError, match="step 7 has a removed sample"):
        example.compare(old, old, gone)
    losses = {n: {"loss": torch.tensor(5.0 if n == 8 else 1.0)} for n in range(12)}
    assert example.jump(losses) == (8, 5.0, 1.0)
