"""Member k of a vectorised environment has the same episodes alone and beside others."""

from typing import Any

import numpy as np
import pytest
import torch

import fastseed

gymnasium = pytest.importorskip("gymnasium")


class Walks(gymnasium.vector.VectorEnv):
    """Random walks from random starts, in torch; a member that leaves [-1, 1] restarts."""

    def __init__(self, members: range) -> None:
        self.num_envs = len(members)
        self.single_observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.single_action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
        batch = gymnasium.vector.utils.batch_space
        self.observation_space = batch(self.single_observation_space, self.num_envs)
        self.action_space = batch(self.single_action_space, self.num_envs)
        self._members = members
        self._bank = fastseed.random.StreamBank(self.num_envs, "walk")

    def reset(self, *, seed: int = 0, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        self._bank.reseed_from_seeds([seed] * self.num_envs, indices=self._members)
        self._state = self._start(torch.ones(self.num_envs, dtype=torch.bool))
        return self._state.numpy().copy(), {}

    def _start(self, rows: torch.Tensor) -> torch.Tensor:
        return fastseed.random.uniform(self._bank[rows], 2, low=-0.5, high=0.5)

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, ...]:
        noise = fastseed.random.normal(self._bank, 2, std=0.3)
        self._state = self._state + torch.from_numpy(actions) + noise
        done = self._state.abs().amax(1) > 1
        self._state = torch.where(done[:, None], self._start(done), self._state)
        reward = np.zeros(self.num_envs)
        return self._state.numpy().copy(), reward, done.numpy(), np.zeros_like(reward, bool), {}


def observations(members: range, seed: int = 7) -> tuple[np.ndarray, int]:
    """Return what the members observe in 50 steps, (steps, members, 2), and the resets."""
    env = Walks(members)
    found, resets = [env.reset(seed=seed)[0]], 0
    for _ in range(50):
        state, _, done, _, _ = env.step(np.zeros((len(members), 2), np.float32))
        found.append(state)
        resets += done.sum()
    return np.stack(found), resets


def test_member_alone_is_the_member_among_others():
    together, resets = observations(range(8))
    assert resets > 20
    for k in range(8):
        assert np.array_equal(observations(range(k, k + 1))[0][:, 0], together[:, k])
    assert np.array_equal(observations(range(2, 5))[0], together[:, 2:5])
    assert len({together[:, k].tobytes() for k in range(8)}) == 8


def first_observations(seed: Any) -> set[bytes]:
    envs = gymnasium.make_vec("CartPole-v1", num_envs=8, vectorization_mode="sync")
    state, _ = envs.reset(seed=seed)
    envs.close()
    return {row.tobytes() for row in state}


def test_seeds_of_environments_with_generators_of_their_own():
    def seeds(master: int) -> list[int]:
        made = fastseed.rollouts.seeds(0, range(8), [0] * 8, bits=31, master_seed=master)
        return made.tolist()

    assert len(first_observations(seeds(42)) | first_observations(seeds(43))) == 16
    # The negative control: an integer means seed, seed + 1, ...
    assert len(first_observations(42) | first_observations(43)) == 9
