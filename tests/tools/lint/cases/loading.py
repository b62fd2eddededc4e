"""Loaders. A line that ends in `fault: IDs` has those faults alone."""

import torch
import torch.utils.data as data
from torch.utils.data import DataLoader as DL
from torch.utils.data import Dataset, random_split
from torch.utils.data.dataloader import DataLoader

import fastseed

generator = torch.Generator().manual_seed(0)
fastseed.init(3)
fastseed.reseed(0)
YES = True


def own_init(worker_id):
    print(worker_id)


def good_init(worker_id):
    fastseed.data.worker_init_fn(worker_id)


def loaders(dataset, sampler, other_init, options):
    DL(dataset, shuffle=True)  # fault: FS201
    DataLoader(dataset, 32, True)  # fault: FS201
    data.DataLoader(dataset, shuffle=YES, generator=None)  # fault: FS201
    torch.utils.data.DataLoader(dataset, shuffle=True, sampler=None)  # fault: FS201
    keywords = {"shuffle": True, "batch_size": 3}
    DL(dataset, **keywords)  # fault: FS201
    DL(dataset, **options)
    DL(dataset, shuffle=True, **options)
    DL(dataset, shuffle=sampler is None, sampler=sampler)
    DL(dataset, shuffle=True, generator=generator)
    DL(dataset, shuffle=False)
    DL(dataset)
    fastseed.data.loader(dataset, shuffle=True, num_workers=4)
    fastseed.data.prepare(DL(dataset, shuffle=True, num_workers=4))
    prepared = DL(dataset, shuffle=True, num_workers=4)
    prepared = fastseed.data.prepare(prepared)

    DL(dataset, num_workers=4)  # fault: FS203
    DL(dataset, 32, False, None, None, 4)  # fault: FS203
    DL(dataset, num_workers=options.workers, worker_init_fn=None)  # fault: FS203
    DL(dataset, num_workers=4, worker_init_fn=own_init)  # fault: FS203
    DL(dataset, num_workers=4, worker_init_fn=lambda worker: None)  # fault: FS203
    DL(dataset, shuffle=True, num_workers=4)  # fault: FS201 FS203
    DL(dataset, num_workers=0)
    DL(dataset, num_workers=4, worker_init_fn=good_init)
    DL(dataset, num_workers=4, worker_init_fn=fastseed.data.worker_init_fn)
    DL(dataset, num_workers=4, worker_init_fn=other_init)

    random_split(dataset, [0.8, 0.2])  # fault: FS202
    random_split(dataset, [0.8, 0.2], generator)
    data.RandomSampler(dataset)  # fault: FS202
    data.RandomSampler(dataset, generator=generator)
    data.WeightedRandomSampler([1.0], 3)  # fault: FS202
    return prepared


class Mine(Dataset):
    def DataLoader(self):
        return self.DataLoader(shuffle=True)
