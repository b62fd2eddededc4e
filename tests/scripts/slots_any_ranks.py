"""Train on any number of ranks: gradients of four slots, added by slot or by all_reduce.

torchrun --nproc-per-node 2 slots_any_ranks.py slots|all_reduce|failing|silent
"""

import sys

import torch
import torch.distributed as dist

import fastseed

SLOTS, STEPS = 4, 3


def main(how: str) -> None:
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3))
    optimizer = torch.optim.AdamW(model.parameters())
    if how != "silent":
        fastseed.debug.Watch(model, optimizer).attach()
    for step in range(STEPS):
        if how == "failing" and rank == world - 1 == step == 1:
            raise ArithmeticError("the sum is wrong")
        generator = torch.Generator().manual_seed(step)
        batch = torch.randn(SLOTS, 5, 8, generator=generator)
        mine = torch.zeros(SLOTS, sum(p.numel() for p in model.parameters()))
        for slot in range(rank, SLOTS, world):
            model.zero_grad()
            model(batch[slot].clone()).square().mean().backward()
            mine[slot] = torch.cat([p.grad.flatten() for p in model.parameters()])
        # A row that a rank lacks is zero: adding over ranks is exact, and adding rows rounds.
        total = mine.sum(0) if how == "all_reduce" else mine
        dist.all_reduce(total)
        flat = total if how == "all_reduce" else total.sum(0)
        sizes = [p.numel() for p in model.parameters()]
        for p, grad in zip(model.parameters(), flat.split(sizes), strict=True):
            p.grad = grad.view_as(p).clone()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
