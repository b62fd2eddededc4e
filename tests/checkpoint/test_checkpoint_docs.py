"""The programs of docs/resume.md on checkpoint files run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from helpers.support import snapshot

import fastseed

PAGE = Path(__file__).resolve().parents[2] / "docs" / "resume.md"
TEXT = PAGE.read_text().partition("\n## Checkpoint files\n")[2]


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_programs_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    programs = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    assert programs
    names = {}
    for program in programs:
        exec(program, names)
        before = snapshot()
        exec(program, names)  # each saves and loads: nothing has moved
        assert snapshot() == before
    assert tuple(fastseed.derivation.context.seeder.scope) == (1, 7, 0)
    made = {"rng.fastseed", "sharded"}
    assert {path.name for path in tmp_path.iterdir()} == made


def test_torch_pickles_the_ints_of_a_plain_state(tmp_path):
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.metadata import BytesStorageMetadata

    fastseed.init(42)
    both = {"plain": fastseed.state_dict(), "wrapped": fastseed.checkpoint.Stateful(rng=True)}
    with pytest.warns(UserWarning, match="torch.distributed is disabled"):
        dcp.save(both, checkpoint_id=tmp_path / "x")
    saved = dcp.FileSystemReader(tmp_path / "x").read_metadata().state_dict_metadata
    pickled = {key for key, held in saved.items() if isinstance(held, BytesStorageMetadata)}
    assert pickled == {f"plain.{key}" for key in fastseed.state_dict()}
