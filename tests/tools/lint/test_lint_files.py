"""Which files are read and how; what is no Python gives a finding, never a crash."""

from __future__ import annotations

import ast
import json
import os
import random
import sys
import sysconfig
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fastseed.tools import lint
from fastseed.tools.lint import resolver, sources

FAULT = "import random\nr = random.Random()\n"


def rules(*paths, **options):
    return [(one.rule, one.line, one.column) for one in lint.check(paths, **options).findings]


def test_folders_are_walked_in_order_and_environments_left_out(tmp_path):
    wanted = ["a.py", "a/z.py", "b/c/d.py", "b/e.ipynb", "b.py"]
    others = [".hidden/x.py", "b/.x.py", "venv/x.py", "__pycache__/x.py", "b/node_modules/x.py"]
    others += ["conda/lib/x.py", "b/data.txt", "site-packages/x.py"]
    for name in (*wanted, *others):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text('{"cells": []}' if name.endswith("ipynb") else FAULT)
    (tmp_path / "venv" / "pyvenv.cfg").touch()
    (tmp_path / "conda" / "conda-meta").mkdir()
    found = [os.path.relpath(path, tmp_path) for path in sources.find([tmp_path])]
    assert found == ["a/z.py", "a.py", "b/c/d.py", "b/e.ipynb", "b.py"]
    # Given by name they are read, once.
    given = [tmp_path / ".hidden" / "x.py", tmp_path / "b" / "data.txt", tmp_path / ".hidden"]
    assert len(sources.find(given)) == 2
    assert [rule for rule, *_ in rules(*given)] == ["FS102", "FS102"]


def test_links_that_lead_in_circles_end(tmp_path):
    (tmp_path / "a.py").write_text(FAULT)
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "gone.py").symlink_to(tmp_path / "nowhere")
    assert sources.find([tmp_path]) == [str(tmp_path / "a.py")]


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"x = 3\ny = = 4\n", 2),
        (b"def f(:\n", 1),
        (b"x = 3\n\xff\xfe\n", 1),
        (b"# coding: klingon\nx = 3\n", 1),
        (b"# coding: rot13\nk = 3\n", 1),
        (b"# coding: ascii\n# \xc3\xa9\n", 1),
        (b"x = 3\0\n", 1),
        (b"(" * 5000, 1),
        (b"x = " + b"-" * 50000 + b"1\n", 1),
        ("x = 3".encode("utf-16"), 1),
        (b"print 'old'\n", 1),
        (b"\x80\x04K\x03.", 1),
    ],
    ids=range(12),
)
def test_what_is_no_python_is_a_finding(tmp_path, data, line):
    (tmp_path / "a.py").write_bytes(data)
    assert [(rule, at) for rule, at, _ in rules(tmp_path)] == [("FS001", line)]


@pytest.mark.parametrize(
    "data", [b"", b"\n", b"\xef\xbb\xbfx = 3\n", b"# coding: latin-1\n# \xe9\n"]
)
def test_what_is_odd_but_python_is_read(tmp_path, data):
    (tmp_path / "a.py").write_bytes(data)
    assert rules(tmp_path) == []


def test_places_are_of_characters_and_of_lines_as_python_counts_them(tmp_path):
    text = "import random\r\n# a\x0cb\x0b\u2028\r\nx = 'é\U0001f600', random.Random()\r\n"
    (tmp_path / "a.py").write_bytes(text.encode())
    assert rules(tmp_path) == [("FS102", 3, 11)]
    (tmp_path / "a.py").write_bytes(text.replace("\r\n", "\r").encode())
    assert rules(tmp_path) == [("FS102", 3, 11)]


def notebook(*cells):
    made = [{"cell_type": kind, "source": source} for kind, source in cells]
    return json.dumps({"cells": made, "nbformat": 4})


def test_cells_of_notebooks(tmp_path):
    text = notebook(
        ("markdown", "random.Random()"),
        ("code", ["%matplotlib inline\n", "import random\n", "!ls\n", "files = !ls\n"]),
        ("code", "%%bash\nx = = 3"),
        ("code", "%%time\nif True:\n    %pip install x\nrandom?\nr = random.Random()"),
        ("code", "random.Random().seed(3)\n# fastseed: ignore[FS9]"),
    )
    (tmp_path / "a.ipynb").write_text(text)
    found = lint.check([tmp_path]).findings
    assert [(one.rule, one.cell, one.line) for one in found] == [("FS102", 4, 5), ("FS002", 5, 2)]
    (tmp_path / "a.ipynb").write_text(notebook(("code", "x = 3"), ("code", "\ny = = 3")))
    found = lint.check([tmp_path]).findings
    assert [(one.rule, one.cell, one.line) for one in found] == [("FS001", 2, 2)]


@pytest.mark.parametrize("text", ["", "[]", '{"cells": 3}', '{"cells": [3]}', "[" * 100000, "{}",
                                  '{"cells": [{"cell_type": "code", "source": [3]}]}'])  # fmt: skip
def test_what_is_no_notebook_is_a_finding(tmp_path, text):
    (tmp_path / "a.ipynb").write_text(text)
    assert [rule for rule, *_ in rules(tmp_path)] == ["FS001"]


def test_wrong_arguments(tmp_path):
    (tmp_path / "a.py").write_text(FAULT)
    with pytest.raises(FileNotFoundError):
        lint.check([tmp_path / "nowhere"])
    with pytest.raises(TypeError, match="paths must be a list of paths, got '/x'"):
        lint.check("/x")
    with pytest.raises(TypeError, match=r"paths must be .*, got b'/x'"):
        lint.check([b"/x"])
    with pytest.raises(
        ValueError, match=r"^fastseed.tools.lint.check: select must be ids .*, got 'X1'"
    ):
        lint.check([tmp_path], select=["X1"])
    with pytest.raises(TypeError, match="ignore must be a list of ids"):
        lint.check([tmp_path], ignore="FS101")
    with pytest.raises(TypeError, match="select must be ids of rules"):
        lint.check([tmp_path], select=[3])
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="paths must be files or folders"):
        lint.check([tmp_path / "pipe"])
    assert len(sources.find([tmp_path])) == 1


def test_nothing_crashes_on_the_standard_library():
    folder = Path(sysconfig.get_path("stdlib"))
    every = sorted(p for p in folder.rglob("*.py") if "site-packages" not in p.parts)
    chosen = random.Random(5).sample([p for p in every if p.stat().st_size < 60_000], 80)
    report = lint.check(chosen, adopted=True)
    assert report.files == len(chosen)
    broken = {one.path for one in report.findings if one.rule == "FS001"}
    for path in broken:  # there are some that no Python reads
        with pytest.raises((SyntaxError, ValueError)):
            ast.parse(Path(path).read_bytes())
    again = lint.check(reversed(chosen[:20]), adopted=True)
    assert again == lint.check(chosen[:20], adopted=True)


def test_long_chains_need_no_depth(tmp_path):
    depth = sys.getrecursionlimit() // 2
    name = "import random, time, torch, os\n"
    sums = "seed = " + " + ".join(["hash('a' + 'b')"] * depth) + "\n"
    attributes = "x" + ".a" * depth + " = torch" + ".b" * depth + "()\n"
    slices = "data = os.listdir('images')" + "[:]" * depth + "\nprint(data[1:])\n"
    (tmp_path / "a.py").write_text(name + sums + attributes + slices)
    found = {rule for rule, *_ in rules(tmp_path)}
    assert found <= {"FS104", "FS001"}  # 3.12 may refuse to parse it; nothing else may happen
    resolver = "".join(f"a{i} = a{i + 1}\n" for i in range(500)) + "a500 = a0\nrandom.seed(a0)\n"
    (tmp_path / "a.py").write_text(name + resolver)
    assert rules(tmp_path) == []


SEEDS = sorted((Path(__file__).resolve().parent / "cases").glob("*.py"))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_nothing_crashes_on_mutated_programs(data):
    """Subtrees of the planted faults, exchanged at random, are unusual programs."""
    tree = ast.parse(data.draw(st.sampled_from(SEEDS)).read_text())
    holders = [
        (node, field, i)
        for node in ast.walk(tree)
        for field, value in ast.iter_fields(node)
        if isinstance(value, list) and not isinstance(node, ast.JoinedStr)
        for i, one in enumerate(value)
        if isinstance(one, ast.expr) and isinstance(getattr(one, "ctx", ast.Load()), ast.Load)
    ]
    for _ in range(data.draw(st.integers(1, 6))):
        to, of = data.draw(st.sampled_from(holders)), data.draw(st.sampled_from(holders))
        getattr(to[0], to[1])[to[2]] = getattr(of[0], of[1])[of[2]]
    try:
        text = ast.unparse(tree)
    except RecursionError:  # a tree that came to hold itself
        return
    source = sources.Source("a.py", text)
    try:
        module = lint.runner.Module(source)
    except sources.Unreadable:
        return
    for check in lint.runner.CHECKS:
        for fault in check(module):
            assert fault.rule in lint.RULES and fault.message and fault.node in module.names.scopes


@pytest.mark.parametrize("line", ["x = 1", "g = torch.Generator()", "for x in set(a): y.append(x)"])
def test_names_that_are_bound_thousands_of_times_are_looked_up_once(tmp_path, monkeypatch, line):
    """Work grows with a file's length, not with its square."""
    looked = 0
    meaning = resolver.Names._meaning

    def counting(self, binding, depth):
        nonlocal looked
        looked += 1
        return meaning(self, binding, depth)

    monkeypatch.setattr(resolver.Names, "_meaning", counting)
    file = tmp_path / "many.py"
    file.write_text("import torch\n" + f"{line}\n" * 1000)
    lint.check([file])
    assert looked < 10_000
