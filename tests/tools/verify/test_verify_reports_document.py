"""The JSON document: every bit comes back, and nothing else is taken for one."""

from __future__ import annotations

import json
import math
import struct
from dataclasses import replace
from pathlib import PurePosixPath

import numpy as np
import pytest
from helpers.made_reports import CASES, make, same, with_values
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fastseed.tools.verify import result
from fastseed.tools.verify.reports import json_report, load, write

# ---------------------------------------------------------------- any report


def from_bits(bits: int) -> float:
    return struct.unpack("<d", struct.pack("<Q", bits))[0]


doubles = st.one_of(
    st.floats(), st.integers(0, 2**64 - 1).map(from_bits), st.sampled_from([-0.0, 5e-324])
)
texts = st.text(max_size=12)
plain = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), texts)
    .filter(lambda value: not (isinstance(value, float) and math.isinf(value))),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=8,
)  # fmt: skip


@st.composite
def arrays(draw, n: int):
    return np.array(draw(st.lists(doubles, min_size=n, max_size=n)), np.float64)


@st.composite
def curves(draw):
    steps = draw(st.lists(texts, unique=True, max_size=5))
    return result.Curve(
        tuple(steps),
        draw(arrays(len(steps))),
        draw(st.booleans()),
        draw(st.integers(0, 17)),
        tuple(draw(st.lists(texts, max_size=2))),
    )


@st.composite
def bands(draw):
    steps = draw(st.lists(texts, max_size=5))
    n = len(steps)
    return result.Band(draw(st.integers(0)), tuple(steps), draw(arrays(n)), draw(arrays(n)))


@st.composite
def pairs(draw):
    steps = draw(st.lists(texts, max_size=4))
    n = len(steps)
    intervals = st.none() | st.builds(result.Interval, doubles, doubles)
    return result.Paired(
        *(draw(texts), draw(texts), draw(st.integers(0)), tuple(steps), draw(arrays(n))),
        *(draw(st.none() | arrays(n)) for _ in range(4)),
        *(draw(doubles), draw(intervals), draw(intervals), draw(st.none() | doubles)),
    )


def some(strategy):
    return st.lists(strategy, max_size=3).map(tuple)


differences = st.builds(
    result.Difference,
    *(texts, texts, st.none() | texts, st.none() | doubles, st.none() | doubles),
    *(st.integers(), st.integers()),
)
any_report = st.builds(
    result.Report,
    passed=st.booleans(),
    verdict=texts,
    required=texts,
    says=texts,
    runs=some(
        st.builds(
            result.Run,
            *(texts, st.sampled_from(result.EXPERIMENTS), st.integers(), some(texts), doubles),
            *(texts, curves()),
        )
    ),
    checks=some(
        st.builds(
            result.Check,
            *(texts, texts, st.none() | st.booleans(), st.booleans(), texts),
            *(some(differences), st.integers()),
        )
    ),
    findings=some(st.builds(result.Finding, texts, st.booleans(), texts, texts, texts)),
    bands=st.dictionaries(st.sampled_from(result.EXPERIMENTS), bands()),
    paired=some(pairs()),
    variance_ratio=st.none() | doubles,
    environment=some(st.lists(plain, max_size=6).map(tuple)),
    plan=st.dictionaries(texts, plain, max_size=4),
    seconds=doubles,
    versions=st.dictionaries(texts, texts, max_size=3),
    notes=some(texts),
)


def strict(text: str):
    def refuse(name):
        raise AssertionError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


@settings(deadline=None, max_examples=150, suppress_health_check=list(HealthCheck))
@given(any_report)
def test_round_trip(report):
    text = json_report.text(report)
    assert text.isascii()
    assert strict(text)["format"] == 1
    assert same(json_report.parse(text), report)


@pytest.mark.parametrize("case", CASES)
def test_round_trip_of_files(case, tmp_path):
    report = CASES[case]()
    path = write(report, tmp_path, formats=["json"])["json"]
    assert same(load(path), report)
    assert same(load(str(path)), report)


def test_the_comparison_of_the_round_trip_sees_a_bit():
    report = make(n=4)
    values = report.runs[0].curve.values.copy()
    values[2] = np.nextafter(values[2], 9)
    assert same(report, make(n=4))
    assert not same(report, with_values(report, "whole-0", values))
    assert not same(replace(report, seconds=0.0), replace(report, seconds=-0.0))


# ---------------------------------------------------------------- the form


def test_what_is_not_finite_is_a_string():
    values = [math.nan, math.inf, -math.inf, -0.0, from_bits(0xFFF8000000000001)]
    report = with_values(make(n=5, count=1), "whole-0", values)
    found = strict(json_report.text(report))["runs"][0]["curve"]["values"]
    assert found == ["NaN", "Infinity", "-Infinity", 0.0, "NaN:fff8000000000001"]
    assert math.copysign(1, found[3]) == -1


def test_plain_values_that_json_has_not():
    plan = {"seed": np.int64(7), "at": (1, math.inf), "flag": np.bool_(True), "rate": np.float32(2)}
    plan["where"] = PurePosixPath("/data")
    found = strict(json_report.text(replace(make(), plan=plan)))["plan"]
    assert found == {
        **{"seed": 7, "at": [1, "Infinity"], "flag": True, "rate": 2.0},
        "where": "/data",
    }


def test_an_argument_that_is_no_unicode_comes_back():
    report = make(count=1)
    run = replace(report.runs[0], command=("python", b"caf\xe9".decode("utf-8", "surrogateescape")))
    report = replace(report, runs=(run, *report.runs[1:]))
    assert same(json_report.parse(json_report.text(report)), report)


def test_every_field_of_a_report_is_in_the_document():
    found = strict(json_report.text(make()))
    assert list(found) == ["format", "kind", *result.Report.__dataclass_fields__]
    assert list(found["runs"][0]) == list(result.Run.__dataclass_fields__)


# ---------------------------------------------------------------- refusals


def changed(change) -> str:
    made = strict(json_report.text(make(count=2, n=4, differing=True)))
    change(made)
    return json.dumps(made)


def at(*path, value):
    def change(made):
        for key in path[:-1]:
            made = made[key]
        made[path[-1]] = value

    return change


CURVE = ("runs", 0, "curve")
DAMAGED = {
    "seconds-nan": (at("seconds", value="nan"), r"whose '/seconds' is a float64"),
    "seconds-bool": (at("seconds", value=True), r"whose '/seconds' is a float64"),
    "seconds-huge": (at("seconds", value=10**400), r"whose '/seconds' is a float64"),
    "nan-bits": (
        at(*CURVE, "values", 1, value="NaN:3ff0000000000000"),
        r"'/runs/0/curve/values/1'",
    ),
    "values-short": (at(*CURVE, "values", value=[1.0]), r"values' has a value for each step"),
    "values-none": (at(*CURVE, "values", value=None), r"values' is a list"),
    "steps-twice": (at(*CURVE, "steps", value=["a", "a", "b", "c"]), r"steps' has no repeats"),
    "step-number": (at(*CURVE, "steps", 2, value=3), r"'/runs/0/curve/steps/2' is a string"),
    "experiment": (at("runs", 1, "experiment", value="third"), r"'/runs/1/experiment' is whole, h"),
    "bands": (at("bands", "third", value=None), r"whose '/bands/third' is an object"),
    "number-float": (at("runs", 0, "number", value=0.5), r"number' is a whole number"),
    "number-bool": (at("runs", 0, "number", value=True), r"number' is a whole number"),
    "passed": (at("passed", value=1), r"'/passed' is true or false"),
    "paired": (at("paired", 0, "low99", value=[]), r"'/paired/0/low99' has a value for each step"),
    "band": (at("bands", "whole", "std", value=[1]), r"'/bands/whole/std' has a value for each"),
    "missing": (lambda made: made["checks"][0].pop("says"), r"with '/checks/0/says'"),
    "unknown": (at("runs", 0, "colour", value="red"), r"without the unknown '/runs/0/colour'"),
    "format": (at("format", value=2), r"of format 1, not '2'"),
    "format-bool": (at("format", value=True), r"of format 1, not 'True'"),
    "kind": (at("kind", value="sarif"), r"a report of `fastseed verify`"),
    "runs": (at("runs", value={}), r"'/runs' is a list"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_load_refuses_what_was_changed(name, tmp_path):
    change, message = DAMAGED[name]
    path = tmp_path / "report.json"
    path.write_text(changed(change))
    with pytest.raises(
        ValueError, match=rf"fastseed\.verify\.reports\.load: path must be .*{message}"
    ):
        load(path)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "a whole JSON document"),
        (b"\xff\xfe\x00", "a whole JSON document"),
        (b"[]", "a report of `fastseed verify`"),
        (b'{"kind": "fastseed-verify", "format": 1}', "a document with '/passed'"),
        (b'{"a": 1, "a": 2}', "without duplicate keys"),
        (b'{"a": NaN}', "without NaN"),
        (b"[" * 100_000, "nested less deeply"),
    ],
    ids=["empty", "bytes", "list", "bare", "double", "nan", "deep"],
)
def test_load_refuses_what_is_none(data, message, tmp_path):
    path = tmp_path / "x.json"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=f"path must be {message}"):
        load(path)


def test_load_refuses_a_cut_file(tmp_path):
    text = json_report.text(make(count=2, n=4))
    path = tmp_path / "x.json"
    for cut in range(0, len(text) - 2, 97):
        path.write_text(text[:cut])
        with pytest.raises(ValueError, match=r"load: path must be a whole JSON document"):
            load(path)


def test_load_of_no_path(tmp_path):
    with pytest.raises(TypeError, match="load: path must be a path, got int"):
        load(3)
    with pytest.raises(OSError):
        load(tmp_path / "none.json")
