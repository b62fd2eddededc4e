"""The specification names what recordings hold."""

from __future__ import annotations

from helpers.paths import ROOT

from fastseed.debug import watch_file


def test_the_members_of_a_recording_are_named():
    text = " ".join(path.read_text("utf-8") for path in sorted((ROOT / "docs/spec").glob("*.md")))
    assert watch_file.FORMAT in text
    for member in ("crc32", "table", "table_number", "digests"):
        assert f"`{member}`" in text, member
