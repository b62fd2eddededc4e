"""Folders of the checkout, and the public packages in fastseed."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
TESTS = ROOT / "tests"
SCRIPTS = TESTS / "scripts"
VECTORS = TESTS / "vectors"
SUBPACKAGES = (
    *("random", "nn", "sampling", "rollouts", "data", "distributed", "elastic", "checkpoint"),
    *("debug", "determinism", "integrations"),
)
