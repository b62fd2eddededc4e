"""The command and its placeholders: filled, left out, refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastseed.tools import verify
from fastseed.tools.verify.options import fill, placeholders

VALUES = {"epochs": "8", "total": "8", "run": "/r", "checkpoint": "/r/checkpoint"}


def filled(command: str, **more: str) -> str:
    return " ".join(fill(command.split(" "), {**VALUES, **more}))


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
        ("x a[0] b] [c {epochs}", {}, "x a[0] b] [c 8"),
        ("x {} {0} {1a} {a.b} {", {}, "x {} {0} {1a} {a.b} {"),
        ("x {{step:03d}} {{loss}}", {}, "x {{step:03d}} {loss}"),
        ("x { epochs } ${HOME:-x}", {}, "x { epochs } ${HOME:-x}"),
        ('x {"a":{"b":1}}', {}, 'x {"a":{"b":1}}'),
        ('x {"a":{"seed":{epochs}}}', {}, 'x {"a":{"seed":8}}'),
    ],
)  # fmt: skip
def test_fill(command, more, becomes):
    assert filled(command, **more) == becomes


def test_values_are_not_filled_again():
    assert filled("x {seed}", seed="{run}}}{{ [ $(date) ; \n") == "x {run}}}{{ [ $(date) ; \n"


def test_other_words_are_unchanged():
    hostile = ("x", "a b", "", "c\nd", "'", '"', ";", "$(touch x)", "`x`", "&&", "*", "é\udc80")
    assert fill(hostile, VALUES) == hostile


def test_names_of_placeholders():
    found = placeholders(["x", "{run}", "[", "{seed}", "or", "{stop}", "]", "{epochs}"])
    assert found == {"run", "seed", "stop", "epochs"}


_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0{"))


@given(st.lists(_TEXT, min_size=1))
def test_a_command_without_placeholders_is_unchanged(words):
    words = [word for word in words if word not in ("[", "]")]
    assert fill(words, {}) == tuple(words) and not placeholders(words)


@given(st.lists(st.sampled_from(["a", "[", "]", "or", "{seed}", "{run}", "{{x}}"])))
def test_any_command_is_refused_or_filled_from_its_own_words(words):
    try:
        found = fill(words, {"run": "R", "seed": "S"})
    except ValueError as error:
        assert str(error).startswith("fastseed.tools.verify: command")
    else:
        assert set(found) <= {"a", "or", "S", "R", "{x}"}


@pytest.mark.parametrize(
    ("command", "error", "message"),
    [
        ("python x", TypeError, "command must be a list of strings, got 'python x' of type str"),
        (None, TypeError, "command must be a list of strings, got None of type NoneType"),
        (["x", 3], TypeError, "command[1] must be a string, got 3 of type int"),
        ([], ValueError, "command must begin with a program, got []"),
        (["[", "{seed}", "]"], ValueError, "command must begin with a program, "),
        (["x", "{Epochs}"], ValueError, "command must have placeholders of epochs, total, "),
        (["x", "[", "{seed}", "[", "a", "]", "]"], ValueError, "[ and ] in pairs, not nested"),
        (["x", "]"], ValueError, "[ and ] in pairs, not nested, got ['x', ']']"),
        (["x", "[", "{seed}"], ValueError, "[ and ] in pairs, not nested"),
    ],
)  # fmt: skip
def test_wrong_commands(command, error, message):
    with pytest.raises(error, match=r"^fastseed\.tools\.verify: ") as found:
        verify.Options(command=command, directory="x", epochs=2)
    assert message in str(found.value)
