"""Folders of the checkout."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
EXAMPLES = ROOT / "examples"
TESTS = ROOT / "tests"
SCRIPTS = TESTS / "scripts"
VECTORS = TESTS / "vectors"
