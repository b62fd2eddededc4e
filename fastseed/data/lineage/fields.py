"""Checks of the objects of a journal, which may come from anywhere."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ..._utils import JSON, validation

MOST_ELEMENTS = 2**20
Bounds = tuple[int, int]


def check_fields(
    function: str,
    argument: str,
    given: JSON,
    numbers: Mapping[str, Bounds],
    texts: Collection[str] = (),
    others: Collection[str] = (),
) -> dict[str, int]:
    """Return the integers of an object that has exactly these fields."""
    validation.check_instance(function, argument, given, dict, "an object")
    fields = {*numbers, *texts, *others}
    if set(given) != fields:
        rule = f"an object of {', '.join(sorted(fields))}"
        raise validation.value_error(function, argument, rule, sorted(map(str, given)))
    for field in texts:
        validation.check_text(function, f"{argument}[{field!r}]", given[field])
    return {
        field: validation.check_int(function, f"{argument}[{field!r}]", given[field], *bounds)
        for field, bounds in numbers.items()
    }


def check_list(function: str, argument: str, given: JSON) -> list[JSON]:
    """Return a list of a limited length."""
    found = validation.check_instance(function, argument, given, list, "a list")
    if len(found) > MOST_ELEMENTS:
        rule = f"of at most {MOST_ELEMENTS} elements"
        raise validation.value_error(function, argument, rule, len(found))
    return found
