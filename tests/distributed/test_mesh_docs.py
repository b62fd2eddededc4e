"""docs/meshes.md: its programs run, and its table is that of the presets."""

from __future__ import annotations

import re
from pathlib import Path

from fastseed.distributed import mesh

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "meshes.md").read_text()


def test_programs_run(caplog):
    programs = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    assert len(programs) == 3
    names = {}
    for program in programs:
        exec(program, names)
    assert caplog.records == []


def but(same):
    return f"every dimension but `{same[0]}`" if same else "every dimension"


def test_table_of_presets():
    rows = re.findall(r"^\| `(\w+)\((.*?)\)` \| (.*?) \| (.*?) ?\|$", TEXT, re.MULTILINE)
    assert [row[0] for row in rows] == list(mesh.PRESETS)
    for name, argument, outside, inside in rows:
        preset = mesh.PRESETS[name](*([argument.strip('"')] if argument else []))
        assert preset == mesh.PRESETS[name]()
        assert outside == but(preset.same)
        expected = [f'`fork("{fork}")`: {but(same)}' for fork, same in preset.inside.items()]
        assert [inside] == (expected or [""])
