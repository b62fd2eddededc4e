"""`fastseed check` on the ranks of a job says whether they agree."""

import contextlib
import io
import json

import pytest
import torch.distributed as dist
from helpers.ranks import ranks

from fastseed import cli
from fastseed.debug import generator_use as checkup

PROGRAM = """
import fastseed, torch.distributed as dist
group, dist.is_initialized = dist.is_initialized, lambda: False  # init would wait for all ranks
fastseed.init(42, rank={rank}, world_size=2)
dist.is_initialized = group
fastseed.reseed(1, {epoch})
"""


def check(case, folder):
    """Return the exit code of the command on this rank, and its row about ranks."""
    rank = dist.get_rank()
    program = PROGRAM.format(rank=rank, epoch=rank * (case == "another epoch"))
    script = folder / f"{rank}.py"
    script.write_text("" if case == "no init" and rank == 1 else program)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        code = cli.main(["check", "--json", str(script)])
    rows = json.loads(printed.getvalue())["rows"]
    return code, *(row for row in rows if row["topic"] == "ranks")


def test_ranks_that_agree(tmp_path):
    for code, row in ranks(2, check, "agree", tmp_path):
        assert code == 0 and row["status"] == checkup.FINE and row["detail"] == "2 ranks agree"


@pytest.mark.parametrize(
    ("case", "says"),
    [("another epoch", "scope is epoch"), ("no init", "call fastseed.init")],
)
def test_ranks_that_do_not_agree(tmp_path, case, says):
    """Both report it at once: neither waits for the other."""
    found = ranks(2, check, case, tmp_path)
    for code, row in found:
        assert code == 1 and row["status"] == checkup.WRONG and says in row["detail"]
    assert "rank 1" in found[0][1]["detail"]


@pytest.mark.usefixtures("frozen_objects")
def test_a_job_of_one_has_no_ranks(tmp_path, capsys):
    script = tmp_path / "one.py"
    script.write_text("import fastseed\nfastseed.init(42, rank=0, world_size=1)\n")
    cli.main(["check", "--json", str(script)])
    assert "ranks" not in {row["topic"] for row in json.loads(capsys.readouterr().out)["rows"]}


@pytest.mark.usefixtures("frozen_objects")
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
