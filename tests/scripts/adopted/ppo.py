"""PPO on CartPole as CleanRL has it, environments in processes; fastseed's lines end in ``# +``."""

import os
import sys

import gymnasium
import numpy as np
import torch
from torch import nn
from torch.distributions.categorical import Categorical

import fastseed  # +

OUT, WORKERS = sys.argv[1], int(sys.argv[2])
ENVS, STEPS, ITERATIONS, MINIBATCHES = 3, 16, 8, 2


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.critic = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
        self.actor = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2))

    def get_action_and_value(self, x, action=None):
        chosen = Categorical(logits=self.actor(x))
        action = chosen.sample() if action is None else action
        return action, chosen.log_prob(action), chosen.entropy(), self.critic(x).flatten()


def main():
    fastseed.init(1)  # + random.seed(1); np.random.seed(1); torch.manual_seed(1)
    kind = gymnasium.vector.AsyncVectorEnv if WORKERS else gymnasium.vector.SyncVectorEnv
    envs = kind([lambda: gymnasium.make("CartPole-v1")] * ENVS)
    agent = Agent()
    optimizer = torch.optim.Adam(agent.parameters(), lr=2.5e-3, eps=1e-5)
    first = 0
    if os.path.exists(f"{OUT}/latest"):
        states, first = torch.load(f"{OUT}/latest", weights_only=True)
        agent.load_state_dict(states[0])
        optimizer.load_state_dict(states[1])
    for iteration in range(first, ITERATIONS):
        fastseed.reseed(1, step=iteration)  # +
        seeds = [fastseed.derive_seed("reset", index=i, bits=31) for i in range(ENVS)]  # +
        next_obs, _ = envs.reset(seed=seeds)  # + once, before the loop
        rows = []
        for _ in range(STEPS):
            obs = torch.tensor(next_obs)
            with torch.no_grad():
                action, logprob, _, value = agent.get_action_and_value(obs)
            next_obs, reward, terminated, truncated, _ = envs.step(action.numpy())
            done = torch.tensor(terminated | truncated)
            rows.append((obs, action, logprob, value, torch.tensor(reward).float(), done))
        obs, actions, logprobs, values, rewards, dones = map(torch.stack, zip(*rows, strict=True))
        returns, following = torch.zeros_like(rewards), torch.zeros(ENVS)
        for t in reversed(range(STEPS)):
            following = rewards[t] + 0.99 * following * ~dones[t]
            returns[t] = following
        batch = [x.flatten(0, 1) for x in (obs, actions, logprobs, returns, returns - values)]
        indices = np.arange(ENVS * STEPS)
        for _ in range(2):
            np.random.shuffle(indices)
            for part in np.array_split(indices, MINIBATCHES):
                o, a, old, target, advantage = (x[part] for x in batch)
                _, new, entropy, value = agent.get_action_and_value(o, a)
                ratio = (new - old).exp()
                gain = torch.min(advantage * ratio, advantage * ratio.clamp(0.8, 1.2)).mean()
                loss = (value - target).square().mean() - gain - 0.01 * entropy.mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()
        print(iteration, 0, repr(loss.item()), rewards.sum().item(), flush=True)
        torch.save(([agent.state_dict(), optimizer.state_dict()], iteration + 1), f"{OUT}/new")
        os.replace(f"{OUT}/new", f"{OUT}/latest")
    envs.close()
    print("end", [p.double().sum().item() for p in agent.parameters()])


main()
