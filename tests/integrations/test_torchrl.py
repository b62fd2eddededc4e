"""``examples/train_ppo_torchrl.py``: PPO on CartPole, resumed, and each environment alone."""

import multiprocessing
from collections.abc import Callable, Iterable, Iterator
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

EXAMPLE = ROOT / "examples" / "train_ppo_torchrl.py"
STEPS = 5
EPISODES = ("observation", "action", ("next", "observation"), ("next", "reward"), ("next", "done"))


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)  # for the checkpoints
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the tensors are small
    yield
    torch.set_num_threads(threads)


def recipe() -> dict[str, Any]:
    """Run the example, and return its names."""
    names: dict[str, Any] = {"__name__": "recipe"}
    exec(EXAMPLE.read_text("utf-8"), names)
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


@pytest.mark.parametrize("at", [1, 4])
def test_a_resumed_run_is_the_same_run(at):
    whole, rest = results(recipe, at)
    assert whole == rest


def test_a_run_resumed_in_a_new_process_is_the_same_run():
    recipe()["train"](STEPS)
    whole = trained()
    run_python(str(EXAMPLE), "step-2.pt")
    assert trained() == whole


def test_plain_torchrl_resumes_as_another_run():
    """The negative control: it repeats from the start, and not from a checkpoint."""
    whole, again = results(plain, 0)
    assert whole == again
    whole, rest = results(plain, 1)
    assert whole != rest


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
