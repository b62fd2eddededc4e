"""The programs that find the tests of a change, and plant faults in it."""

import pytest
from helpers import changed, mutants

SOURCE = '''
LIMIT = 8

def take(a: int = 1, *, b: bool = True) -> int:
    """Return a number."""
    if a < LIMIT and b:
        raise ValueError(f"a must be {1 + 1}")
    (a)  ==  (b)
    note(a)
    return a + 2
'''


def planted(lines: set[int] | None) -> list[str]:
    source = SOURCE.encode()
    found = mutants.faults_of("a.py", source, lines)
    return sorted(fault.planted(source).decode().splitlines()[fault.line - 1] for fault in found)


def test_faults_turn_conditions_move_bounds_and_leave_out_what_happens():
    assert planted(None) == sorted(
        [
            "LIMIT = 9",
            "def take(a: int = 2, *, b: bool = True) -> int:",
            "def take(a: int = 1, *, b: bool = False) -> int:",
            "    if not (a < LIMIT and b):",
            "    if ((a < LIMIT) or (b)):",
            "    if a <= LIMIT and b:",
            "        pass",
            "    (a)  !=  (b)",
            "    pass",
            "    return a - 2",
            "    return a + 3",
        ]
    )
    assert planted({10}) == ["    return a + 3", "    return a - 2"]


def test_a_fault_that_is_not_python_is_not_planted():
    source = b"def f():\n    def g():\n        nonlocal n\n    n = 0\n"
    faults = [fault for fault in mutants.faults_of("a.py", source, {4})]
    assert [mutants.compiles(fault, source) for fault in faults] == [False, True]


@pytest.mark.parametrize(
    "file, tests",
    [
        ("fastseed/data/steps.py", ["tests/data"]),
        ("fastseed/_utils/log.py", ["tests/checkpoint", "tests/package", "tests/utils"]),
        ("fastseed/cli/check.py", ["tests/cli", "tests/debug"]),
        ("tests/nn/test_convert.py", ["tests/nn/test_convert.py"]),
        ("tests/conftest.py", ["tests"]),
        ("README.md", ["tests/docs"]),
        ("CHANGELOG.md", []),
    ],
)
def test_the_tests_of_a_file_are_those_of_its_folder(file, tests):
    assert changed.tests_of([file]) == tests


def test_the_tests_of_a_helper_are_those_that_use_it_also_through_another():
    assert "tests/package/test_tiers.py" in changed.tests_of(["tests/helpers/tiers.py"])
    assert "tests/package/test_mutants.py" in changed.tests_of(["tests/helpers/matrix.py"])


def test_what_is_tested_elsewhere_is_there():
    for start, folders in changed.ELSEWHERE.items():
        assert (changed.ROOT / start).exists(), start
        assert all((changed.ROOT / "tests" / folder).is_dir() for folder in folders), folders
