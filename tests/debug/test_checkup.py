"""fastseed.debug.doctor, and the subcommand: what is seeded, and how many words were drawn."""

from __future__ import annotations

import json
import random
import sys

import numpy as np
import pytest
import torch
from helpers.support import snapshot, without_scope

import fastseed
from fastseed import cli
from fastseed.debug import checkup


def rows(topic: str = "streams") -> dict[str, tuple[str, str]]:
    return {r.item: (r.status, r.detail) for r in checkup.doctor() if r.topic == topic}


def start() -> None:
    fastseed.init(42, rank=0, world_size=1)
    fastseed.reseed(1, 3)


def test_doctor_before_init_and_before_reseed():
    assert rows("job")["init"][0] == checkup.WRONG
    without_scope()
    assert rows("job")["scope"] == (
        checkup.WRONG, "fastseed.reseed was not called: nothing is seeded yet",
    )  # fmt: skip
    assert rows() == {}


def test_doctor_counts_words():
    start()
    assert {detail for _, detail in rows().values()} == {"nothing drawn since reseed"}
    random.getrandbits(32)
    np.random.randint(0, 2**32, 1000, dtype=np.uint32)
    torch.empty(700, dtype=torch.int32).random_()
    found = rows()
    assert found["python"] == (checkup.FINE, "1 words drawn since reseed")
    assert found["numpy"] == (checkup.FINE, "1000 words drawn since reseed")
    assert found["torch.cpu"] == (checkup.FINE, "700 words drawn since reseed")


@pytest.mark.parametrize("n", [1, 623, 624, 625, 1247, 1248, 1249, 6240])
def test_doctor_counts_across_states(n):
    start()
    for _ in range(n):
        random.getrandbits(32)
    np.random.randint(0, 2**32, n, dtype=np.uint32)
    torch.empty(n, dtype=torch.int32).random_()
    assert {detail for _, detail in rows().values()} == {f"{n} words drawn since reseed"}


@pytest.mark.parametrize(
    ("name", "seed"),
    [
        ("python", lambda: random.seed(7)),
        ("numpy", lambda: np.random.seed(7)),
        ("torch.cpu", lambda: torch.manual_seed(7)),
    ],
)
def test_doctor_finds_generators_that_were_seeded_again(name, seed):
    start()
    seed()
    wrong = [item for item, (status, _) in rows().items() if status == checkup.WRONG]
    assert wrong == [name]


def test_doctor_examines_registered_generators():
    fastseed.init(42, rank=0, world_size=1)
    early, other = torch.Generator(), random.Random()
    fastseed.register_generator(early, name="early")
    fastseed.register_generator(other, name="other", shared=True)
    fastseed.register_generator(lambda seed: None, name="function")
    fastseed.register_generator(
        fastseed.GeneratorPool([torch.Generator()] * 2, "pool"), name="pool"
    )
    fastseed.reseed(1, 0)
    fastseed.register_generator(np.random.RandomState(3), name="late")
    found = rows()
    assert found["early"] == (checkup.FINE, "nothing drawn since reseed")
    assert found["other"] == (checkup.FINE, "nothing drawn since reseed, shared")
    assert found["late"][0] == checkup.WRONG
    assert found["function"] == (checkup.FINE, "a function, whose state is not examined")
    assert found["pool"] == (checkup.FINE, "2 members")


def test_doctor_changes_nothing():
    start()
    torch.rand(3)
    before = snapshot()
    checkup.doctor()
    assert snapshot() == before


def test_doctor_needs_a_process_group_to_compare_ranks():
    start()
    (row,) = [r for r in checkup.doctor(ranks=True) if r.topic == "ranks"]
    assert row.status == checkup.NOTE
    with pytest.raises(TypeError, match=r"fastseed.debug.doctor: ranks must be a bool, got 1"):
        checkup.doctor(ranks=1)


# ---------------------------------------------------------------- the command

SCRIPT = """
import sys
import numpy as np
import fastseed
fastseed.init(int(sys.argv[1]), rank=0, world_size=1)
fastseed.reseed(1, 0)
rng = np.random.default_rng(5)
{draw}
print("done")
"""


@pytest.mark.parametrize(
    ("draw", "code"), [("", 0), ("rng.random()", 1), ("raise SystemExit(3)", 1)]
)
def test_command_runs_a_script(tmp_path, capsys, draw, code):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.format(draw=draw))
    before = sys.argv, sys.path[:]
    assert cli.main(["doctor", "--json", str(script), "42"]) == code
    assert (sys.argv, sys.path) == before
    report = json.loads(capsys.readouterr().out)
    assert {"streams", "job", "build", "process"} == {row["topic"] for row in report["rows"]}
    assert [f["where"] for f in report["findings"]] == ([f"{script}:7"] if "rng" in draw else [])
    assert report["script"] == ("exit code 3" if "raise" in draw else None)


def test_command_without_a_script(capsys):
    assert cli.main(["doctor"]) == 0
    printed = capsys.readouterr().out
    assert "backend" in printed and "PYTHONHASHSEED" in printed and "master seed" not in printed
    assert cli.main(["doctor", "no_such_file.py"]) == 2
