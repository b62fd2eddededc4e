"""Public docstrings: a summary, every argument, and an example that runs."""

from __future__ import annotations

import doctest
import importlib
import inspect
import re
from typing import Any

import pytest

import fastseed

SUBPACKAGES = (
    "random",
    "nn",
    "sampling",
    "rollouts",
    "data",
    "distributed",
    "elastic",
    "checkpoint",
    "debug",
    "integrations",
    "pyt",
)
# Constants.
NO_EXAMPLE = {"SHARED", "__version__"}


def public_objects() -> dict[str, Any]:
    """Return every public function and class by its qualified name, each object once."""
    found: dict[str, Any] = {}
    seen: set[int] = set()
    for module in ("", *SUBPACKAGES):
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
        if p not in ("self", "args", "kwargs") and not p.startswith("_")
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
