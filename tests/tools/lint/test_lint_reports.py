"""Reports: text, JSON, exit codes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from fastseed import cli
from fastseed.tools import lint
from fastseed.tools.lint import runner
from fastseed.tools.lint.rules import nondeterministic_ops

DATA = Path(__file__).resolve().parent / "cases"
NOTEBOOK = json.dumps(
    {"cells": [{"cell_type": "code", "source": "import random\nr = random.Random()"}]}
)


@pytest.fixture
def job(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a b%é.py").write_text("import random\nx = 'é', random.Random(\n)\n")
    (tmp_path / "n.ipynb").write_text(NOTEBOOK)
    (tmp_path / "fine.py").write_text("import random\n\nr = random.Random(3)\n")
    return tmp_path


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def command(job, capsys):
    """`fastseed lint` in this process; a second interpreter would load torch once more."""

    def run(*arguments):
        code = cli.main(["lint", *map(str, arguments)])
        return Done(code, *capsys.readouterr())

    return run


def test_text_names_file_line_rule_and_how_to_mend(command):
    done = command()
    assert done.returncode == 1 and done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0] == "a b%é.py:2:10: FS102 `random.Random()` without a seed"
    assert lines[1].strip() == f"fix: {lint.RULES['FS102'].fix}"
    assert lines[2] == "n.ipynb:cell 1:2:5: FS102 `random.Random()` without a seed"
    assert lines[-1] == "2 findings in 3 files"
    done = command("fine.py")
    assert (done.returncode, done.stdout) == (0, "0 findings in 1 file\n")


def test_json_of_the_command(job, command):
    done = command("--json", ".")
    document = json.loads(done.stdout)
    assert done.returncode == 1
    assert [(one["path"], one["cell"], one["rule"]) for one in document["findings"]] == [
        ("a b%é.py", 0, "FS102"), ("n.ipynb", 1, "FS102"),
    ]  # fmt: skip
    assert document["files"] == 3 and document["ignored"] == 0


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["nowhere.py"], 2, "nowhere.py"),
        (["--select", "XY1", "."], 2, "select must be ids of rules"),
        (["--ignore", "FS102,", "."], 2, "ignore must be"),
        (["empty"], 2, "no Python files in empty"),
        (["--colour"], 2, "--colour"),
    ],
)
def test_wrong_usage(job, command, arguments, code, says):
    (job / "empty").mkdir()
    done = command(*arguments)
    assert done.returncode == code and says in done.stderr and "Traceback" not in done.stderr


def test_select_ignore_and_the_table_of_rules(command):
    assert command("--select", "FS2,FS4", ".").returncode == 0
    assert command("--select", "FS1", "--ignore", "FS102", ".").returncode == 0
    done = command("--rules")
    assert done.returncode == 0
    assert [line.split()[0] for line in done.stdout.splitlines()[2:]] == list(lint.RULES)
    assert [rule["id"] for rule in json.loads(command("--rules", "--json").stdout)] == [*lint.RULES]


def test_nothing_that_is_checked_is_run(job):
    """In a process of its own, where a script that ran would be seen."""
    (job / "trap.py").write_text("open('ran', 'w').close()\nimport random\nrandom.Random()\n")
    done = subprocess.run(
        [sys.executable, "-m", "fastseed", "lint", "trap.py"],
        capture_output=True, text=True, timeout=120, encoding="utf-8",
    )  # fmt: skip
    assert done.returncode == 1 and done.stdout.startswith("trap.py:3:1: FS102"), done.stderr
    assert not (job / "ran").exists()


# ---------------------------------------------------------------- torch's list

# On torch's list, and not in the tables: no call shows their condition, or they differ by shape.
LEFT_OUT = {"bmm", "Tensor.__getitem__", "Tensor.scatter", "Tensor.resize_", "nn.NLLLoss"}


def test_the_tables_are_the_list_of_the_installed_torch():
    import torch

    text = torch.use_deterministic_algorithms.__doc__
    acts, raises = text.split("will act\n")[1].split("In addition")[0].split("will throw a\n")
    for part, table in ((acts, nondeterministic_ops.ACTS), (raises, nondeterministic_ops.RAISES)):
        listed = set(re.findall(r"\* :\w+:`torch\.([\w.]+)`", part)) - LEFT_OUT
        # `put_` is on both lists: on the CPU it is deterministic with the switch.
        listed -= {"Tensor.put_"} if part is acts else set()
        assert {one.name for one in table.values()} == listed


def test_pooling_to_one_value_is_a_mean():
    """Why FS501 says nothing of `AdaptiveAvgPool2d(1)`."""
    import torch

    images = torch.ones(1, 1, 4, 4, requires_grad=True)
    pool = torch.nn.functional.adaptive_avg_pool2d
    assert "Mean" in type(pool(images, 1).grad_fn).__name__
    assert "Adaptive" in type(pool(images, 2).grad_fn).__name__


# ---------------------------------------------------------------- files that import each other


def write(folder, **texts):
    for name, text in texts.items():
        path = folder / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def where(folder, rule, **options):
    findings = lint.check([folder], **options).findings
    return sorted(Path(one.path).name for one in findings if one.rule == rule)


def test_helpers_of_a_job_with_fastseed_run_under_it(tmp_path):
    seeds = "import torch\n\ndef f():\n    torch.manual_seed(3)\n"
    write(
        tmp_path,
        train="import fastseed\nfrom lib import helper\nfastseed.init(3)\n",
        lib__helper=f"from . import deeper\n{seeds}",
        lib__deeper=seeds,
        lib__other=seeds,
        lib__wrapper="import fastseed as f\n\ndef start():\n    f.init(3)\n    f.reseed(0)\n",
        script=f"import lib.wrapper\n{seeds}",
        measures=f"import fastseed\n{seeds}print(fastseed.debug.digest(3))\n",
    )
    assert where(tmp_path, "FS101") == ["deeper.py", "helper.py", "script.py"]
    every = ["deeper.py", "helper.py", "measures.py", "other.py", "script.py"]
    assert where(tmp_path, "FS101", adopted=True) == every


def test_the_switch_may_be_in_another_file(tmp_path):
    trains = "import torch\n\ndef train(x):\n    torch.nn.Conv2d(1, 1, 1)(x).sum().backward()\n"
    write(tmp_path, model=trains, main="import model\n")
    assert where(tmp_path, "FS502") == ["model.py"]
    for switch in (
        "import torch\ntorch.use_deterministic_algorithms(True)\n",
        "import torch\ntorch.set_deterministic_debug_mode('error')\n",
        "import fastseed\nfastseed.deterministic()\n",
        "from lightning import Trainer\nTrainer(deterministic=True)\n",
        "import torch\ntorch.backends.cudnn.deterministic = True\n",
    ):
        write(tmp_path, main=f"import model\n{switch}")
        off = ["model.py"] if "cudnn" in switch else []
        assert where(tmp_path, "FS502") == off, switch
    write(tmp_path, main="import model, torch\ntorch.use_deterministic_algorithms(False)\n")
    assert where(tmp_path, "FS502") == ["model.py"]
    write(tmp_path, model=trains + "torch.backends.cudnn.deterministic = True\n")
    assert where(tmp_path, "FS502") == []


def test_callbacks_take_care_of_loaders_and_epochs(tmp_path):
    text = (DATA / "epochs.py").read_text() + (DATA / "loading.py").read_text()
    write(tmp_path, a=text)
    assert len(where(tmp_path, "FS203")) == 6 and len(where(tmp_path, "FS301")) == 3
    write(tmp_path, a=f"{text}\nfrom fastseed.integrations import lightning\n")
    assert where(tmp_path, "FS203") == where(tmp_path, "FS301") == []
    write(tmp_path, a=f"{text}\nimport fastseed\nfastseed.data.steps(batches, 3)\n")
    assert len(where(tmp_path, "FS203")) == 6 and where(tmp_path, "FS301") == []


def test_the_loop_of_steps_takes_care_of_its_loader(tmp_path):
    text = "import fastseed, torch\nx = torch.utils.data.DataLoader(points, 4, shuffle=True)\n"
    write(tmp_path, a=text)
    assert where(tmp_path, "FS201") == ["a.py"]
    write(tmp_path, a=f"{text}steps = fastseed.data.steps(x, 3)\n")
    assert where(tmp_path, "FS201") == []


def test_reports_are_the_same_in_any_order(tmp_path):
    paths = sorted(DATA.glob("*.py"))
    assert runner.check(paths) == runner.check([*reversed(paths), DATA])
