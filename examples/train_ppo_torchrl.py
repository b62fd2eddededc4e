"""PPO on CartPole with torchrl: a run that is stopped and resumed equals the uninterrupted run.

Each step is a function of its number, the weights and the optimizer, so a checkpoint holds
nothing else. ``begin`` and ``Choice`` are what torchrl lacks.

    python train_ppo_torchrl.py            # writes step-1.pt, step-2.pt, ...
    python train_ppo_torchrl.py step-3.pt  # goes on from there
"""

import sys

import gymnasium
import torch
from tensordict.nn import TensorDictModule
from torchrl.collectors import Collector
from torchrl.data import LazyTensorStorage, ReplayBuffer, SamplerWithoutReplacement
from torchrl.envs import GymWrapper
from torchrl.modules import MLP, ProbabilisticActor, ValueOperator
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE

import fastseed

fastseed.init(42)


class Choice(torch.distributions.Categorical):
    noise: fastseed.random.StreamBank  # a stream for each environment

    def sample(self, sample_shape=()):
        noise = fastseed.random.exponential(Choice.noise, self.logits.size(-1))
        return (self.logits - noise.log()).argmax(-1)


def begin(step, members, env, buffer):
    fastseed.reseed(task=1, step=step)  # torch: the permutations of the buffer
    seeds = fastseed.rollouts.seeds(step, members, 1, name="env")[:, 0].tolist()
    env.set_seed(seeds, static_seed=True)  # a list, one for each; torchrl cannot count it up
    Choice.noise = fastseed.random.StreamBank(len(members), name="actions")
    Choice.noise.reseed_from_seeds(seeds)
    buffer.empty()  # also forgets the permutation


def train(steps, members=range(4), resume=None):
    apart = {"autoreset_mode": gymnasium.vector.AutoresetMode.DISABLED}  # torchrl resets them
    envs = gymnasium.make_vec("CartPole-v1", len(members), "sync", vector_kwargs=apart)
    env = GymWrapper(envs, categorical_action_encoding=True)
    logits = TensorDictModule(MLP(4, 2, num_cells=[32]), ["observation"], ["logits"])
    actor = ProbabilisticActor(logits, ["logits"], distribution_class=Choice, return_log_prob=True)
    critic = ValueOperator(MLP(4, 1, num_cells=[32]), ["observation"])
    loss, advantage = ClipPPOLoss(actor, critic), GAE(gamma=0.99, lmbda=0.95, value_network=critic)
    optimizer = torch.optim.Adam(loss.parameters(), lr=3e-3)
    size = 64 * len(members)
    sampler = SamplerWithoutReplacement()
    buffer = ReplayBuffer(storage=LazyTensorStorage(size), sampler=sampler, batch_size=64)
    start = 0
    if resume:
        state = torch.load(resume)
        start = state["step"]
        loss.load_state_dict(state["loss"])
        optimizer.load_state_dict(state["optimizer"])
    collector = Collector(env, actor, frames_per_batch=size, reset_at_each_iter=True)
    batches = iter(collector)
    for step in range(start, steps):
        begin(step, members, env, buffer)
        batch = next(batches)
        for _ in range(2):
            with torch.no_grad():
                advantage(batch)
            buffer.extend(batch.reshape(-1))
            for part in buffer:
                terms = loss(part)
                names = [name for name in terms.keys() if name.startswith("loss_")]  # noqa: SIM118
                sum(terms[name] for name in names).backward()
                optimizer.step()
                optimizer.zero_grad()
        state = {"step": step + 1, "loss": loss.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(state, f"step-{step + 1}.pt")
    collector.shutdown()
    return batch


if __name__ == "__main__":
    train(5, resume=sys.argv[1] if len(sys.argv) > 1 else None)
