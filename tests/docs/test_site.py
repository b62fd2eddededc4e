"""The documentation site: built strictly, every public name in it, every page listed."""

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.paths import ROOT, SUBPACKAGES

import fastseed


def public_names() -> set[str]:
    """Return the qualified names of what the package and its subpackages export."""
    names = {f"fastseed.{name}" for name in fastseed.__all__ if name != "__version__"}
    for package in SUBPACKAGES:
        exported = importlib.import_module(f"fastseed.{package}").__all__
        names |= {f"fastseed.{package}.{name}" for name in exported}
    return names


def build(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Build a site as `make docs` does, with more arguments."""
    (command,) = re.findall(r"-m (mkdocs build.*)", (ROOT / "Makefile").read_text())
    return subprocess.run(
        [sys.executable, "-m", *command.split(), *arguments],
        capture_output=True, text=True, cwd=ROOT, timeout=300,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "warning"),
    [
        ("[a page](other.md#part)", None),
        ("[a page](missing.md)", "'missing.md'"),
        ("[a page](other.md#missing)", "'other.md#missing'"),
    ],
)
def test_site_with_a_broken_link_is_not_built(tmp_path, text, warning):
    pytest.importorskip("mkdocs")
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "index.md").write_text(f"# Home\n\n{text}\n")
    (docs / "other.md").write_text("# Other\n\n## Part\n")
    config = tmp_path / "mkdocs.yml"
    pages = "nav: [index.md, other.md]\nplugins: []\n"
    theme = f"theme: {{custom_dir: {ROOT}/docs/overrides}}\n"
    config.write_text(f"INHERIT: {ROOT}/mkdocs.yml\ndocs_dir: {docs}\n{theme}{pages}")
    done = build("--config-file", config, "--site-dir", tmp_path / "site")
    assert (done.returncode == 0) == (warning is None), done.stderr
    assert warning is None or warning in done.stderr


@pytest.mark.slow
def test_site_is_built_without_warnings_and_has_every_public_name(tmp_path):
    pytest.importorskip("mkdocs")
    done = build("--site-dir", tmp_path)
    assert done.returncode == 0, done.stderr
    pages = "".join(page.read_text() for page in (tmp_path / "api").rglob("*.html"))
    anchors = set(re.findall(r'id="(fastseed[\w.]*)"', pages))
    assert public_names() - anchors == set()
    assert (tmp_path / "llms.txt").exists()


def test_version_and_repository_are_stated_alike():
    metadata = (ROOT / "pyproject.toml").read_text()
    (version,) = re.findall(r'^version = "(.*)"$', metadata, re.M)
    (repository,) = re.findall(r'^Repository = "(.*)"$', metadata, re.M)
    site, citation = ((ROOT / name).read_text() for name in ("mkdocs.yml", "CITATION.cff"))
    assert f"site_name: fastseed {version}\n" in site and f"repo_url: {repository}\n" in site
    assert f"version: {version}\n" in citation and f"repository-code: {repository}\n" in citation
    for name in ("README.md", "SECURITY.md"):
        assert repository in (ROOT / name).read_text()


def test_files_that_pages_name_exist():
    named = set()
    for page in ("README.md", "CONTRIBUTING.md", "docs/**/*.md", "examples/*.md", "csrc/**/*.md"):
        for path in ROOT.glob(page):
            folders = "fastseed|tests|examples|csrc|benchmarks|docs"
            named |= set(re.findall(rf"`((?:{folders})/[\w/.*-]+)`", path.read_text("utf-8")))
    assert [name for name in sorted(named) if not [*ROOT.glob(name.rstrip("/"))]] == []


def test_code_on_pages_fits_into_its_column():
    """Of 80 characters; docs/ruff.toml formats the code so, but leaves comments and texts."""
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        blocks = re.findall(r"^```py(?:thon)?\n(.*?)^```", page.read_text("utf-8"), re.M | re.S)
        wide = [line for line in "".join(blocks).splitlines() if len(line) > 80]
        assert wide == [], page


def test_llms_txt_lists_every_page():
    listed = set(re.findall(r"\]\(([\w/-]+\.md)\)", (ROOT / "docs/llms.txt").read_text()))
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    assert listed == pages
