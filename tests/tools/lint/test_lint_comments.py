"""Comments that keep the linter quiet, and what they cannot hide."""

from __future__ import annotations

from fastseed.tools import lint
from fastseed.tools.lint.noqa import suppressions

TWO = "import numpy as np\nimport random\na = np.random.default_rng(){}\nb = random.Random(){}\n"


def findings(tmp_path, text, **options):
    (tmp_path / "a.py").write_text(text, encoding="utf-8")
    report = lint.check([tmp_path], **options)
    return [(one.line, one.rule) for one in report.findings], report.ignored


def test_a_comment_hides_its_line_alone(tmp_path):
    comments = (
        "  # fastseed: ignore",
        "  # fastseed:ignore[FS102] for a reason",
        "#FASTSEED: ignore[fs1, FS2]",
        "  # noqa # fastseed: ignore[FS201] # fastseed: ignore[FS102]",
    )
    for comment in comments:
        assert findings(tmp_path, TWO.format(comment, "")) == ([(4, "FS102")], 1), comment
    assert findings(tmp_path, TWO.format("  # fastseed: ignore[FS103]", "")) == (
        [(3, "FS102"), (4, "FS102")], 0,
    )  # fmt: skip


def test_a_comment_on_any_line_of_a_call_hides_it(tmp_path):
    call = "import random\nx = random.Random(\n    None,{}\n){}\ny = 3{}\n"
    hides = ("  # fastseed: ignore[FS102]", "", "")
    for i in range(3):
        found, ignored = findings(tmp_path, call.format(*(hides[i:] + hides[:i])))
        assert ignored == len(found) ^ 1 == (i != 1), i


def test_a_whole_file(tmp_path):
    for comment in ("# fastseed: ignore-file", "# fastseed: ignore-file[FS102]"):
        assert findings(tmp_path, TWO.format("", "") + comment) == ([], 2)
    other, _ = findings(tmp_path, TWO.format("", "") + "# fastseed: ignore-file[FS4]")
    assert len(other) == 2


def test_a_string_is_no_comment(tmp_path):
    text = "import random\nx = random.Random(), '# fastseed: ignore'\n"
    text += "'''\n# fastseed: ignore-file\n'''\n"
    assert findings(tmp_path, text) == ([(2, "FS102")], 0)


def test_unknown_rules_are_told_with_their_place(tmp_path):
    found = suppressions("x = 3  # fastseed: ignore[FS101, FS999]\n# fastseed: ignore-file[]\n")
    assert [(line, column, name) for line, column, name in found.unknown] == [
        (1, 8, "FS999"), (2, 1, ""),
    ]  # fmt: skip
    text = TWO.format("  # fastseed: ignore[E501]", "  # fastseed: ignore[manual]")
    assert findings(tmp_path, text)[0] == [
        (3, "FS102"), (3, "FS002"), (4, "FS102"), (4, "FS002"),
    ]  # fmt: skip


def test_what_cannot_be_read_is_told_in_spite_of_comments(tmp_path):
    found, _ = findings(tmp_path, "# fastseed: ignore-file\nx = = 3  # fastseed: ignore[FS001]\n")
    assert found == [(2, "FS001")]


def test_select_and_ignore(tmp_path):
    text = TWO.format("", "") + "import torch\ng = torch.Generator()\n"
    assert findings(tmp_path, text, select=["FS103"])[0] == [(6, "FS103")]
    assert len(findings(tmp_path, text, select=["FS1"], ignore=["FS102"])[0]) == 1
    assert findings(tmp_path, text, ignore=["FS"])[0] == []
