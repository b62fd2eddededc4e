"""A training script of a user of fwr13y; a test changes its import line only.

Prints one line of JSON: the master seed, the loss of each epoch, what the registered generators
were given, and a digest of the parameters.
"""

import hashlib
import json
import random
import sys

import fwr13y.seeder.pyt as seeder  # the import line
import numpy as np
import torch

master_seed, world_size, rank = (int(argument) for argument in sys.argv[1:4])
first_epoch, last_epoch = (int(argument) for argument in sys.argv[4:6])
own, shared, dropped = [], [], []

seeder.init(master_seed, world_size, rank)
seeder.register_generator(own.append)
seeder.register_generator(shared.append, shared=True)
seeder.register_generator(dropped.append)
seeder.unregister_generator(dropped.append)
try:
    seeder.unregister_generator(print)
except ValueError:
    pass
else:
    sys.exit("unregistering what was never registered has to be a ValueError")

seeder.reseed(0)  # task 0: initialization
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(0.2), torch.nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

losses = []
for epoch in range(first_epoch, last_epoch):
    seeder.reseed(1, epoch)  # task 1: training
    order = np.random.permutation(64)
    x = torch.randn(64, 8) + random.random()
    y = (x.sum(dim=1) > 0).long()
    for batch in order.reshape(4, 16):
        loss = torch.nn.functional.cross_entropy(model(x[batch]), y[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    losses.append(loss.item())

digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters()))
print(
    json.dumps(
        {
            "master_seed": seeder.get_master_seed(),
            "losses": losses,
            "own": own,
            "shared": shared,
            "dropped": dropped,
            "digest": digest.hexdigest(),
        }
    )
)
