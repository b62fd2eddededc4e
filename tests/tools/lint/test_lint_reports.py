"""What is printed and written: text, JSON, SARIF 2.1.0, exit codes."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

import pytest

from fastseed import cli
from fastseed.tools import lint
from fastseed.tools.lint import runner, torch_docs
from fastseed.tools.lint.torch_docs import Listed

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


def test_json_and_sarif_of_the_command(job, command):
    done = command("--json", "--sarif", "out.sarif", ".")
    document = json.loads(done.stdout)
    assert done.returncode == 1
    assert [(one["path"], one["cell"], one["rule"]) for one in document["findings"]] == [
        ("a b%é.py", 0, "FS102"), ("n.ipynb", 1, "FS102"),
    ]  # fmt: skip
    assert document["files"] == 3 and document["ignored"] == 0 and document["notes"] == []
    whole = json.loads(Path("out.sarif").read_text())
    assert whole == lint.sarif.document(lint.check(["."]))
    assert sorted(p.name for p in job.iterdir() if "sarif" in p.name) == ["out.sarif"]


def test_sarif_follows_no_link_that_somebody_put_beside_it(job, command):
    victim = job / "victim.txt"
    for name in ("out.sarif", "out.sarif.partial"):
        victim.write_text("mine")
        (job / name).symlink_to(victim)
        assert command("--sarif", "out.sarif", ".").returncode == 1
        assert victim.read_text() == "mine"
    assert not (job / "out.sarif").is_symlink() and (job / "out.sarif.partial").is_symlink()
    assert [p.name for p in job.iterdir() if p.name.startswith(".out")] == []


def test_sarif_may_go_to_a_pipe(job, command):
    os.mkfifo(job / "pipe")
    reader = os.open(job / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert command("--sarif", "pipe", "fine.py").returncode == 0
        whole = json.loads(os.read(reader, 1 << 20))
    finally:
        os.close(reader)
    assert whole["version"] == "2.1.0" and (job / "pipe").is_fifo()


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["nowhere.py"], 2, "nowhere.py"),
        (["--select", "XY1", "."], 2, "select must be ids of rules"),
        (["--ignore", "FS102,", "."], 2, "ignore must be"),
        (["--sarif", "no/such/folder/x", "."], 2, "no/such/folder/x"),
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


# ---------------------------------------------------------------- SARIF

# Of each object of the standard that we write: what it must have, and what else we let it have
# (section 3 of SARIF 2.1.0). Its schema allows nothing that it does not know.
OBJECTS = {
    "log": ({"version", "runs"}, {"$schema"}),
    "run": ({"tool"}, {"columnKind", "invocations", "results"}),
    "driver": ({"name"}, {"rules", "version"}),
    "rule": (
        {"id"}, {"name", "shortDescription", "help", "defaultConfiguration", "properties"},
    ),
    "invocation": ({"executionSuccessful"}, {"toolExecutionNotifications"}),
    "result": ({"message"}, {"ruleId", "ruleIndex", "level", "locations", "partialFingerprints"}),
    "location": (set(), {"physicalLocation", "logicalLocations"}),
    "region": (set(), {"startLine", "startColumn", "endLine"}),
}  # fmt: skip


def shaped(name, value):
    must, may = OBJECTS[name]
    assert must <= set(value) <= must | may, (name, value)
    return value


@pytest.fixture
def document(job):
    (job / "bad.py").write_text("x = = 3\n")
    return lint.sarif.document(lint.check([job, DATA]))


def test_sarif_has_the_form_of_the_standard(document):
    assert shaped("log", document)["version"] == "2.1.0"
    (run,) = document["runs"]
    driver = shaped("driver", shaped("run", run)["tool"]["driver"])
    assert [shaped("rule", rule)["id"] for rule in driver["rules"]] == list(lint.RULES)
    assert [shaped("invocation", one) for one in run["invocations"]]
    assert run["columnKind"] == "unicodeCodePoints"
    assert len(run["results"]) > 80
    prints = set()
    for result in run["results"]:
        shaped("result", result)
        assert driver["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["level"] in ("error", "warning", "note") and result["message"]["text"]
        (place,) = result["locations"]
        physical = shaped("location", place)["physicalLocation"]
        assert " " not in physical["artifactLocation"]["uri"]
        region = shaped("region", physical.get("region", {}))
        assert all(type(number) is int and number >= 1 for number in region.values())
        assert bool(region) != ("logicalLocations" in place)
        prints.add(result["partialFingerprints"]["fastseedLint/v1"])
    assert len(prints) == len(run["results"])


def test_sarif_validates_against_the_schema(document):
    """By models that were generated from the standard's own JSON schema."""
    model = pytest.importorskip("pydantic_sarif.model")
    log = model.StaticAnalysisResultsFormatSarifVersion210JsonSchema
    found = log.model_validate(document)
    assert len(found.runs[0].results) == len(document["runs"][0]["results"])
    for spoil in (
        lambda run: run.pop("tool"),
        lambda run: run["results"][0].update(level="fatal"),
        lambda run: run["results"][0].update(line=3),
    ):
        worse = copy.deepcopy(document)
        spoil(worse["runs"][0])
        with pytest.raises(ValueError):
            log.model_validate(worse)


def test_addresses_in_sarif(job):
    relative = lint.sarif.document(lint.check(["."]))["runs"][0]["results"][0]
    uri = relative["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert unquote(uri) == "a b%é.py" and uri == "a%20b%25%C3%A9.py"
    absolute = lint.sarif.document(lint.check([job]))["runs"][0]["results"][0]
    uri = absolute["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert uri.startswith("file:///")


def test_fingerprints_outlive_a_move(job):
    def prints():
        results = lint.sarif.document(lint.check([job]))["runs"][0]["results"]
        return [one["partialFingerprints"] for one in results]

    before = prints()
    path = job / "a b%é.py"
    path.write_text("# one more line\n\n" + path.read_text())
    assert prints() == before


# ---------------------------------------------------------------- torch's list


def test_the_installed_torch_is_read():
    found = torch_docs.listed()
    assert found.problem == ""
    names = found.operations
    assert {one.kind for rows in names.values() for one in rows} == {"acts", "raises"}
    # Known of every torch from 2.10; the list itself is longer, and torch's.
    assert names["torch.nn.functional.grid_sample"][0].kind == "raises"
    assert names["torch.nn.functional.ctc_loss"] == names["torch.nn.CTCLoss"]
    (interpolate,) = names["torch.nn.functional.interpolate"]
    assert dict(interpolate.needs)["mode"] == ("linear", "bilinear", "bicubic", "trilinear")
    assert {row.kind: dict(row.needs)["reduce"] for row in names["torch.scatter_reduce"]} == {
        "acts": ("sum", "mean"), "raises": ("prod",),
    }  # fmt: skip
    assert names["torch.Tensor.index_add_"][0].kind == "acts"


def test_a_list_in_another_form_is_told_and_not_guessed(job, monkeypatch, request):
    import torch

    request.addfinalizer(torch_docs.listed.cache_clear)

    (job / "ops.py").write_text("import torch\nx = torch.histc(3)\n")
    assert [one.rule for one in lint.check(["ops.py"]).findings] == ["FS501"]
    for text in (None, "", "It throws.\n* torch.histc", "The following will throw a fit:\n  - `x`"):
        monkeypatch.setattr(torch.use_deterministic_algorithms, "__doc__", text)
        torch_docs.listed.cache_clear()
        report = lint.check(["ops.py"])
        assert report.findings == () and "does not list operations" in report.notes[0]
        assert torch.__version__ in report.notes[0]
    assert lint.check(["ops.py"], select=["FS1"]).notes == ()
    assert lint.check(["fine.py"]).notes == ()
    notified = lint.sarif.document(report)["runs"][0]["invocations"][0]
    assert notified["toolExecutionNotifications"][0]["message"]["text"] == report.notes[0]
    monkeypatch.undo()
    torch_docs.listed.cache_clear()
    assert isinstance(torch_docs.listed(), Listed) and torch_docs.listed().operations


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


def test_reports_are_the_same_in_any_order(tmp_path):
    paths = sorted(DATA.glob("*.py"))
    assert runner.check(paths) == runner.check([*reversed(paths), DATA])
