"""Digits as PyTorch's examples train them, with a checkpoint; lines of fastseed end in ``# +``."""

import os
import sys

import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import StepLR

import fastseed  # +

OUT, WORKERS = sys.argv[1], int(sys.argv[2])


class Digits(torch.utils.data.Dataset):
    def __len__(self):
        return 50

    def __getitem__(self, index):
        noise = 0.1 * torch.randn(1, 8, 8)  # as a random transform
        return torch.full((1, 8, 8), index % 10 / 10) + noise, index % 10


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.dropout1, self.dropout2 = nn.Dropout(0.25), nn.Dropout(0.5)
        self.fc1, self.fc2 = nn.Linear(36, 16), nn.Linear(16, 10)

    def forward(self, x):
        x = self.dropout1(F.max_pool2d(F.relu(self.conv(x)), 2))
        x = self.dropout2(F.relu(self.fc1(torch.flatten(x, 1))))
        return F.log_softmax(self.fc2(x), dim=1)


def train(model, steps, optimizer, scheduler, epoch):
    model.train()
    for _, batch_idx, (data, target) in steps.in_epoch(epoch):  # + enumerate(train_loader)
        optimizer.zero_grad()
        loss = F.nll_loss(model(data), target)
        loss.backward()
        optimizer.step()
        print(epoch, batch_idx, repr(loss.item()), flush=True)
        save(model, optimizer, scheduler, steps)


def test(model, test_loader):
    model.eval()
    with torch.no_grad():
        return sum(F.nll_loss(model(d), t, reduction="sum").item() for d, t in test_loader)


def save(*parts):
    torch.save([part.state_dict() for part in parts], f"{OUT}/new")
    os.replace(f"{OUT}/new", f"{OUT}/latest")


fastseed.init(1)  # + torch.manual_seed(1)
dataset = fastseed.data.per_sample(Digits())  # + Digits()
train_loader = torch.utils.data.DataLoader(dataset, 4, shuffle=True, num_workers=WORKERS)
test_loader = torch.utils.data.DataLoader(fastseed.data.per_sample(Digits()), 10)  # + Digits()
model = Net()
optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
scheduler = StepLR(optimizer, step_size=1, gamma=0.7)
steps = fastseed.data.steps(train_loader)  # +
if os.path.exists(f"{OUT}/latest"):
    parts = model, optimizer, scheduler, steps
    for part, state in zip(parts, torch.load(f"{OUT}/latest", weights_only=True), strict=True):
        part.load_state_dict(state)
for epoch in range(steps.epoch, 3):  # + range(3)
    train(model, steps, optimizer, scheduler, epoch)
    fastseed.reseed(task=2, epoch=epoch)  # +
    print("end", epoch, test(model, test_loader))
    scheduler.step()
print("end", [p.double().sum().item() for p in model.parameters()])
