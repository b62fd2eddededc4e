"""A language model's loop, by steps, as nanoGPT has it; lines of fastseed end in ``# +``."""

import os
import sys

import torch

import fastseed  # +

OUT, WORKERS = sys.argv[1], int(sys.argv[2])
STEPS, ACCUMULATE = 26, 3
text = torch.arange(400) * 7 % 31


class Windows(torch.utils.data.Dataset):
    def __len__(self):
        return len(text) - 9

    def __getitem__(self, index):
        return text[index : index + 8], text[index + 1 : index + 9]


fastseed.init(1337)  # + torch.manual_seed(1337)
model = torch.nn.Sequential(
    torch.nn.Embedding(31, 16), torch.nn.Dropout(0.1), torch.nn.Linear(16, 31)
)
optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
loader = torch.utils.data.DataLoader(Windows(), 12, shuffle=True, num_workers=WORKERS)
steps = fastseed.data.steps(loader, total=STEPS, accumulate=ACCUMULATE)  # +
if os.path.exists(f"{OUT}/latest"):
    state = torch.load(f"{OUT}/latest", weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    steps.load_state_dict(state["steps"])  # +


def evaluate():
    model.eval()
    inputs, targets = (
        torch.stack(rows) for rows in zip(*map(Windows().__getitem__, range(9)), strict=True)
    )
    with torch.no_grad():
        loss = torch.nn.functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
    model.train()
    return loss.item()


for epoch, step, batches in steps:  # + for step in range(STEPS)
    for inputs, targets in batches:
        loss = torch.nn.functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
        (loss / len(batches)).backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    print(epoch, step, repr(loss.item()), evaluate() if step % 4 == 0 else "", flush=True)
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    state["steps"] = steps.state_dict()  # +
    torch.save(state, f"{OUT}/new")
    os.replace(f"{OUT}/new", f"{OUT}/latest")
print("end", [p.double().sum().item() for p in model.parameters()])
