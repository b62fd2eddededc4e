"""The diffs of pages, applied to scripts that have their lines: they do what the page says."""

import doctest
import importlib
import inspect
import json
import re
import subprocess
import sys
from typing import Any

import pytest
from helpers.paths import ROOT, SCRIPTS, SUBPACKAGES
from helpers.processes import Script, clean_environment

import fastseed

PARAMETERS = """
import hashlib
values = [parameter.tolist() for parameter in model.parameters()]
with open("parameters", "a") as file:
    file.write(hashlib.sha256(repr(values).encode()).hexdigest() + "\\n")
"""


def losses(text: str) -> list[tuple[int, dict]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.slow
def test_nano_loop_is_killed_and_goes_on_as_the_whole_run(tmp_path):
    (diff,) = [diff for diff in diffs("resume.md") if "micro_step" in diff]
    program = tmp_path / "train.py"
    program.write_text(applied(diff, (SCRIPTS / "nano_loop.py").read_text()))
    folders = [tmp_path / name for name in ("whole", "killed")]
    for folder in folders:
        folder.mkdir()
    whole = losses(Script(program, folders[0]).wait().stdout)
    assert len(whole) == 19 + 4
    for last in (7, 12):  # behind a checkpoint; the second start goes on at step 5, the third at 10
        done = Script(program, folders[1], last).wait()
        assert done.returncode == 1
    resumed = losses(Script(program, folders[1]).wait().stdout)
    assert resumed[0]["step"] == 10 and resumed == whole[-len(resumed) :]


@pytest.mark.slow
def test_quick_start_under_torchrun_trains_one_model(tmp_path):
    page = (ROOT / "docs/quick-start.md").read_text("utf-8")
    (script,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (diff,) = diffs("quick-start.md")
    program = tmp_path / "train.py"
    changed = applied(diff, script)
    program.write_text(changed.replace("del parallel", PARAMETERS + "del parallel"))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command = [*torchrun, "--nproc-per-node", "2", str(program)]
    done = subprocess.run(
        command, cwd=tmp_path, env=clean_environment(), capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    both = (tmp_path / "parameters").read_text().split()
    assert len(both) == 2 and both[0] == both[1]


def test_a_diff_whose_lines_are_not_there_is_noticed():
    script = "a\nb  # why\nc\ne\n"
    assert applied("+first\n b\n-c\n+d\n", script) == "first\na\nb  # why\nd\ne\n"
    with pytest.raises(AssertionError, match="no such line"):
        applied(" b\n a\n", "a\nb\n")


NO_EXAMPLE = {"SHARED", "__version__"}  # constants


def public_objects() -> dict[str, Any]:
    """Return every public function and class by its qualified name, each object once."""
    found: dict[str, Any] = {}
    seen: set[int] = set()
    for module in ("", "pyt", *SUBPACKAGES):
        path = f"fastseed.{module}".rstrip(".")
        holder = importlib.import_module(path)
        for name in holder.__all__:
            value = getattr(holder, name)
            if name not in NO_EXAMPLE and not inspect.ismodule(value) and id(value) not in seen:
                seen.add(id(value))
                found[f"{path}.{name}"] = value
    return found


PUBLIC = public_objects()


def documentation(name: str) -> dict[str, str]:
    """Return the docstrings of an object and of the public objects that they refer to."""
    texts, named, module = {}, {name}, name.rpartition(".")[0]
    while named:
        texts |= {other: inspect.getdoc(PUBLIC[other]) or "" for other in named}
        mentioned = set(re.findall(r"``([\w.]+)``", "\n".join(texts.values())))
        mentioned |= {f"{module}.{other}" for other in mentioned}
        named = PUBLIC.keys() & (mentioned - texts.keys())
    return texts


@pytest.mark.parametrize("name", PUBLIC)
def test_summary_and_arguments(name):
    value = PUBLIC[name]
    text = inspect.getdoc(value) or ""
    summary = text.split("\n\n")[0].strip()
    assert "\n" not in summary and summary.endswith((".", ":")), f"summary: {summary!r}"
    assert not re.search(r"\bsee (above|there)\b", text, re.IGNORECASE)
    if inspect.isclass(value) and issubclass(value, BaseException):
        return
    parameters = [
        p
        for p in inspect.signature(value).parameters
        if p not in ("self", "args", "kwargs", "wrong") and not p.startswith("_")
    ]
    text = "\n".join(documentation(name).values())
    if not (inspect.isclass(value) and issubclass(value, tuple)):
        missing = [p for p in parameters if not re.search(rf"^ *\*{{0,2}}`*{p}`*\b.*:", text, re.M)]
        assert not missing, f"not documented: {missing}"


@pytest.mark.usefixtures("frozen_objects")  # for the example of debug.check
@pytest.mark.parametrize("name", PUBLIC)
def test_example_runs(name):
    text = inspect.getdoc(PUBLIC[name]) or ""
    assert ">>> " in text, "the docstring has no example"
    for library in re.findall(r">>> import (\w+)$", text, re.M):
        pytest.importorskip(library)
    parsed = doctest.DocTestParser().get_doctest(
        text, {"fastseed": fastseed, "__name__": "example"}, name, None, 0
    )
    output: list[str] = []
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    failed, _ = doctest.DocTestRunner(optionflags=flags).run(parsed, out=output.append)
    assert not failed, "".join(output)


def diffs(page: str) -> list[str]:
    """Return the diffs of a page of docs/."""
    text = (ROOT / "docs" / page).read_text("utf-8")
    return re.findall(r"```diff\n(.*?)```", text, re.DOTALL)


def applied(diff: str, script: str) -> str:
    """Return a script with the changes of a diff, whose lines are found in their order.

    A line of the script may have a comment behind what the diff has of it.
    """
    given, made = script.splitlines(), []
    for line in diff.splitlines():
        kind, text = line[:1], line[1:]
        assert kind in ("+", "-", " "), line
        if kind == "+":
            made.append(text)
            continue
        while given and not (given[0] == text or given[0].startswith(text + "  #")):
            made.append(given.pop(0))
        assert given, f"the script has no such line, or none behind the one before: {text}"
        kept = given.pop(0)
        if kind == " ":
            made.append(kept)
    return "\n".join([*made, *given]) + "\n"
