"""Classification as torchvision's references train it; lines of fastseed end in ``# +``."""

import os
import sys
import time

import torch
from torch import nn

import fastseed  # +

OUT, WORKERS = sys.argv[1], int(sys.argv[2])


class MetricLogger:
    """What torchvision's references iterate through: it needs a length, and yields each item."""

    def log_every(self, iterable, frequency, header):
        start = time.time()
        for i, item in enumerate(iterable):
            yield item
            if i % frequency == 0:
                left = len(iterable) - i
                print(header, f"[{i}/{len(iterable)}] eta {left * (time.time() - start):.0f}")


class Pictures(torch.utils.data.Dataset):
    def __len__(self):
        return 45

    def __getitem__(self, index):
        picture = torch.full((3, 8, 8), index / 45)
        return picture + 0.1 * torch.rand(3, 1, 1), index % 3  # as ColorJitter


def mixup(samples):
    pictures, labels = torch.utils.data.default_collate(samples)
    part = torch.distributions.Beta(0.2, 0.2).sample()
    labels = nn.functional.one_hot(labels, 3).float()
    return pictures.lerp(pictures.roll(1, 0), part), labels.lerp(labels.roll(1, 0), part)


def train_one_epoch(model, criterion, optimizer, steps, epoch, ema, parts):
    model.train()
    metric_logger, header = MetricLogger(), f"Epoch: [{epoch}]"
    batches = steps.in_epoch(epoch)  # + data_loader
    for _, i, (image, target) in metric_logger.log_every(batches, 5, header):  # + enumerate(...)
        loss = criterion(model(image), target)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if i % 2 == 0:
            ema.update_parameters(model)
        print(epoch, i, repr(loss.item()), flush=True)
        torch.save({name: part.state_dict() for name, part in parts.items()}, f"{OUT}/new")
        os.replace(f"{OUT}/new", f"{OUT}/latest")


fastseed.init(7)  # + torch.manual_seed(7)
dataset = fastseed.data.per_sample(Pictures())  # + Pictures()
data_loader = torch.utils.data.DataLoader(
    dataset,
    batch_size=4,
    sampler=torch.utils.data.RandomSampler(dataset),
    num_workers=WORKERS,
    collate_fn=fastseed.data.per_batch(mixup),  # + mixup
)
model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Dropout(0.2))
model.append(nn.Linear(144, 3))
criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=1e-4)
warmup = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.1, total_iters=1)
cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=2)
lr_scheduler = torch.optim.lr_scheduler.SequentialLR(optimizer, [warmup, cosine], milestones=[1])
ema = torch.optim.swa_utils.AveragedModel(
    model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9), use_buffers=True
)
steps = fastseed.data.steps(data_loader)  # +
parts = {"model": model, "optimizer": optimizer, "lr_scheduler": lr_scheduler, "ema": ema}
parts["steps"] = steps  # +
if os.path.exists(f"{OUT}/latest"):
    state = torch.load(f"{OUT}/latest", weights_only=True)
    for name, part in parts.items():
        part.load_state_dict(state[name])
for epoch in range(steps.epoch, 3):  # + range(3)
    train_one_epoch(model, criterion, optimizer, steps, epoch, ema, parts)
    lr_scheduler.step()
print("end", [p.double().sum().item() for p in (*model.parameters(), *ema.parameters())])
