"""The command and its placeholders: filled, left out, refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastseed.tools.verify.command import Template

VALUES = {"epochs": "8", "total": "8", "run": "/r", "checkpoint": "/r/checkpoint"}


def filled(command: str, **more: str) -> str:
    return " ".join(Template(command.split(" ")).fill({**VALUES, **more}))


@pytest.mark.parametrize(
    ("command", "more", "becomes"),
    [
        ("x {epochs}", {}, "x 8"),
        ("{run}/x", {}, "/r/x"),
        ("x --a={epochs}/{total}:{run}", {}, "x --a=8/8:/r"),
        ("x [ --seed {seed} ] y", {"seed": "3"}, "x --seed 3 y"),
        ("x [ --seed {seed} ] y", {}, "x y"),
        ("x [ --seed {seed} --stop {stop} ]", {"seed": "3"}, "x"),
        ("x [ --resume {resume} or --seed {seed} ]", {"seed": "3"}, "x --seed 3"),
        ("x [ --resume {resume} or --seed {seed} ]", {"seed": "3", "resume": "p"}, "x --resume p"),
        ("x [ --resume {resume} or --seed {seed} ]", {}, "x"),
        ("x [ --seed {seed} or --any seed ]", {}, "x --any seed"),
        ("x [ --seed {seed} or ] y", {}, "x y"),
        ("x or y {epochs}", {}, "x or y 8"),
        ("x {{epochs}}", {}, "x {epochs}"),
        ("x {{{epochs}}}", {}, "x {8}"),
        ("x [[ {epochs} ]]", {}, "x [ 8 ]"),
        ("x [ [[ {seed} ]] ]", {"seed": "3"}, "x [ 3 ]"),
        ("x a[0] b] [c {epochs}", {}, "x a[0] b] [c 8"),
        ("x {} {0} {1a} {a.b} {", {}, "x {} {0} {1a} {a.b} {"),
        ("x { epochs } ${HOME:-x}", {}, "x { epochs } ${HOME:-x}"),
        ('x {"a":{"b":1}}', {}, 'x {"a":{"b":1}}'),
        ('x {"a":{"seed":{epochs}}}', {}, 'x {"a":{"seed":8}}'),
        ('x {{"a":{epochs}}}', {}, 'x {"a":8}'),
    ],
)  # fmt: skip
def test_fill(command, more, becomes):
    assert filled(command, **more) == becomes


def test_values_are_not_filled_again():
    assert filled("x {seed}", seed="{run}}}{{ [ $(date) ; \n") == "x {run}}}{{ [ $(date) ; \n"


def test_other_words_are_unchanged():
    hostile = ("x", "a b", "", "c\nd", "'", '"', ";", "$(touch x)", "`x`", "&&", "*", "é\udc80")
    assert Template(hostile).fill(VALUES) == hostile


def test_names_of_placeholders():
    found = Template(["x", "{run}", "[", "{seed}", "or", "{stop}", "]", "{epochs}"])
    assert found.names == {"run", "seed", "stop", "epochs"}
    assert found.required == {"run", "epochs"}


_SPECIAL = {"[", "]", "[[", "]]"}


_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0{"))


@given(st.lists(_TEXT, min_size=1))
def test_a_command_without_placeholders_is_unchanged(words):
    words = [word for word in words if word not in _SPECIAL] or ["x"]
    found = Template(words)
    assert found.fill({}) == tuple(words) and not found.names


@given(st.lists(st.sampled_from(["a", "[", "]", "or", "{seed}", "{run}", "{{", "}}", "[["])))
def test_any_command_is_refused_or_filled_from_its_own_words(words):
    try:
        found = Template(words)
    except ValueError as error:
        assert str(error).startswith("fastseed.tools.verify: command")
        return
    for values in ({"run": "R", "seed": "S"}, {"run": "R"}):
        if found.required <= values.keys():
            assert set(found.fill(values)) <= {"a", "or", "S", "R", "{", "}", "}}", "["}
            assert "S" not in found.fill({"run": "R"}) if "seed" not in found.required else True


@pytest.mark.parametrize(
    ("command", "error", "message"),
    [
        ("python x", TypeError, "command must be a list of strings, got 'python x' of type str"),
        (None, TypeError, "command must be a list of strings, got None of type NoneType"),
        (["x", 3], TypeError, "command[1] must be a string, got 3 of type int"),
        ([], ValueError, "command must be a list that begins with a program, got []"),
        (["[", "{seed}", "]"], ValueError, "command must be a list that begins with a program, "),
        (["x", "a\0b"], ValueError, "command must be a list of strings without NUL, got 'a\\x00b'"),
        (["x", "{Epochs}"], ValueError, "command must be a list with placeholders of {epochs}, "),
        (["x", "[", "{seed}", "[", "a", "]", "]"], ValueError, "pairs, not nested, got '[' at i"),
        (["x", "]"], ValueError, "pairs, not nested, got ']' at index 1"),
        (["x", "[", "{seed}"], ValueError, "pairs, not nested, got '{seed}' at index 2"),
        (["x", "[", "]"], ValueError, "a placeholder between [ and ] (or [[ and ]])"),
        (["x", "[", "a", "or", "{seed}", "]"], ValueError, "a placeholder between [ and ]"),
    ],
)  # fmt: skip
def test_wrong_commands(command, error, message):
    with pytest.raises(error, match=r"^fastseed\.tools\.verify: ") as found:
        Template(command)
    assert message in str(found.value)
