"""Say whether the inputs of ``make proofs`` are those of its last run.

python tests/helpers/proofs.py            exit 1 if they have changed
python tests/helpers/proofs.py --write    note those of now, after a run that passed
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STAMP = ROOT / "tests" / "proofs.sha256"
INPUTS = (
    "csrc/core/*.h",
    "fastseed/_backend/reference/*.py",
    *(f"fastseed/elastic/{name}.py" for name in ("collector", "exchange", "leaf_scatter", "tree")),
    "fastseed/random/fills.py",
    "fastseed/random/torch_functions.py",
    "tests/elastic/test_same_weights_grid.py",
    "tests/helpers/keyed_step.py",
    "tests/random/test_keyed_everywhere.py",
    "tests/scripts/same_weights_grid.py",
    "tests/statistics/*",
    "tests/vectors/make_*.py",
    "tests/vectors/*.txt",
)


def digest() -> str:
    """Return the SHA-256 over the names and contents of the inputs."""
    found = hashlib.sha256()
    paths = []
    for pattern in INPUTS:
        files = [path for path in ROOT.glob(pattern) if path.is_file()]
        if not files:
            raise FileNotFoundError(f"no file is named by the pattern {pattern}")
        paths += files
    for path in sorted(paths):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        found.update(f"{path.relative_to(ROOT)} {content}\n".encode())
    return found.hexdigest()


if __name__ == "__main__":
    if "--write" in sys.argv:
        STAMP.write_text(digest() + "\n")
    sys.exit(not STAMP.exists() or STAMP.read_text().strip() != digest())
