"""Say whether the inputs of a stage are those of its last run that passed: its stamp.

python tests/helpers/stamps.py proofs            exit 1 if they have changed
python tests/helpers/stamps.py proofs --write    note those of now, after a run that passed
"""

import hashlib
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_BUILT = (".so", ".pyc")
_NAMES = "names of "
INPUTS = {
    "proofs": (
        "csrc/core/*.h",
        "fastseed/_backend/reference/*.py",
        *(
            f"fastseed/elastic/{name}.py"
            for name in ("collector", "exchange", "leaf_scatter", "tree")
        ),
        "fastseed/random/fills.py",
        "fastseed/random/torch_functions.py",
        "tests/elastic/test_same_weights_grid.py",
        "tests/helpers/keyed_step.py",
        "tests/random/test_keyed_everywhere.py",
        "tests/scripts/same_weights_grid.py",
        "tests/statistics/*",
        "tests/vectors/make_*.py",
        "tests/vectors/*.txt",
    ),
    "native": ("csrc/**/*", "tests/csrc/**/*", "tests/vectors/*.txt"),
    # Of a module that is only packaged its name counts.
    "wheel": (
        f"{_NAMES}fastseed/**/*",
        "csrc/**/*",
        "fastseed/_backend/native.py",
        "fastseed/_backend/parts.py",
        *("setup.py", "pyproject.toml", "MANIFEST.in", "README.md"),
        "tests/package/test_wheel.py",
        "tests/derivation/test_vectors.py",
        "tests/docs/test_guides.py",
    ),
    "integrations": (
        "csrc/**/*",
        "fastseed/**/*.py",
        "pyproject.toml",
        "tests/conftest.py",
        "tests/helpers/*.py",
        "tests/integrations/**/*",
        "tests/examples/*.py",
        *("tests/nn/test_convert.py", "tests/nn/test_initialize*.py"),
        *(f"tests/scripts/{name}*.py" for name in ("accelerate", "lightning", "slots", "trainer")),
        "tests/scripts/adopted/*.py",
        "examples/**/*.py",
        *("docs/*.md", "docs/migration/*.md"),
    ),
}
"""The files on which what a stage finds depends; each pattern has to name one."""


def digest(stage: str) -> str:
    """Return the SHA-256 over the names and contents of the inputs of a stage."""
    lines: dict[Path, str] = {}
    for pattern in INPUTS[stage]:
        names = pattern.removeprefix(_NAMES)
        files = [path for path in ROOT.glob(names) if path.is_file() and path.suffix not in _BUILT]
        if not files:
            raise FileNotFoundError(f"no file is named by the pattern {names} of {stage}")
        for path in files:
            content = "" if names != pattern else hashlib.sha256(path.read_bytes()).hexdigest()
            lines[path] = max(lines.get(path, ""), f"{path.relative_to(ROOT)} {content}\n")
    return hashlib.sha256("".join(lines[path] for path in sorted(lines)).encode()).hexdigest()


def stamp(stage: str) -> Path:
    """Return the file that has the digest of the last run that passed."""
    return ROOT / "tests" / "stamps" / f"{stage}.sha256"


def holds(stage: str) -> bool:
    """Return whether the inputs of a stage are those of its stamp."""
    now = digest(stage)
    return stamp(stage).exists() and stamp(stage).read_text().strip() == now


if __name__ == "__main__":
    name, *options = sys.argv[1:]
    if "--write" in options:
        stamp(name).write_text(digest(name) + "\n")
    sys.exit(not holds(name))
