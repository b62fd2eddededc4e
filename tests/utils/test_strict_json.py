"""JSON that other readers take otherwise is refused."""

import pytest

from fastseed._utils import strict_json


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("[NaN]", "without NaN"),
        ("-Infinity", "without -Infinity"),
        ("1e999", "without 1e999"),
        ('{"a": -1e999}', "without -1e999"),
        ('[{"a": 1, "a": 1}]', "without duplicate keys"),
        ("[1", "a whole JSON document (Expecting"),
        (b"\xff", "a whole JSON document ("),
        ("[" * 100_000, "nested less deeply"),
    ],
)
def test_what_is_refused(text, rule):
    with pytest.raises(strict_json.Invalid) as caught:
        strict_json.parse(text)
    assert str(caught.value).startswith(rule)


def test_what_is_read():
    assert strict_json.parse(b'{"a": [1.5, -1e308, null]}') == {"a": [1.5, -1e308, None]}
