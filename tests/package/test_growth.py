"""Nothing grows faster than its input: work and bytes at n and at 4 n, counted, not timed."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
import torch

import fastseed

N = 150
MOST = 4**1.3
"""What a quantity at 4 N may be, of that at N."""


def work(function: Callable[[], object]) -> int:
    """Return how many lines of Python and calls of C a function runs."""
    count = 0

    def trace(_: FrameType, event: str, __: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    def profile(_: FrameType, event: str, __: object) -> None:
        nonlocal count
        count += event == "c_call"

    before = sys.gettrace(), sys.getprofile()
    sys.settrace(trace)
    sys.setprofile(profile)
    try:
        function()
    finally:
        sys.settrace(before[0])
        sys.setprofile(before[1])
    return count


def registered(n: int, make: Callable[[int], object] = lambda _: torch.Generator()) -> list[object]:
    """Register n generators anew."""
    fastseed.init(1, rank=0, world_size=1)
    made = [make(i) for i in range(n)]
    for i, generator in enumerate(made):
        name = generator.name if hasattr(generator, "name") else f"g{i}"
        fastseed.register_generator(generator, name=name)
    return made


def unregister(n: int, make: Callable[[int], object]) -> int:
    made = registered(n, make)
    again = [one.__self__.append if callable(one) else one for one in reversed(made)]
    return work(lambda: [fastseed.unregister_generator(one) for one in again])


def reseed(n: int, make: Callable[[int], object]) -> int:
    registered(n, make)
    return work(lambda: fastseed.reseed(1))


def load_state(n: int) -> int:
    registered(n)
    state = fastseed.state_dict(rng=True)
    return work(lambda: fastseed.load_state_dict(state))


def state_bytes(n: int) -> int:
    registered(n)
    held = fastseed.state_dict(rng=True).values()
    return sum(one.nbytes for one in held if isinstance(one, torch.Tensor))


def loop() -> Any:
    fastseed.init(1, rank=0, world_size=1)
    batches = torch.utils.data.DataLoader(range(100_000), 1, shuffle=True)
    return fastseed.data.steps(batches, epochs=1)


def skip(n: int) -> int:
    steps = loop()
    batches = iter(steps)
    next(batches)

    def run() -> None:
        for i in range(n):
            steps.skip(0, 10 + 4 * i, 11 + 4 * i)
        next(batches)

    return work(run)


def pass_over_skips(n: int) -> int:
    steps = loop()
    batches = iter(steps)
    next(batches)
    for i in range(n):
        steps.skip(0, 2 + 2 * i, 2 + 2 * i)
    return work(lambda: [next(batches) for _ in range(n)])


def quarantine(n: int) -> int:
    steps = loop()
    batches = iter(steps)

    def run() -> None:
        for i in range(n):
            next(batches)
            steps.quarantine([i])

    return work(run)


def views(n: int) -> torch.nn.Module:
    """Return a model of n parameters that are views of one storage."""
    memory, model = torch.zeros(2 * n), torch.nn.Module()
    parts = [torch.nn.Parameter(memory[2 * i : 2 * i + 2]) for i in range(n)]
    model.parts = torch.nn.ParameterList(parts)
    return model


def initialize(n: int) -> int:
    fastseed.init(1, rank=0, world_size=1)
    model = views(n)

    def run() -> None:
        with fastseed.nn.initialize(model):
            for one in model.parameters():
                torch.nn.init.normal_(one)

    return work(run)


def drop(n: int) -> int:
    fastseed.init(1, rank=0, world_size=1)
    fastseed.reseed(1)
    model = torch.nn.Sequential(*(torch.nn.Dropout() for _ in range(n)))
    return work(lambda: (fastseed.nn.convert(model)(torch.ones(2)), fastseed.nn.revert(model)))


def blocks(n: int) -> int:
    fastseed.init(1, rank=0, world_size=1)
    fastseed.reseed(1)

    def run() -> None:
        for i in range(n):
            with fastseed.random.keyed(f"a{i}"), fastseed.random.keyed("b", i):
                torch.rand(1)
            with fastseed.fork_rng(f"c{i}"):
                torch.rand(1)
        fastseed.state_dict(rng=True)

    return work(run)


ROWS: dict[str, Callable[[int], int]] = {
    "register_generator": lambda n: work(lambda: registered(n)),
    "unregister_generator": lambda n: unregister(n, lambda _: torch.Generator()),
    "unregister_generator of equal callables": lambda n: unregister(n, lambda _: [].append),
    "reseed of generators": lambda n: reseed(n, lambda _: torch.Generator()),
    "reseed of banks": lambda n: reseed(n, lambda i: fastseed.random.StreamBank(2, f"bank{i}")),
    "load_state_dict": load_state,
    "bytes of state_dict": state_bytes,
    "steps.skip": skip,
    "steps past skips": pass_over_skips,
    "steps.quarantine in each step": quarantine,
    "nn.perturb_ of views of one storage": lambda n: work(
        lambda: fastseed.nn.perturb_(views(n), 1, 0.1)
    ),
    "nn.initialize of views of one storage": initialize,
    "nn.convert, dropout layers in a scope, and nn.revert": drop,
    "blocks in a scope": blocks,
}
"""What is counted, by what is called n times or with n things."""


@pytest.mark.costly("each call at two sizes")
@pytest.mark.parametrize("measure", ROWS.values(), ids=ROWS.keys())
def test_nothing_grows_faster_than_its_input(measure):
    measure(2)  # what happens once in a process
    few, many = measure(N), measure(4 * N)
    assert many <= few * MOST, f"{few} at {N}, {many} at {4 * N}"
