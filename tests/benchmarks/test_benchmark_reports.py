"""The pages that benchmarks write, and two checkouts beside each other."""

import dataclasses
import json
from pathlib import Path

import pytest
import torch
from helpers.paths import ROOT

from benchmarks import compare_checkouts, report
from benchmarks.case import Case, WrongAnswer
from benchmarks.cases import all_cases, keyed, small_calls

RESULTS = ROOT / "benchmarks" / "results"


@pytest.fixture
def results(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Return two made-up results of two cases with three contenders and one."""
    cases = [
        Case("op", "1", {"slow": 2, "fast": None, "absent": None}, lambda _: None),
        Case("best", "1", {"never": None}, lambda _: None, headline=True),
        Case("top", "1", {"slow": None}, lambda _: None, headline=True),
    ]
    monkeypatch.setattr(report, "all_cases", lambda: cases)
    summary = (
        ("the top", "top/{}/1", "slow", "a slow one"),
        ("not measured", "best/{}/1", "never", "one that is not here"),
        ("not the top", "op/{}/1", "fast", "a fast one"),
    )
    monkeypatch.setattr(report, "SUMMARY", summary)
    versions = {"python": "3.11", "torch": "2.13", "numpy": "2.0"}
    files = []
    for cpu in ("a CPU", "another CPU"):
        machine = {"cpu": cpu, "cores": 2, "simd": "avx2", "compiler": "g++ 12",
                   "date": "2026-01-01", "versions": versions}  # fmt: skip
        ok = {"status": "ok", "us": 2.0}
        lines = [
            {"machine": machine},
            {"case": "op/cpu/1", "beside": "slow", **ok, "beside_us": 1.0, "ratio": 0.5},
            {"case": "op/cpu/1", "beside": "slow", **ok, "beside_us": 6.0, "ratio": 3.0,
             "load": 0.11},
            {"case": "op/cpu/1", "beside": "fast", **ok, "beside_us": 0.2, "ratio": 0.1,
             "load": 0.1},
            {"case": "op/cpu/1", "beside": "absent", "status": "unavailable",
             "reason": "not installed"},
            {"case": "top/cpu/1", "beside": "slow", **ok, "beside_us": 24.0, "ratio": 12.0,
             "note": "by hand", "load": 0.5},
            {"case": "gone/cpu/1", "beside": "slow", **ok, "beside_us": 2.0, "ratio": 1.0},
        ]  # fmt: skip
        path = tmp_path / f"{cpu}.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        files.append(str(path))
    return files


def test_report_rewrites_only_between_its_markers(results, tmp_path: Path) -> None:
    page, readme = tmp_path / "page.md", tmp_path / "readme.md"
    before, after = "# Title\n\n| a | table |\n\n", "\n\nThe end: µ.\n"
    for file in (page, readme):
        file.write_text(f"{before}{report.BEGIN}\nold figures\n{report.END}{after}", "utf-8")
    arguments = [*results, "--page", str(page), "--readme", str(readme)]
    assert report.main(arguments) == 0
    texts = [page.read_text("utf-8"), readme.read_text("utf-8")]
    for text in texts:
        assert text.startswith(before + report.BEGIN) and text.endswith(report.END + after)
        assert "old figures" not in text and "gone" not in text
    assert texts[0].split(report.BEGIN)[1].split(report.END)[0].strip().splitlines() == [
        "CPU 1: a CPU, 2 cores (avx2), Python 3.11, torch 2.13, NumPy 2.0, g++ 12; 2026-01-01.  ",
        "CPU 2: another CPU, 2 cores (avx2), Python 3.11, torch 2.13, NumPy 2.0, g++ 12; "
        "2026-01-01. Busy: beside another process.",
        "",
        "| case | fastseed | beside | its time | ratio | CPU 2 |",
        "|:--|--:|:--|--:|--:|--:|",
        "| op/cpu/1 | 2 µs | slow (busy) | 6 µs | **3.00x** | **3.00x** |",
        "|  | 2 µs | fast | 200 ns | 0.10x | 0.10x |",
        "| top/cpu/1 | 2 µs | slow (busy) (by hand) | 24 µs | **12.0x** | **12.0x** |",
        "",
        "Not measured: `op/cpu/1` beside absent (not installed), `best/cpu/1` beside never.",
    ]
    assert texts[1].split(report.BEGIN)[1].split(report.END)[0].strip().splitlines() == [
        "a CPU, 2 cores, torch 2.13, 2026-01-01. Busy: beside another process.",
        "",
        "|  | fastseed | instead of | ratio |",
        "|:--|--:|:--|--:|",
        "| the top | 2 µs | a slow one, 24 µs (busy) | **12.0x** |",
        "| not the top | 2 µs | a fast one, 200 ns | 0.10x |",
    ]
    assert report.main(arguments) == 0
    assert [page.read_text("utf-8"), readme.read_text("utf-8")] == texts


@pytest.mark.parametrize(
    "text",
    ["no markers", report.BEGIN, f"{report.END}{report.BEGIN}", f"{report.BEGIN}{report.END}" * 2],
)
def test_report_without_one_pair_of_markers_changes_nothing(
    text: str, results, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(text)
    assert report.main([results[0], "--readme", str(readme)]) == 1
    assert readme.read_text() == text
    assert "must have one" in capsys.readouterr().err


def test_the_summary_names_cases_and_contenders_that_exist() -> None:
    exist = {(case.name("cpu"), beside) for case in all_cases() for beside in case.beside}
    assert {(case.format("cpu"), beside) for _, case, beside, _ in report.SUMMARY} <= exist


def test_the_pages_are_what_the_results_say(tmp_path: Path) -> None:
    pages = [ROOT / "docs/evidence/benchmarks.md", ROOT / "README.md"]
    copies = [tmp_path / page.name for page in pages]
    for page, copy in zip(pages, copies, strict=True):
        copy.write_bytes(page.read_bytes())
    files = [str(RESULTS / name) for name in ("cpu.jsonl", "cpu-zen4.jsonl")]
    assert report.main([*files, "--page", str(copies[0]), "--readme", str(copies[1])]) == 0
    for page, copy in zip(pages, copies, strict=True):
        assert copy.read_text("utf-8") == page.read_text("utf-8")


def test_checkouts_are_compared_in_turns(monkeypatch, capsys, tmp_path):
    """A case that takes longer runs again, alone; one that only one checkout has is named."""
    turns = []
    cases = {"old": {"a/1": 1.0, "b": 1.0, "c": 1.0, "d": 1.0}}
    cases["new"] = {"a/1": 1.2, "b": 1.2, "e": 1.0, "f": 1.0}

    def seconds(checkout, only, *how):
        turns.append(checkout.name)
        found = {name: s for name, s in cases[checkout.name].items() if only in name}
        return found if how else {name: 1.0 for name in found} if only == "b" else found

    monkeypatch.setattr(compare_checkouts, "seconds_of", seconds)
    arguments = [str(tmp_path / "old"), str(tmp_path / "new"), "--rounds", "3"]
    assert compare_checkouts.main([*arguments, "--rename", "c=e"]) == 1
    assert turns == ["old", "new", "new", "old", "old", "new"] * 3
    shown = capsys.readouterr().out
    assert " 1.20 x SLOWER a/1" in shown and " 1.00 x        e" in shown
    assert " 1.00 x        b" in shown
    assert "only new  f" in shown and "only old  d" in shown
    assert "1 of 3 cases are more than 1.05 x as slow" in shown


def test_the_seconds_of_a_checkout_are_those_of_its_rows():
    (name,) = compare_checkouts.seconds_of(ROOT, "keyed.block", "--quick")
    assert name == "keyed.block/cpu/empty"


CASES = {case.name("cpu"): case for case in (*small_calls.cases(), *keyed.cases())}


@pytest.mark.parametrize("name", CASES)
def test_a_wrong_answer_is_noticed(name):
    contest = CASES[name].build("cpu")
    side = contest.fastseed
    contest.check(side)
    draw = "found[0] = torch.randn(64)" if "found" in side.names else "torch.zeros(3)"
    with pytest.raises(WrongAnswer):
        contest.check(dataclasses.replace(side, statement=draw))
    label = next(iter(CASES[name].beside))
    assert list(contest.beside) == list(CASES[name].beside)
    contest.beside[label]()[0].run()
    assert torch.equal(side.names.get("ones", torch.ones(64)), torch.ones(64))
