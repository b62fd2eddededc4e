"""A training script for ``fastseed verify``: it prints each loss, then saves its step.

fastseed verify --seed 42 --out verified examples/train_points.py {run}/c.pt
"""

import json
import os
import sys

import torch

import fastseed

path = sys.argv[1]
checkpoint = torch.load(path) if os.path.exists(path) else {}
fastseed.init(checkpoint.get("seed"))
model = torch.nn.Sequential(torch.nn.Linear(1, 16), torch.nn.Dropout(0.1), torch.nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
points = torch.linspace(-1, 1, 256).reshape(256, 1)
loader = torch.utils.data.DataLoader(points, batch_size=16, shuffle=True)
steps = fastseed.data.steps(loader, epochs=3)
parts = {"model": model, "optimizer": optimizer, "steps": steps}
for name in parts.keys() & checkpoint.keys():
    parts[name].load_state_dict(checkpoint[name])
for epoch, step, x in steps:
    loss = (model(x) - x.sin()).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(json.dumps({"step": 16 * epoch + step, "loss": loss.item()}), flush=True)
    states = {name: part.state_dict() for name, part in parts.items()}
    torch.save({**states, "seed": fastseed.get_master_seed()}, path + ".new")
    os.replace(path + ".new", path)
