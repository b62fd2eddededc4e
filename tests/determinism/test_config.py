"""The determinism section of a configuration file: what it takes, and what it refuses where."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import time

import pytest

from fastseed.determinism import config, config_files
from fastseed.determinism.config import Config

CLARA = {
    "python_seed": "20191015",
    "random_seed": 123456,
    "numpy_seed": 654321,
    "tf_seed": 11111,
}
WHOLE = {
    **CLARA,
    "torch_seed": 2**64 - 1,
    "master_seed": 42,
    "deterministic": "warn",
    "workers": 4,
}


def yaml_of(section):
    return "determinism:\n" + "".join(f"  {k}: {json.dumps(v)}\n" for k, v in section.items())


def toml_of(section):
    return "[determinism]\n" + "".join(f"{k} = {json.dumps(v)}\n" for k, v in section.items())


WRITERS = {
    "json": lambda section: json.dumps({"determinism": section}),
    "yaml": yaml_of,
    "toml": toml_of,
}


@pytest.fixture
def load(tmp_path):
    def load(text, suffix="json"):
        path = tmp_path / f"config.{suffix}"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return config.load(path)

    return load


def section_of(**keys):
    return {"determinism": keys}


@pytest.mark.parametrize("suffix", WRITERS)
def test_all_keys_in_all_formats(load, suffix):
    section = dict(WHOLE)
    if suffix == "toml":
        section["torch_seed"] = 2**63 - 1  # TOML's integers have 64 bits and a sign
    found = load(WRITERS[suffix](section), suffix)
    assert found.as_dict() == {**section, "python_seed": 20191015}


def test_claras_own_section_in_the_middle_of_its_file(load):
    file = {"epochs": 1240, "learning_rate": 1e-4, "determinism": CLARA, "train": {"a": [1, {}]}}
    assert load(json.dumps(file)) == Config(
        python_seed=20191015, random_seed=123456, numpy_seed=654321, tf_seed=11111
    )


def test_every_key_is_documented_and_has_a_rule():
    names = {field.name for field in dataclasses.fields(Config)}
    assert names == set(config._INTEGERS) | {"deterministic"} == set(WHOLE)


@pytest.mark.parametrize("value", ["0", "4294967295", 7])
def test_python_seed_may_be_a_string_of_digits(value):
    assert config.parse(section_of(python_seed=value)).python_seed == int(value)


@pytest.mark.parametrize("value", [True, False, "warn"])
def test_deterministic(value):
    assert config.parse(section_of(deterministic=value)).deterministic is value


HIGHEST = {
    "python_seed": 2**32 - 1,
    "random_seed": 2**64 - 1,
    "numpy_seed": 2**32 - 1,
    "torch_seed": 2**64 - 1,
    "tf_seed": 2**63 - 1,
    "master_seed": 2**64 - 1,
    "workers": 2**16,
}


@pytest.mark.parametrize("name", HIGHEST)
def test_bounds(name):
    for value in (0, HIGHEST[name]):
        assert config.parse(section_of(**{name: value})).as_dict() == {name: value}
    for value in (-1, HIGHEST[name] + 1):
        with pytest.raises(ValueError, match=rf"determinism\.{name} must be .*, got {value}$"):
            config.parse(section_of(**{name: value}))


@pytest.mark.parametrize("name", HIGHEST)
@pytest.mark.parametrize("value", [True, 1.0, None, [1], {"a": 1}, float("nan"), "x"])
def test_wrong_types(name, value):
    error = ValueError if (name, value) == ("python_seed", "x") else TypeError
    with pytest.raises(
        error, match=rf"fastseed.determinism.config.parse: determinism\.{name} must be an int"
    ):
        config.parse(section_of(**{name: value}))


@pytest.mark.parametrize("name", [name for name in HIGHEST if name != "python_seed"])
def test_strings_of_digits_are_for_python_seed_alone(name):
    with pytest.raises(TypeError, match=rf"determinism\.{name} .* got '12' of type str"):
        config.parse(section_of(**{name: "12"}))


@pytest.mark.parametrize("value", ["random", "-1", "1.0", "", " 1", "٣", "9" * 5000, str(2**32)])
def test_strings_that_are_no_python_seed(value):
    with pytest.raises(ValueError, match=r"determinism\.python_seed must be"):
        config.parse(section_of(python_seed=value))


@pytest.mark.parametrize("value", [1, 0, "true", "Warn", None, 1.0, []])
def test_what_deterministic_is_not(value):
    with pytest.raises(
        (TypeError, ValueError), match=r"determinism\.deterministic must be true, f"
    ):
        config.parse(section_of(deterministic=value))


@pytest.mark.parametrize("key", ["numpyseed", "Numpy_seed", "seed", "as_dict", "", "a.b"])
@pytest.mark.parametrize("suffix", WRITERS)
def test_unknown_keys(load, suffix, key):
    with pytest.raises(ValueError, match=r"determinism\..* must be one of python_seed, determin"):
        if suffix == "toml":
            load(f"[determinism]\n{json.dumps(key)} = 1\n", suffix)
        else:
            load(WRITERS[suffix]({json.dumps(key) if suffix == "yaml" else key: 1}), suffix)


@pytest.mark.parametrize("document", [{}, {"determinsm": {}}, section_of(), [], None, 3])
def test_the_section_has_to_be_there(document):
    if document == section_of():
        assert config.parse(document) == Config()
        return
    with pytest.raises(ValueError, match="determinism must be a section"):
        config.parse(document)


@pytest.mark.parametrize("section", [None, [], "x", 1])
def test_the_section_has_to_be_one(section):
    with pytest.raises(ValueError, match="determinism must be a section"):
        config.parse({"determinism": section})


# ---------------------------------------------------------------- files


DOUBLE = {
    "json": [
        ('{"determinism": {"tf_seed": 1, "tf_seed": 2}}', r"determinism\.tf_seed must be there on"),
        ('{"determinism": {}, "determinism": {}}', "determinism must be there once, got two"),
        ('{"a": [0, {"b": 1, "b": 1}], "determinism": {}}', r"a\[1\]\.b must be there once"),
    ],
    "yaml": [
        ("determinism:\n  tf_seed: 1\n  tf_seed: 2\n", r"determinism\.tf_seed must be there once"),
        ("determinism: {}\na: {b: {c: 1, 'c': 1}}\n", r"a\.b\.c must be there once, got two"),
        ("determinism: {}\ndeterminism: {}\n", "determinism must be there once"),
    ],
    "toml": [
        ("[determinism]\ntf_seed = 1\ntf_seed = 2\n", r"must be TOML, got .*line 3.*tf_seed = 2"),
        ("[determinism]\n[determinism]\n", r"must be TOML, got .*line 2.*\[determinism\]"),
    ],
}


@pytest.mark.parametrize(
    "suffix, text, message", [(s, *case) for s, cases in DOUBLE.items() for case in cases]
)
def test_a_key_twice(load, suffix, text, message):
    with pytest.raises(ValueError, match=f"fastseed.determinism.config.load: .*{message}"):
        load(text, suffix)


NOT_FINITE = {
    "json": ["NaN", "Infinity", "-Infinity", "1e999"],
    "yaml": [".nan", ".NaN", ".inf", "-.inf", "1.0e+999"],
    "toml": ["nan", "+nan", "inf", "-inf", "1e999"],
}


@pytest.mark.parametrize("suffix, value", [(s, v) for s, vs in NOT_FINITE.items() for v in vs])
def test_nan_and_infinity_with_their_place(load, suffix, value):
    text = {
        "json": f'{{"determinism": {{"numpy_seed": {value}}}}}',
        "yaml": f"determinism:\n  numpy_seed: {value}\n",
        "toml": f"[determinism]\nnumpy_seed = {value}\n",
    }[suffix]
    with pytest.raises(ValueError, match=r"determinism\.numpy_seed must be finite, got"):
        load(text, suffix)


def test_nan_elsewhere_in_the_file(load):
    with pytest.raises(ValueError, match=r"train\.lr\[1\] must be finite, got NaN"):
        load('{"determinism": {}, "train": {"lr": [1, NaN]}}')


@pytest.mark.parametrize("suffix", WRITERS)
def test_an_integer_without_end(load, suffix):
    started = time.process_time()
    with pytest.raises(ValueError, match=r"fastseed.determinism.config.load: "):
        load(WRITERS[suffix]({"tf_seed": 0}).replace("0", "9" * 900_000), suffix)
    assert time.process_time() - started < 20  # hours, if it were read


DEEP = {
    "json": ['{"determinism": ' + "[" * 40 + "]" * 40 + "}", "[" * 500_000, '{"a":' * 100_000],
    "yaml": ["determinism: " + "[" * 40 + "]" * 40, "[" * 500_000, "- " * 300_000, "{a: " * 90_000],
    "toml": [
        "[determinism]\na = " + "[" * 40 + "]" * 40,
        "a = " + "[" * 500_000,
        "a" + ".a" * 40 + " = 1",
        "a" + ".a" * 300_000 + " = 1",
    ],
}


@pytest.mark.parametrize("suffix, text", [(s, t) for s, ts in DEEP.items() for t in ts])
def test_nesting_is_bounded(load, suffix, text):
    with pytest.raises(
        ValueError, match=r"fastseed.determinism.config.load: (the file must|line 1 must be)"
    ):
        load(text, suffix)


def test_size_is_bounded(load):
    exact = '{"determinism": {}}' + " " * (2**20 - 19)
    assert load(exact) == Config()
    with pytest.raises(ValueError, match="at most 1048576 bytes"):
        load(exact + " ")


def test_values_are_bounded(load):
    text = json.dumps({"determinism": {}, "a": [0] * 100_001})
    with pytest.raises(ValueError, match="at most 100000 values"):
        load(text)


BOMB = "a0: &a0 [x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 12)
)


@pytest.mark.parametrize(
    "text",
    [
        BOMB + "determinism: {}\n",
        BOMB.replace("[", "{<<: [").replace("]", "]}") + "determinism: {}\n",
        "a: &a [*a]\ndeterminism: {}\n",
    ],
    ids=["lists", "merges", "cycle"],
)
def test_aliases_that_grow(load, text):
    with pytest.raises(ValueError, match=r"must hold at most 100000 values|must nest at most"):
        load(text, "yaml")


def test_honest_aliases_are_fine(load):
    text = "base: &base {lr: 0.1}\none: *base\ntwo: {<<: *base}\ndeterminism: {tf_seed: 3}\n"
    assert load(text, "yaml") == Config(tf_seed=3)


@pytest.mark.parametrize("where", ["determinism: {{}}\na: {}\n", "determinism:\n  tf_seed: {}\n"])
@pytest.mark.parametrize(
    "value",
    ["!!python/object/apply:os.system [echo]", "!x y", "!!binary aGk=", "!m {}", "!!set {a}"],
)
def test_tags_build_nothing(load, where, value):
    with pytest.raises(
        ValueError, match=r"fastseed.determinism.config.load: .* must be plain, got the tag"
    ):
        load(where.format(value), "yaml")


@pytest.mark.parametrize(
    "suffix, text",
    [
        *(("json", "{"), ("json", ""), ("json", "{'determinism': {}}"), ("json", "[]")),
        *(("yaml", "a: b: c"), ("yaml", ""), ("yaml", "--- {}\n--- {}\n"), ("yaml", "? [a]\n: 1")),
        *(("yaml", "a: \x00"), ("yaml", "a: 2001-99-99"), ("toml", "a"), ("toml", "a = 1 b")),
        *(("json", b"\xff\xfe{}"), ("yaml", b"a: \xff"), ("toml", b'a = "\xff"'), ("ini", "")),
    ],
)
def test_damaged_files(load, suffix, text):
    with pytest.raises(ValueError, match=r"^fastseed.determinism.config.load: "):
        load(text, suffix)


def test_a_byte_order_mark_is_no_damage(load):
    assert load(b'\xef\xbb\xbf{"determinism": {}}') == Config()


def test_files_that_are_none(tmp_path):
    with pytest.raises(FileNotFoundError):
        config.load(tmp_path / "gone.json")
    (tmp_path / "folder.json").mkdir()
    with pytest.raises((IsADirectoryError, ValueError)):
        config.load(tmp_path / "folder.json")
    with pytest.raises(TypeError, match=r"path must be a path, got 3 of type int"):
        config.load(3)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names")
def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.json")
    with pytest.raises(ValueError, match="must be a regular file"):
        config.load(tmp_path / "pipe.json")


@pytest.mark.parametrize("name, suffix", [("yaml", "yaml"), ("tomllib", "toml")])
def test_a_missing_reader_names_its_extra(load, monkeypatch, name, suffix):
    monkeypatch.setitem(sys.modules, name if sys.version_info >= (3, 11) else "tomli", None)
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=rf'pip install "fastseed\[{suffix}\]"'):
        load("", suffix)


@pytest.mark.parametrize(
    "path, text",
    [(("a", "b"), "a.b"), (("a", 2, "b"), "a[2].b"), (("a", "b c"), "a.'b c'"), ((), "the file")],
)
def test_paths_of_keys(path, text):
    assert config_files.dotted(path) == text


@pytest.mark.parametrize(
    "value",
    [
        '!!int ""',
        '!!int "_"',
        '!!float "_"',
        "!!bool maybe",
        "!!timestamp now",
        "1" + ":1" * 400 + ".5",
    ],
)
def test_yaml_that_is_no_value_is_refused(load, value):
    """PyYAML's constructors fail with whatever they stumble over."""
    with pytest.raises(ValueError, match=r"determinism.numpy_seed must be a value, got"):
        load(f"determinism: {{numpy_seed: {value}}}", "yaml")


def test_a_long_key_makes_no_long_message(load):
    with pytest.raises(ValueError) as caught:
        load(json.dumps(section_of(**{"k" * 100_000: 1})))
    assert len(str(caught.value)) < 1000
