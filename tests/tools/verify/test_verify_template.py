"""The command with places: what is filled, what is left out, what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastseed.tools.verify.command import PLACES, Template

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
def test_what_a_command_becomes(command, more, becomes):
    assert filled(command, **more) == becomes


def test_a_value_with_braces_is_no_place():
    assert filled("x {seed}", seed="{run}}}{{ [ $(date) ; \n") == "x {run}}}{{ [ $(date) ; \n"


def test_words_stay_words_whatever_is_in_them():
    hostile = ("x", "a b", "", "c\nd", "'", '"', ";", "$(touch x)", "`x`", "&&", "*", "é\udc80")
    assert Template(hostile).fill(VALUES) == hostile


def test_the_places_and_which_of_them_are_always_filled():
    found = Template(["x", "{run}", "[", "{seed}", "or", "{stop}", "]", "{epochs}"])
    assert found.places == {"run", "seed", "stop", "epochs"}
    assert found.fixed == {"run", "epochs"}
    assert found.command == ("x", "{run}", "[", "{seed}", "or", "{stop}", "]", "{epochs}")


_SPECIAL = {"[", "]", "[[", "]]"}


_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0{"))


@given(st.lists(_TEXT, min_size=1))
def test_a_command_without_places_comes_back_as_it_is(words):
    words = [word for word in words if word not in _SPECIAL] or ["x"]
    found = Template(words)
    assert found.fill({}) == tuple(words) and not found.places


@given(st.lists(st.sampled_from(["a", "[", "]", "or", "{seed}", "{run}", "{{", "}}", "[["])))
def test_any_command_is_refused_or_filled_from_its_own_words(words):
    try:
        found = Template(words)
    except ValueError as error:
        assert str(error).startswith("fastseed.tools.verify: command must ")
        return
    for values in ({"run": "R", "seed": "S"}, {"run": "R"}):
        if found.fixed <= values.keys():
            assert set(found.fill(values)) <= {"a", "or", "S", "R", "{", "}", "}}", "["}
            assert "S" not in found.fill({"run": "R"}) if "seed" not in found.fixed else True


KNOWN = ", ".join(f"{{{place}}}" for place in PLACES)


@pytest.mark.parametrize(
    ("command", "error", "says"),
    [
        ("python x", TypeError, "be a list of strings, got 'python x' of type str"),
        (b"x", TypeError, "be a list of strings, got b'x' of type bytes"),
        (None, TypeError, "be a list of strings, got None of type NoneType"),
        ({"x"}, TypeError, "be a list of strings, got {'x'} of type set"),
        (["x", 3], TypeError, "be a list of strings, got 3 of type int at 1"),
        (["x", None], TypeError, "be a list of strings, got None of type NoneType at 1"),
        ([], ValueError, "begin with a program, got []"),
        (["[", "{seed}", "]"], ValueError, "begin with a program, got ['[', '{seed}', ']']"),
        (["x", "a\0b"], ValueError, "hold no NUL, got one at 1"),
        (["x", "\ud800"], ValueError, "be text that the system can encode, got '\\ud800' at 1"),
        (["x", "{Epochs}"], ValueError,
         f"have places of {KNOWN} (a brace that is meant is {{{{), got {{Epochs}} at 1"),
        (["x", "[", "{seed}", "[", "a", "]", "]"], ValueError,
         "have [ and ] in pairs, none in another, got [ at 3"),
        (["x", "]"], ValueError, "have [ and ] in pairs, none in another, got ] at 1"),
        (["x", "[", "{seed}"], ValueError, "close its brackets with ], got one open"),
        (["x", "[", "]"], ValueError,
         "have a place between [ and ] (a bracket that is meant is [[ or ]]), got []"),
        (["x", "[", "a", "or", "{seed}", "]"], ValueError,
         "have a place between [ and ] (a bracket that is meant is [[ or ]]), got ['a']"),
    ],
)  # fmt: skip
def test_wrong_commands(command, error, says):
    with pytest.raises(error) as found:
        Template(command)
    assert str(found.value) == f"fastseed.tools.verify: command must {says}"
