"""The doctor sees what was seeded and how far it has gone; the audit, who drew besides."""

from __future__ import annotations

import json
import random
import sys

import numpy as np
import pytest
import torch
from helpers.support import run_python, snapshot

import fastseed
from fastseed import cli
from fastseed.debug import checkup, rng_audit
from fastseed.derivation import context


@pytest.fixture(autouse=True)
def job(monkeypatch):
    monkeypatch.setattr(context, "seeder", None)


def rows(topic: str = "streams") -> dict[str, tuple[str, str]]:
    return {r.item: (r.status, r.says) for r in checkup.examine() if r.topic == topic}


def start() -> None:
    fastseed.init(42, rank=0, world_size=1)
    fastseed.reseed(1, 3)


def test_doctor_before_init_and_before_reseed():
    assert rows("job")["init"][0] == checkup.WRONG
    fastseed.init(42, rank=0, world_size=1)
    assert rows("job")["scope"] == (
        checkup.WRONG, "fastseed.reseed was not called: nothing is seeded yet",
    )  # fmt: skip
    assert rows() == {}


def test_doctor_counts_words():
    start()
    assert {says for _, says in rows().values()} == {"nothing drawn since reseed"}
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
    assert {says for _, says in rows().values()} == {f"{n} words drawn since reseed"}


@pytest.mark.parametrize(
    ("name", "seed"),
    [
        ("python", lambda: random.seed(7)),
        ("numpy", lambda: np.random.seed(7)),
        ("torch.cpu", lambda: torch.manual_seed(7)),
    ],
)
def test_doctor_sees_who_was_seeded_again(name, seed):
    start()
    seed()
    wrong = [item for item, (status, _) in rows().items() if status == checkup.WRONG]
    assert wrong == [name]


def test_doctor_sees_registered_generators():
    fastseed.init(42, rank=0, world_size=1)
    early, other = torch.Generator(), random.Random()
    fastseed.register_generator(early, name="early")
    fastseed.register_generator(other, name="other", shared=True)
    fastseed.register_generator(lambda seed: None, name="function")
    fastseed.register_generator(fastseed.GeneratorPool([torch.Generator()] * 2), name="pool")
    fastseed.reseed(1, 0)
    fastseed.register_generator(np.random.RandomState(3), name="late")
    found = rows()
    assert found["early"] == found["other"] == (checkup.FINE, "nothing drawn since reseed")
    assert found["late"][0] == checkup.WRONG
    assert found["function"] == (checkup.FINE, "a function, which cannot be read")
    assert found["pool"] == (checkup.FINE, "2 members")


def test_doctor_changes_nothing():
    start()
    torch.rand(3)
    before = snapshot()
    checkup.examine()
    with rng_audit.audit():
        pass
    assert snapshot() == before


def test_doctor_asks_ranks_only_where_there_are_some():
    start()
    (row,) = [r for r in checkup.examine(ranks=True) if r.topic == "ranks"]
    assert row.status == checkup.NOTE


# ---------------------------------------------------------------- audit


class Transform:
    def __init__(self) -> None:
        self.rng = np.random.default_rng(1)
        self.other = torch.Generator()
        self.idle = random.Random(2)


def test_audit_names_generators_that_nobody_registered():
    start()
    transform, known = Transform(), random.Random(1)
    fastseed.register_generator(known, name="known")
    with rng_audit.audit() as seen:
        random.random(), np.random.rand(), torch.rand(()), known.random()
        assert not seen
        transform.rng.random()
        torch.rand(1, generator=transform.other)
    found = {(f.kind, f.what, f.where) for f in seen.findings}
    assert found == {
        ("unregistered", "numpy.random._generator.Generator", "Transform.rng"),
        ("unregistered", "torch.Generator", "Transform.other"),
    }


def test_audit_sees_generators_that_come_and_go():
    start()
    with rng_audit.audit() as seen:
        np.random.default_rng().random()
    (finding,) = seen.findings
    assert finding.kind == "unseeded" and finding.where.startswith(f"{__file__}:")


@pytest.mark.parametrize(
    ("name", "seed"),
    [
        ("random.seed", lambda: random.seed(7)),
        ("numpy.random.seed", lambda: np.random.seed(7)),
        ("torch.manual_seed", lambda: torch.manual_seed(7)),
    ],
)
def test_audit_sees_who_seeds(name, seed):
    start()
    original = random.seed, np.random.seed, torch.manual_seed, np.random.default_rng
    with rng_audit.audit() as seen:
        seed()
    assert [(f.kind, f.what) for f in seen.findings] == [("seeded", name)]
    assert seen.findings[0].where.startswith(f"{__file__}:")
    assert (random.seed, np.random.seed, torch.manual_seed, np.random.default_rng) == original


def test_audit_sees_repeated_scopes_and_survives_errors():
    start()
    original = random.seed
    with rng_audit.audit() as seen:
        fastseed.reseed(1, 4)
        fastseed.reseed(1, 3)
    assert [(f.kind, f.what) for f in seen.findings] == [("repeated", "1 scopes")]
    with pytest.raises(ZeroDivisionError), rng_audit.audit():
        _ = 1 / 0
    assert random.seed is original


def test_audit_changes_no_draw():
    drawn = []
    for watched in (False, True):
        start()
        if watched:
            with rng_audit.audit():
                drawn.append((random.random(), np.random.rand(), float(torch.rand(()))))
        else:
            drawn.append((random.random(), np.random.rand(), float(torch.rand(()))))
    assert drawn[0] == drawn[1]


# ---------------------------------------------------------------- before anything is seeded

DRAWS = {
    "Python's": (random.random, lambda: random.seed(7)),
    "NumPy's": (np.random.rand, lambda: np.random.seed(7)),
    "torch's": (lambda: torch.rand(()), lambda: torch.manual_seed(7)),
}


def early(seen: rng_audit.Audit) -> list[tuple[str, str]]:
    return [(f.what.split()[0], f.where) for f in seen.findings if f.kind == "early"]


@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.parametrize("times", [1, 700])
def test_audit_sees_draws_that_nothing_seeded(name, times):
    draw, _ = DRAWS[name]
    with rng_audit.audit(fresh=True) as seen:
        for _ in range(times):
            draw()
    assert early(seen) == [(name, "nothing has seeded it")]


@pytest.mark.parametrize("name", DRAWS)
def test_audit_sees_draws_before_seeding_and_no_others(name):
    draw, seed = DRAWS[name]
    with rng_audit.audit(fresh=True) as seen:
        draw()
        seed()
        draw()
    ((what, where),) = early(seen)
    assert what == name and where.startswith(f"before {__file__}:")
    with rng_audit.audit(fresh=True) as seen:
        seed()
        draw()
    assert early(seen) == []


def test_audit_sees_draws_before_reseed():
    with rng_audit.audit(fresh=True) as seen:
        torch.rand(3)
        start()
        random.random(), np.random.rand(), torch.rand(())
    ((what, where),) = early(seen)
    assert what == "torch's" and f"{__file__}:" in where


def test_audit_is_not_fresh_after_reseed_or_where_states_are_put_back():
    state = random.getstate(), np.random.get_state(), torch.get_rng_state()
    with rng_audit.audit(fresh=True) as seen:
        random.setstate(state[0]), np.random.set_state(state[1]), torch.set_rng_state(state[2])
        random.random(), np.random.rand(), torch.rand(())
    assert not seen
    start()
    with rng_audit.audit(fresh=True) as seen:
        random.random(), np.random.rand(), torch.rand(())
    assert not seen
    with rng_audit.audit() as seen:  # what was seeded before it is not known
        random.random()
    assert not seen


def test_audit_leaves_out_what_packages_make_for_themselves(tmp_path):
    """They are made by an import; whether they were drawn from since cannot be told."""
    script = tmp_path / "train.py"
    script.write_text(PACKAGES)
    code = "import sys, fastseed.cli; print(fastseed.cli.main(sys.argv[1:]))"
    printed, _, code = run_python("-c", code, "doctor", "--json", script).strip().rpartition("\n")
    found = json.loads(printed)["findings"]
    assert code == "1" and {one["where"] for one in found} == {f"{script}:4", "Own.rng"}


PACKAGES = """
import random, sympy, tempfile
import numpy as np
sympy.core.random.shuffle([]), np.random.default_rng().random()
class Own:
    rng = random.Random()
"""

IMPORTED = "import random, numpy\nrandom.random()\nrng = numpy.random.default_rng()\nrng.random()\n"


def test_audit_leaves_out_what_packages_draw_while_they_are_imported(tmp_path, monkeypatch):
    """Not what the job drew before that, nor what its own modules draw."""
    for name in ("installed_1", "installed_2", "own_here"):
        (tmp_path / f"{name}.py").write_text(IMPORTED)
    monkeypatch.syspath_prepend(tmp_path)
    own = rng_audit._is_installed
    monkeypatch.setattr(rng_audit, "_is_installed", lambda n: n.startswith("installed_") or own(n))
    with rng_audit.audit(fresh=True) as seen:
        __import__("installed_1")
    assert not seen.findings
    with rng_audit.audit(fresh=True) as seen:
        torch.rand(()), np.random.default_rng().random()
        __import__("installed_2")
    assert [what for what, _ in early(seen)] == ["torch's"] and len(seen.findings) == 2
    with rng_audit.audit(fresh=True) as seen:
        __import__("own_here")
    assert [what for what, _ in early(seen)] == ["Python's"]
    assert [f.where for f in seen.findings if f.kind == "unseeded"] == [f"{tmp_path}/own_here.py:3"]


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
