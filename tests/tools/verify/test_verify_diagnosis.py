"""What explains differing runs is no more than what is known of them."""

from __future__ import annotations

import sys

import pytest

from fastseed.debug.bisection import Bisection, RecordedDifference
from fastseed.tools import verify
from fastseed.tools.verify import diagnosis
from fastseed.tools.verify.recordings import Parted
from fastseed.tools.verify.result import Finding

SUSPECT = Finding("generator", True, "draws from it", "train.py:3", "seed it")


def kinds(suspects: list[Finding], watched: bool) -> list[tuple[str, bool]]:
    return [(one.kind, one.certain) for one in diagnosis._unrepeated(None, suspects, watched)]


def test_arithmetic_is_left_only_where_draws_were_watched():
    assert kinds([], watched=True) == [("arithmetic", False)]
    assert kinds([], watched=False) == [("tensor", False)]
    assert kinds([SUSPECT], watched=True) == []


def test_a_schedule_that_is_not_brought_back_is_told_from_other_data():
    def says(group: str, name: str) -> str:
        parting = RecordedDifference(group, name, None, None)
        found = Bisection(8, False, 0, (parting,), 9, 1, ())
        return list(diagnosis._unresumed(Parted("whole-0", "resumed-0", found, True)))[-1].says

    assert "group 0.lr is another" in says("optimizer", "group 0.lr")
    assert "saw other data" in says("gradient", "0.weight")


SCRIPT = """
import argparse, json, random
import numpy as np
parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int)
parser.add_argument("--checkpoint")
parser.add_argument("--seed", type=int)
args, _ = parser.parse_known_args()
{before}
if args.seed is not None:
    np.random.seed(args.seed)
for epoch in range(args.epochs):
    loss = np.random.rand() + {drawn}
    print(json.dumps({{"epoch": epoch, "loss": loss}}))
open(args.checkpoint, "w").close()
"""


@pytest.mark.parametrize(
    ("before", "drawn", "says"),
    [
        ("", "random.random()", "(the module random): nothing has seeded it"),
        ("first = np.random.rand()", "first", "(the module numpy.random): before"),
    ],
)
def test_a_global_generator_that_nothing_seeds_is_named(tmp_path, before, drawn, says):
    """Of a script that seeds by hand, and does not know of us."""
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.format(before=before, drawn=drawn))
    command = [
        sys.executable, str(script), "--epochs", "{epochs}", "--checkpoint", "{checkpoint}",
        "[", "--resume", "{resume}", "]", "[", "--seed", "{seed}", "]",
    ]  # fmt: skip
    report = verify.verify(command, directory=tmp_path / "runs", epochs=2, runs=2, jobs=2)
    assert not report.passed
    (finding,) = [one for one in report.findings if one.kind != "lint"]
    assert (finding.kind, finding.certain) == ("generator", True) and says in finding.says


def test_the_probe_is_read_as_far_as_it_is_known(tmp_path):
    from fastseed.tools.verify import audit_run

    seen = [("seeded", "torch.manual_seed", "train.py:3"), ("early", "torch's generator", "so")]
    assert [one.kind for one in audit_run._findings(seen, True)] == ["audit", "generator"]
    assert [one.kind for one in audit_run._findings(seen, False)] == ["generator"]
