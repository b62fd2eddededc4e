"""docs/distributed.md: its table is that of the presets."""

from __future__ import annotations

import re
from pathlib import Path

from fastseed import distributed

PAGE = Path(__file__).resolve().parents[2] / "docs" / "distributed.md"
TEXT = PAGE.read_text().partition("\n## Forked children\n")[0]


def but(shared):
    return f"every dimension but `{shared[0]}`" if shared else "every dimension"


def test_table_of_presets():
    rows = re.findall(r"^\| `(\w+_parallel)\((.*?)\)` \| (.*?) \| (.*?) ?\|$", TEXT, re.MULTILINE)
    assert len(rows) == 4
    for name, argument, outside, inside in rows:
        preset = getattr(distributed, name)(*([argument.strip('"')] if argument else []))
        assert preset == getattr(distributed, name)()
        rules = [("", {"shared_outside": (), "shared_inside": ()}), *preset.items()]
        fork, rule = rules[-1]
        assert outside == but(rule["shared_outside"])
        assert inside == (f'`fork_rng("{fork}")`: {but(rule["shared_inside"])}' if preset else "")
