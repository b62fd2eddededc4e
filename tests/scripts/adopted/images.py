"""Training of images as timm has it: MixUp, EMA; lines of fastseed end in ``# +``."""

import os
import random
import sys

import numpy as np
import torch

import fastseed  # +

OUT, WORKERS = sys.argv[1], int(sys.argv[2])


class Pictures(torch.utils.data.Dataset):
    def __len__(self):
        return 50

    def __getitem__(self, index):
        picture = np.full((8, 8), index / 50, np.float32) + np.random.rand(8, 8).astype(np.float32)
        return (picture[:, ::-1].copy() if random.random() < 0.5 else picture), index % 2


def mix(samples):
    pictures, labels = torch.utils.data.default_collate(samples)
    part = np.random.beta(0.8, 0.8)
    labels = torch.nn.functional.one_hot(labels, 2).float()
    return (part * pictures + (1 - part) * pictures.flip(0)).float(), (
        part * labels + (1 - part) * labels.flip(0)
    ).float()


fastseed.init(42)  # + torch.manual_seed(42); random.seed(42); np.random.seed(42)
model = torch.nn.Sequential(
    torch.nn.Flatten(), torch.nn.Linear(64, 32), torch.nn.Dropout(0.2), torch.nn.Linear(32, 2)
)
ema = torch.optim.swa_utils.AveragedModel(
    model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)
)
optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 24)
dataset = fastseed.data.per_sample(Pictures())  # + Pictures()
loader = torch.utils.data.DataLoader(
    dataset,
    batch_size=4,
    shuffle=True,
    num_workers=WORKERS,
    persistent_workers=WORKERS > 0,
    collate_fn=fastseed.data.per_batch(mix),  # + mix
)
steps = fastseed.data.steps(loader, accumulate=2)  # +
parts = {"model": model, "ema": ema, "optimizer": optimizer, "schedule": schedule}
parts["steps"] = steps  # +
if os.path.exists(f"{OUT}/latest"):
    state = torch.load(f"{OUT}/latest", weights_only=True)
    for name, part in parts.items():
        part.load_state_dict(state[name])

for epoch in range(steps.epoch, 4):  # + range(4)
    for _, step, batches in steps.in_epoch(epoch):  # + enumerate(pairs of the loader)
        for pictures, labels in batches:
            loss = torch.nn.functional.cross_entropy(model(pictures), labels) / len(batches)
            loss.backward()
        optimizer.step()
        schedule.step()
        ema.update_parameters(model)
        optimizer.zero_grad()
        print(epoch, step, repr(loss.item()), flush=True)
        torch.save({name: part.state_dict() for name, part in parts.items()}, f"{OUT}/new")
        os.replace(f"{OUT}/new", f"{OUT}/latest")
print("end", [p.double().sum().item() for p in (*model.parameters(), *ema.parameters())])
