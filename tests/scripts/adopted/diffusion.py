"""A diffusion loop as Hugging Face's examples have it; lines of fastseed end in ``# +``."""

import os
import sys

import torch
from accelerate import Accelerator

from fastseed.data import per_sample  # +
from fastseed.integrations.accelerate import attach  # +

OUT, WORKERS = sys.argv[1], int(sys.argv[2])


class Pictures(torch.utils.data.Dataset):
    def __len__(self):
        return 30

    def __getitem__(self, index):
        picture = torch.full((1, 8, 8), index / 30) + 0.1 * torch.randn(1, 8, 8)
        return picture.flip(-1) if torch.rand(()) < 0.5 else picture


accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
job = attach(accelerator, 42)  # + set_seed(42)
model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 32), torch.nn.Linear(32, 64))
ema = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=lambda a, b, _: [
    x.lerp_(y, 0.1) for x, y in zip(a, b, strict=True)
])  # fmt: skip
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
dataset = per_sample(Pictures())  # +
loader = torch.utils.data.DataLoader(dataset, 4, shuffle=True, num_workers=WORKERS)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 24)
model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
accelerator.register_for_checkpointing(ema)
if os.path.exists(f"{OUT}/latest"):
    with open(f"{OUT}/latest") as file:
        accelerator.load_state(file.read())

for epoch in range(job.epoch, 6):  # + range(6)
    for step, clean in enumerate(loader, job.step):  # + enumerate(loader)
        with accelerator.accumulate(model):
            noise, times = torch.randn_like(clean), torch.rand(len(clean), 1, 1, 1)
            predicted = model((1 - times) * clean + times * noise)
            loss = (predicted - noise.flatten(1)).square().mean()
            accelerator.backward(loss)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        print(epoch, step, repr(loss.item()), flush=True)
        if accelerator.sync_gradients:
            ema.update_parameters(accelerator.unwrap_model(model))
            accelerator.save_state(f"{OUT}/{epoch}-{step}")
            with open(f"{OUT}/new", "w") as file:
                file.write(f"{OUT}/{epoch}-{step}")
            os.replace(f"{OUT}/new", f"{OUT}/latest")
print("end", [p.double().sum().item() for p in (*model.parameters(), *ema.parameters())])
