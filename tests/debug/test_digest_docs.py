"""docs/spec/digests.md names what the code writes."""

from __future__ import annotations

import re
from pathlib import Path

from fastseed.debug import watch_file

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "spec" / "digests.md").read_text("utf-8")


def test_the_kinds_of_records_are_named():
    assert re.findall(r"^\| `(\w{4})` \|", TEXT, re.MULTILINE) == ["head", "tabl", "step"]
    assert watch_file.MAGIC.decode() in TEXT
