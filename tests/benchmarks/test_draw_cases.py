"""Random number cases: right answers pass; one wrong bit or a constant baseline does not."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

from benchmarks import laws
from benchmarks.baselines import jax_draws, one_stream, stream_each
from benchmarks.case import Contest, Unavailable, WrongAnswer
from benchmarks.cases import draws

FAIR = torch.rand(5000, generator=torch.Generator().manual_seed(0))
WORDS = {4: torch.int32, 8: torch.int64}


def one_bit_off(value: torch.Tensor) -> torch.Tensor:
    """The last element by one bit."""
    value.view(WORDS[value.element_size()]).reshape(-1)[-1] ^= 1
    return value


class SpoiltBank:
    """Hands on all calls; what is drawn, or the keys of a reseed, are one bit off."""

    def __init__(self, bank: Any) -> None:
        self._bank = bank

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._bank, name)
        if not callable(value) or isinstance(value, torch.Tensor):
            return value

        def spoilt(*arguments: Any, **keywords: Any) -> Any:
            made = value(*arguments, **keywords)
            one_bit_off(self._bank.keys if made is None else made)
            return made

        return spoilt


def spoilt_function(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arguments, **keywords: one_bit_off(function(*arguments, **keywords))


CASES: dict[str, tuple[Callable[[], Contest], str, Callable[[Any], Any]]] = {
    "uniform": (
        lambda: draws.from_keys("uniform", 40, 64, stream_each.numpy_philox),
        "uniform", spoilt_function,
    ),
    "normal": (
        lambda: draws.from_keys("normal", 40, 64, stream_each.torch_generators),
        "normal", spoilt_function,
    ),
    "randint": (
        lambda: draws.from_keys("randint", 40, 64, one_stream.numpy_philox),
        "randint", spoilt_function,
    ),
    "uniform_": (
        lambda: draws.in_place("uniform", 9999, one_stream.torch_default),
        "uniform_", spoilt_function,
    ),
    "normal_": (
        lambda: draws.in_place("normal", 9999, one_stream.numpy_philox),
        "normal_", spoilt_function,
    ),
    "bank.uniform": (lambda: draws.bank_beside_jax("uniform", 40, 64), "bank", SpoiltBank),
    "bank.normal": (lambda: draws.bank_beside_jax("normal", 40, 64), "bank", SpoiltBank),
    "bank.randint": (lambda: draws.bank_beside_jax("randint", 40, 64), "bank", SpoiltBank),
    "bank.reseed, JAX": (lambda: draws.reseed_beside_jax(99), "bank", SpoiltBank),
    "bank.reseed, memset": (lambda: draws.reseed_beside_memset(99), "bank", SpoiltBank),
}  # fmt: skip


def build(name: str) -> Contest:
    try:
        return CASES[name][0]()
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize("name", CASES)
def test_check_accepts_fastseed_and_refuses_one_bit(name: str) -> None:
    made = build(name)
    made.check(made)
    _, callee, spoil = CASES[name]
    names = {**made.fastseed.names, callee: spoil(made.fastseed.names[callee])}
    spoilt = dataclasses.replace(made, fastseed=dataclasses.replace(made.fastseed, names=names))
    with pytest.raises(WrongAnswer):
        made.check(spoilt)


@pytest.mark.parametrize("name", ["uniform", "normal_"])
def test_check_refuses_a_baseline_that_writes_nothing(name: str) -> None:
    made = build(name)
    idle = tuple(dataclasses.replace(baseline, statement="pass") for baseline in made.baselines)
    with pytest.raises(WrongAnswer, match="values in"):
        made.check(dataclasses.replace(made, baselines=idle))


@pytest.mark.parametrize(
    "values, message",
    [
        (FAIR + 0.1, "values in"),
        (FAIR.square(), "a mean of"),
        (FAIR.round() * 0.98 + 0.01, "a standard deviation of"),
        (torch.full((5000,), float("nan")), "values in"),
        (FAIR[:4999], "of shape"),
        (FAIR.double(), "of dtype"),
    ],
)
def test_expect_baseline_refuses_what_is_no_uniform_draw(values, message) -> None:
    with pytest.raises(WrongAnswer, match=message):
        laws.expect_baseline(laws.UNIFORM, values, (5000,), "baseline")


def test_jax_that_is_missing_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(Unavailable, match="JAX is not installed"):
        draws.bank_beside_jax("uniform", 40, 64)
    with pytest.raises(Unavailable, match="JAX is not installed"):
        draws.reseed_beside_jax(40)


def test_jax_generators_that_cannot_win_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    costs = {"a": 1.0, "b": 4.9, "c": 5.1}
    monkeypatch.setattr(jax_draws, "_once", lambda side: costs[side.label])
    sides = [draws.Side(label, "pass", {}) for label in costs]
    assert [side.label for side in jax_draws._promising(sides)] == ["a", "b"]
