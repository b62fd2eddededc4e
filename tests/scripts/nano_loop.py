"""``nano_loop.py FOLDER [LAST]``: nanoGPT's loop with a small model; LAST step before it dies."""

import json
import os
import sys

import torch

folder, last = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else None
batch_size, block_size, gradient_accumulation_steps = 4, 8, 2
eval_interval, max_iters, seed_offset = 5, 18, 0
torch.manual_seed(1337 + seed_offset)
tokens = torch.arange(2000) * 7919 % 50


def get_batch(split):
    ix = torch.randint(len(tokens) - block_size, (batch_size,))
    x = torch.stack([tokens[i : i + block_size] for i in ix])
    y = torch.stack([tokens[i + 1 : i + 1 + block_size] for i in ix])
    return x, y


model = torch.nn.Sequential(
    torch.nn.Embedding(50, 16), torch.nn.Dropout(0.2), torch.nn.Linear(16, 50)
)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
iter_num, path = 0, os.path.join(folder, "ckpt.pt")
if os.path.exists(path):
    checkpoint = torch.load(path)
    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    iter_num = checkpoint["iter_num"]


def loss_of(x, y):
    return torch.nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())


@torch.no_grad()
def estimate_loss():
    return sum(loss_of(*get_batch("val")).item() for _ in range(3)) / 3


X, Y = get_batch('train')  # fetch the very first batch
while True:
    if iter_num % eval_interval == 0:
        print(json.dumps({"step": iter_num, "val": estimate_loss()}))
        states = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save({**states, "iter_num": iter_num}, path)
    for micro_step in range(gradient_accumulation_steps):  # noqa: B007
        loss = loss_of(X, Y) / gradient_accumulation_steps
        # immediately async prefetch next batch while model is doing the forward pass on the GPU
        X, Y = get_batch('train')
        loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    print(json.dumps({"step": iter_num, "loss": loss.item()}), flush=True)
    if iter_num == last:
        os._exit(1)
    iter_num += 1
    if iter_num > max_iters:
        break
