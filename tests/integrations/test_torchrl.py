"""The recipe for torchrl in docs/rl-frameworks.md: the code of the page itself, PPO on CartPole."""

from __future__ import annotations

import multiprocessing
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.paths import ROOT
from helpers.processes import run_python

import fastseed

pytest.importorskip("torchrl", reason="torchrl is not installed")
multiprocessing.set_start_method(None, force=True)  # its import chooses spawn for every test

pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("ignore")]

STEPS = 5
EPISODES = ("observation", "action", ("next", "observation"), ("next", "reward"), ("next", "done"))


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)  # for the checkpoints
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the tensors are small
    yield
    torch.set_num_threads(threads)


def block() -> str:
    """Return the code of the page."""
    page = (ROOT / "docs" / "rl-frameworks.md").read_text("utf-8")
    found = re.search(r"^## torchrl\n.*?```py\n(.*?)```", page, re.MULTILINE | re.DOTALL)
    assert found
    return found[1]


def recipe(changes: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Run the code of the page, with some expressions replaced, and return its names."""
    code = block()
    for before, after in (changes or {}).items():
        assert before in code
        code = code.replace(before, after)
    names: dict[str, Any] = {"__name__": "recipe"}
    exec(code, names)
    return names


def plain() -> dict[str, Any]:
    """Return the recipe without fastseed, but with the state of torch's generator restored."""
    names = recipe()
    started = False

    def begin(step: int, members: Iterable[int], env: Any, buffer: Any) -> None:
        nonlocal started
        if not started:
            env.set_seed([42 + k for k in members], static_seed=True)
            if step:
                torch.set_rng_state(torch.load(f"generator-{step}.pt"))
            else:
                torch.manual_seed(42)
        started = True
        torch.save(torch.get_rng_state(), f"generator-{step}.pt")
        buffer.empty()

    names.update(begin=begin, Choice=torch.distributions.Categorical)
    return names


def trained() -> int:
    """Return the digest of the weights and the optimizer in the last checkpoint; remove it."""
    state = torch.load(f"step-{STEPS}.pt")
    Path(f"step-{STEPS}.pt").unlink()
    return fastseed.debug.digest([state["loss"], state["optimizer"]]).value


def results(make: Callable[[], dict[str, Any]], at: int) -> list[int]:
    """Return the digests of a whole run, and of one that resumes at step ``at``."""
    found = []
    for resume in (None, f"step-{at}.pt" if at else None):
        make()["train"](STEPS, resume=resume)
        found.append(trained())
    return found


@pytest.mark.parametrize("at", range(1, STEPS))
def test_a_resumed_run_is_the_same_run(at):
    whole, rest = results(recipe, at)
    assert whole == rest


def test_a_run_resumed_in_a_new_process_is_the_same_run():
    recipe()["train"](STEPS)
    whole = trained()
    resume = f"{block()}\ntorch.set_num_threads(1)\ntrain({STEPS}, resume='step-2.pt')"
    run_python("-c", resume)
    assert trained() == whole


def test_plain_torchrl_resumes_as_another_run():
    """The negative control: it repeats from the start, and not from a checkpoint."""
    whole, again = results(plain, 0)
    assert whole == again
    whole, rest = results(plain, 1)
    assert whole != rest


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param("fastseed.reseed(task=1, step=step)", "pass", id="no reseed"),
        pytest.param("env.set_seed", "hasattr(Choice, 'noise') or env.set_seed", id="seeded once"),
        pytest.param("buffer.empty()", "pass", id="a permutation is kept"),
        pytest.param("reset_at_each_iter=True", "reset_at_each_iter=False", id="episodes go on"),
    ],
)  # fmt: skip
def test_each_line_is_needed(before, after):
    whole, rest = results(lambda: recipe({before: after}), 2)
    assert whole != rest


def test_a_buffer_that_is_not_emptied_is_saved():
    changes = {
        "buffer.empty()": "pass",
        '{"step": step + 1, ': '{"step": step + 1, "buffer": buffer.state_dict(), ',
        'start = state["step"]': 'start = state["step"]; buffer.load_state_dict(state["buffer"])',
    }
    whole, rest = results(lambda: recipe(changes), 2)
    assert whole == rest


def equal_alone(make: Callable[[], dict[str, Any]]) -> list[bool]:
    """Return of each of four environments whether its episodes alone are those among four."""
    together = make()["train"](1)
    assert together["next", "done"].sum(1).min() >= 2  # with starts in the middle
    rows = [together[k : k + 1].select(*EPISODES) for k in range(4)]
    assert len({fastseed.debug.digest(row["observation"]).value for row in rows}) == 4
    alone = [make()["train"](1, members=range(k, k + 1)).select(*EPISODES) for k in range(4)]
    return [bool((one == row).all()) for one, row in zip(alone, rows, strict=True)]


def test_an_environment_is_the_same_alone_and_among_four():
    assert equal_alone(recipe) == [True] * 4


def test_noise_of_torchs_generator_depends_on_the_other_environments():
    noise = "Choice.noise.exponential(self.logits.size(-1))"
    of_torch = "torch.empty_like(self.logits).exponential_()"
    assert equal_alone(lambda: recipe({noise: of_torch})) == [False] * 4
    assert not any(equal_alone(plain))


def test_one_static_seed_is_the_seed_of_every_environment():
    from torchrl.envs import GymEnv, SerialEnv

    env = SerialEnv(2, lambda: GymEnv("CartPole-v1"))
    env.set_seed(7, static_seed=True)
    first, second = env.reset()["observation"]
    assert torch.equal(first, second)
