"""`fastseed check` on the ranks of a job says whether they agree."""

from __future__ import annotations

import json

import pytest
from helpers.processes import run_job

from fastseed import cli
from fastseed.debug import generator_use as checkup


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """For each case, (exit code, row) of each of two ranks."""
    folder = tmp_path_factory.mktemp("check")
    run_job("check_ranks.py", 2, folder)
    ranks = [json.loads((folder / f"{rank}.json").read_text()) for rank in (0, 1)]
    return {case: [(code, *rows) for code, rows in (r[case] for r in ranks)] for case in ranks[0]}


def test_ranks_that_agree(found):
    for code, row in found["agree"]:
        assert code == 0 and row["status"] == checkup.FINE and row["detail"] == "2 ranks agree"


@pytest.mark.parametrize(
    ("case", "says"),
    [("another epoch", "scope is epoch"), ("no init", "call fastseed.init")],
)
def test_ranks_that_do_not_agree(found, case, says):
    """Both report it at once: neither waits for the other."""
    assert len(found[case]) == 2
    for code, row in found[case]:
        assert code == 1 and row["status"] == checkup.WRONG and says in row["detail"]
    assert "rank 1" in found[case][0][1]["detail"]


def test_a_job_of_one_has_no_ranks(tmp_path, capsys):
    script = tmp_path / "one.py"
    script.write_text("import fastseed\nfastseed.init(42, rank=0, world_size=1)\n")
    cli.main(["check", "--json", str(script)])
    assert "ranks" not in {row["topic"] for row in json.loads(capsys.readouterr().out)["rows"]}


def test_a_job_of_several_without_a_process_group(tmp_path, capsys):
    """The same as for a job that has closed it."""
    script = tmp_path / "several.py"
    script.write_text("import fastseed\nfastseed.init(42, rank=1, world_size=2)\n")
    cli.main(["check", "--json", str(script)])
    rows = json.loads(capsys.readouterr().out)["rows"]
    (row,) = [row for row in rows if row["topic"] == "ranks"]
    assert (
        row["status"] == checkup.NOTE and row["detail"] == "not checked: there is no process group"
    )
