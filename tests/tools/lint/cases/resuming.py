"""Resuming as nanoGPT does: weights and optimizer, but no generator."""

import torch


def resume(model, optimizer, path):
    checkpoint = torch.load(path)
    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])  # fault: FS303
    return checkpoint["iter_num"]


def train(model, optimizer, batch):
    loss = model(batch)
    loss.backward()
    optimizer.step()
