"""Name the tests of what has changed since a commit.

python tests/helpers/changed.py [COMMIT]     HEAD without a word; files in tests/, one a line
"""

import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Where the tests of a module are that are not, or not only, in the folder of its name.
ELSEWHERE = {
    "fastseed/__init__.py": ("package",),
    "fastseed/__main__.py": ("package", "cli"),
    "fastseed/pyt.py": ("seeder", "docs"),
    "fastseed/_utils": ("utils", "package", "checkpoint"),
    "fastseed/_backend/native.py": ("package",),
    "fastseed/_backend/compile.py": ("random", "nn"),
    "fastseed/_backend/private_torch.py": ("nn", "random", "package"),
    "fastseed/_backend/tensors.py": ("random", "sampling", "elastic"),
    "fastseed/_backend/recomputation.py": ("nn",),
    "fastseed/_backend/reference": ("backend", "random", "elastic", "sampling", "derivation"),
    "fastseed/cli/check.py": ("debug",),
    "fastseed/data/plan.py": ("distributed",),
    "fastseed/cli/verify.py": ("tools/verify",),
    "fastseed/derivation": ("seeder", "random"),
    "fastseed/distributed/discovery.py": ("seeder",),
    "fastseed/determinism/launch.py": ("cli",),
    "fastseed/integrations": ("seeder", "docs"),
    "csrc": ("backend", "csrc", "random", "generators"),
    "docs": ("docs",),
    "README.md": ("docs",),
    "benchmarks": ("benchmarks",),
    "examples": ("examples",),
    "setup.py": ("package",),
    "pyproject.toml": ("package",),
}


def changed_files(since: str = "HEAD") -> list[str]:
    """Return the files that differ from a commit, and those that git does not know."""
    commands = (
        ["git", "diff", "--name-only", "--no-renames", since],
        ["git", "ls-files", "--others", "--exclude-standard"],
    )
    return [
        line
        for command in commands
        for line in subprocess.check_output(command, cwd=ROOT, text=True).splitlines()
    ]


def tests_of(files: Iterable[str]) -> list[str]:
    """Return folders and files of tests, as pytest takes them, for these files."""
    found: set[str] = set()
    for file in files:
        parts = Path(file).parts
        if parts[0] == "fastseed" and len(parts) > 2:
            found.add(f"tests/{parts[1].strip('_')}")
        for start, folders in ELSEWHERE.items():
            if file == start or file.startswith(f"{start}/"):
                found.update(f"tests/{folder}" for folder in folders)
        if parts[0] == "tests":
            found.update(_tests_beside(Path(file)))
    there = sorted(name for name in found if (ROOT / name).exists())
    return [name for name in there if not any(name.startswith(f"{other}/") for other in there)]


def _tests_beside(file: Path) -> set[str]:
    """Return a file of tests, or those that use a helper, a script or known answers."""
    if file.name.startswith("test_"):
        return {str(file)}
    if file.name == "conftest.py":
        return {"tests"}
    stem = re.escape(file.stem)
    if file.parts[1] == "helpers":
        uses = re.compile(rf"helpers\.{stem}\b|from helpers import .*\b{stem}\b")
    else:
        uses = re.compile(rf"[\"'/]{stem}(\.\w+)?[\"']")
    users = [path for path in (ROOT / "tests").rglob("*.py") if uses.search(path.read_text())]
    found: set[str] = set()
    for path in users:
        if path.name.startswith("test_"):
            found.add(str(path.relative_to(ROOT)))
        elif path.parent.name == "helpers" and path != ROOT / file:
            found |= _tests_beside(path.relative_to(ROOT))
    return found


if __name__ == "__main__":
    print("\n".join(tests_of(changed_files(*sys.argv[1:2]))))
