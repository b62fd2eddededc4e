"""Which tests run: those of one tier, ``--tier fast`` without a word.

A folder may belong to a tier as a whole, a test by its mark; the other tests are fast. A test that
the command line names (``file.py::test``) runs, whatever its tier.
"""

from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
MARKS = ("slow", "native", "integrations", "proof")
TIERS = ("fast", *MARKS)
FOLDERS = {
    "benchmarks": "slow",
    "csrc": "native",
    "integrations": "integrations",
    "statistics": "proof",
}
# Of a tier too, but for their tests marked ``smoke``, which are fast.
FOLDERS_WITH_SMOKE = {"examples": "slow"}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--tier``."""
    parser.addoption(
        "--tier",
        type=_parse,
        default="fast",
        help=f"the tiers to run, with commas between: {', '.join(TIERS)}, or all; fast without it",
    )


def _parse(text: str) -> tuple[str, ...]:
    names = TIERS if text == "all" else tuple(text.split(","))
    unknown = [name for name in names if name not in TIERS]
    if unknown:
        raise ValueError(f"--tier must be of {', '.join(TIERS)}, or all, got {text!r}")
    return names


def chosen(config: pytest.Config) -> tuple[str, ...]:
    """Return the tiers of this run."""
    found: tuple[str, ...] = config.getoption("tier")
    return found


def _named(config: pytest.Config) -> list[tuple[Path, str]]:
    """Return file and rest of each argument of the command line, whose rest may be empty."""
    parts = (argument.partition("::") for argument in config.args)
    return [((config.invocation_params.dir / file).resolve(), rest) for file, _, rest in parts]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import folders of other tiers, which may need what is not installed for this one."""
    if collection_path.parent != TESTS:
        return None
    tier = FOLDERS.get(collection_path.name, "")
    tiers = {"slow", tier} if tier == "native" else {tier}  # some tests of csrc use fastseed
    if not tier or tiers & {*chosen(config)}:
        return None
    asked = any(path.is_relative_to(collection_path) for path, _ in _named(config))
    return None if asked else True


def tier_of(item: pytest.Item) -> str:
    """Return the tier of a test."""
    for name in MARKS:
        if item.get_closest_marker(name) is not None:
            return name
    if not item.path.is_relative_to(TESTS):  # a test that a test has written
        return "fast"
    folder = item.path.relative_to(TESTS).parts[0]
    if item.get_closest_marker("smoke") is None and folder in FOLDERS_WITH_SMOKE:
        return FOLDERS_WITH_SMOKE[folder]
    return FOLDERS.get(folder, "fast")


def select(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark every test with its tier, and keep those that were asked for, long ones first."""
    named = [(path, rest) for path, rest in _named(config) if rest]
    kept: dict[str, list[pytest.Item]] = {tier: [] for tier in reversed(TIERS)}
    left: list[pytest.Item] = []
    for item in items:
        tier = tier_of(item)
        if tier != "fast":
            item.add_marker(tier)
        inside = item.nodeid.partition("::")[2]
        by_name = any(item.path == path and inside.startswith(rest) for path, rest in named)
        (kept[tier] if tier in chosen(config) or by_name else left).append(item)
    if left:
        config.hook.pytest_deselected(items=left)
    items[:] = [item for tests in kept.values() for item in tests]
