"""Which tests a call of pytest runs."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from helpers import costs, stamps, tiers


class Item:
    """What `select` asks of a test."""

    def __init__(self, name: str, *marks: str) -> None:
        file, _, inside = name.partition("::")
        self.path, self.nodeid, self.marks = tiers.TESTS / file, f"tests/{name}", [*marks]
        self.add_marker = self.marks.append
        self.name = inside

    def get_closest_marker(self, name: str) -> str | None:
        return name if name in self.marks else None


def config(tier: str, *arguments: str) -> SimpleNamespace:
    return SimpleNamespace(
        getoption=lambda name: tiers._parse(tier),
        args=arguments,
        invocation_params=SimpleNamespace(dir=tiers.TESTS.parent),
        hook=SimpleNamespace(pytest_deselected=lambda items: None),
    )


def selected(*how: str) -> list[str]:
    items = [
        Item("data/test_a.py::fast"),
        Item("data/test_a.py::slow", "slow"),
        Item("csrc/test_b.py::programs"),
        Item("examples/test_c.py::whole"),
        Item("examples/test_c.py::small", "smoke"),
        Item("statistics/test_d.py::proof"),
        Item("statistics/test_d.py::slow", "slow"),
        Item("integrations/test_e.py::trainer"),
    ]
    tiers.select(config(*how), items)
    return [item.name for item in items]


def test_every_folder_of_a_tier_is_there():
    for name in {**tiers.FOLDERS, **tiers.FOLDERS_WITH_SMOKE}:
        assert (tiers.TESTS / name).is_dir(), name


def test_tiers_are_by_mark_then_by_folder_and_the_long_ones_come_first():
    assert selected("fast") == ["fast", "small"]
    assert selected("fast,slow") == ["slow", "whole", "slow", "fast", "small"]
    assert selected("proof") == ["proof"]
    assert selected("native") == ["programs"]
    assert selected("integrations") == ["trainer"]
    assert len(selected("all")) == 8
    with pytest.raises(ValueError, match="--tier must be of fast, slow"):
        tiers._parse("quick")


def test_a_test_that_is_named_runs_whatever_its_tier():
    assert selected("fast", "tests/data/test_a.py::slow") == ["slow", "fast", "small"]
    assert selected("fast", "tests/data/test_a.py") == ["fast", "small"]


@pytest.mark.parametrize(
    "tier, argument, ignored",
    [
        ("fast", "tests", True),
        ("fast", "tests/statistics", None),
        ("fast", "tests/statistics/test_d.py::proof", None),
        ("fast,proof", "tests", None),
    ],
)
def test_folders_of_other_tiers_are_not_imported(tier, argument, ignored):
    asked = config(tier, argument)
    assert tiers.pytest_ignore_collect(tiers.TESTS / "statistics", asked) is ignored
    assert tiers.pytest_ignore_collect(tiers.TESTS / "data", asked) is None
    assert tiers.pytest_ignore_collect(Path("/statistics"), asked) is None


def test_tests_above_the_limit_are_named_the_dearest_first():
    def report(seconds, when="call"):
        properties = [("CPU seconds", seconds)] if seconds else []
        return SimpleNamespace(when=when, user_properties=properties, nodeid=f"{seconds}")

    rows = costs.above([report(0.4), report(0.6), report(2.0), report(9.0, "setup"), report(0)])
    assert rows == [(2.0, "2.0"), (0.6, "0.6")]


@pytest.mark.parametrize("stage", stamps.INPUTS)
def test_a_stamp_holds_until_an_input_changes(stage, tmp_path, monkeypatch):
    monkeypatch.setattr(stamps, "stamp", lambda name: tmp_path / name)
    assert not stamps.holds(stage)
    (tmp_path / stage).write_text(stamps.digest(stage) + "\n")
    assert stamps.holds(stage)
    inputs = stamps.INPUTS[stage]
    monkeypatch.setitem(stamps.INPUTS, stage, (*inputs, "tests/package/test_tiers.py"))
    assert not stamps.holds(stage)
    monkeypatch.setitem(stamps.INPUTS, stage, (*inputs, "csrc/gone/*.h"))
    with pytest.raises(FileNotFoundError, match=rf"csrc/gone/\*\.h of {stage}"):
        stamps.digest(stage)


def test_content_changes_a_stamp_but_where_the_name_alone_counts(tmp_path, monkeypatch):
    monkeypatch.setattr(stamps, "ROOT", tmp_path)
    monkeypatch.setitem(stamps.INPUTS, "wheel", ("names of a/**/*", "a/b.py"))
    (tmp_path / "a").mkdir()
    found = []
    for name, text in (("b.py", "1"), ("b.py", "2"), ("c.py", "1"), ("c.py", "2"), ("c.so", "1")):
        (tmp_path / "a" / name).write_text(text)
        found.append(stamps.digest("wheel"))
    assert found[0] != found[1] != found[2] == found[3] == found[4]
