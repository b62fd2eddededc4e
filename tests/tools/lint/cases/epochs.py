"""Loops over epochs. A line that ends in `fault: ID` has that fault alone."""

import itertools

import torch
from torch.utils.data import DistributedSampler
from torch.utils.data.distributed import DistributedSampler as Distributed

import fastseed as seeder


def train_one(model, loader, optimizer):
    for batch in loader:
        model(batch).sum().backward()
        optimizer.step()


def begin(epoch):
    seeder.reseed(1, epoch)


def missing(model, loader, optimizer, epochs):
    for _epoch in range(epochs):  # fault: FS301
        for batch in loader:
            model(batch).sum().backward()


def missing_through_a_function(model, loader, optimizer, args):
    for _ in range(args.num_epochs):  # fault: FS301
        train_one(model, loader, optimizer)


def missing_in_a_while_loop(model, loader, optimizer):
    epoch = 0
    while epoch < 10:  # fault: FS301
        train_one(model, loader, optimizer)
        epoch += 1


def constant(model, loader, optimizer):
    for _epoch in itertools.count():
        seeder.reseed(1, 0)  # fault: FS302
        train_one(model, loader, optimizer)


def present(model, loader, optimizer, trainer):
    for epoch in range(10):
        seeder.reseed(1, epoch)
        train_one(model, loader, optimizer)
    for epoch in range(10):
        begin(epoch)
        trainer.train_epoch(loader)


def no_training(model, loader, epochs, losses):
    for epoch in range(epochs):
        model.train(False)
        print(model(loader), losses[epoch])
    for epoch in epochs:
        print(epoch)


def samplers(dataset):
    DistributedSampler(dataset)  # fault: FS204
    Distributed(dataset, 2, 0)  # fault: FS204
    DistributedSampler(dataset, shuffle=False)
    seeder.register_generator(DistributedSampler(dataset))
    followed = Distributed(dataset)
    seeder.data.loader(dataset, sampler=followed)
    torch.use_deterministic_algorithms(True)
