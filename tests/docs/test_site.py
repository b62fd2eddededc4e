"""The documentation site: built strictly, every public name in it, every page listed."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import fastseed

ROOT = Path(__file__).resolve().parents[2]
SUBPACKAGES = (
    "random", "nn", "nn.init", "sampling", "data", "distributed", "checkpoint", "debug",
    "integrations",
)  # fmt: skip


def public_names() -> set[str]:
    """Return the qualified names of what the package and its subpackages export."""
    names = {f"fastseed.{name}" for name in fastseed.__all__ if name != "__version__"}
    for package in SUBPACKAGES:
        exported = importlib.import_module(f"fastseed.{package}").__all__
        names |= {f"fastseed.{package}.{name}" for name in exported}
    return names


@pytest.mark.slow
def test_site_is_built_without_warnings_and_has_every_public_name(tmp_path):
    pytest.importorskip("mkdocs")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", tmp_path],
        capture_output=True, text=True, cwd=ROOT, timeout=300,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    pages = "".join(page.read_text() for page in (tmp_path / "api").rglob("*.html"))
    anchors = set(re.findall(r'id="(fastseed[\w.]*)"', pages))
    assert public_names() - anchors == set()
    assert (tmp_path / "llms.txt").exists()


def test_llms_txt_lists_every_page():
    listed = set(re.findall(r"\]\(([\w/-]+\.md)\)", (ROOT / "docs/llms.txt").read_text()))
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    assert listed == pages
