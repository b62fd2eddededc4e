"""``lightning_ranks.py PACKAGE FOLDER MODE...``: a rank of a Lightning job under torchrun.

``save`` writes a checkpoint in mid-epoch of the second epoch and continues; ``load`` resumes
from it; with ``forgotten``, Lightning divides the data itself: fastseed's loader, a sampler of
fastseed in a DataLoader of torch (``forgotten sampler``), or those of the validation, test or
prediction (``forgotten validate``, and so on). Prints of each the samples that this rank
saw, its dropout masks' digests and its parameters', or an error.
"""

import hashlib
import importlib
import json
import logging
import os
import sys
import warnings
from pathlib import Path

import torch
from torch.utils.data import DataLoader

import fastseed

package, folder, modes = sys.argv[1], Path(sys.argv[2]), sys.argv[3:]
warnings.simplefilter("ignore")
logging.disable(logging.WARNING)
lightning = importlib.import_module(package)

from fastseed.data import Loader, ShuffleSampler  # noqa: E402
from fastseed.integrations.lightning import FastseedCallback  # noqa: E402


class Points(torch.utils.data.Dataset):
    def __len__(self):
        return 24

    def __getitem__(self, i):
        return int(i), torch.rand(3)


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 1)
        self.seen, self.draws = [], []

    def training_step(self, batch, index):
        self.seen += batch[0].tolist()
        kept = torch.nn.functional.dropout(batch[1], 0.5)
        self.draws.append(hashlib.sha256(kept.numpy().tobytes()).hexdigest()[:12])
        return (self.layer(kept) ** 2).mean()

    def validation_step(self, batch, index):
        pass

    test_step = predict_step = validation_step

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


def run(mode):
    fastseed.init(42, rank=0, world_size=1)  # what a script knows before Lightning has its ranks
    fastseed.reseed(0)
    model = Model()
    trainer = lightning.Trainer(
        accelerator="cpu",
        strategy="ddp" if os.environ["WORLD_SIZE"] != "1" else "auto",
        devices=int(os.environ["WORLD_SIZE"]),
        max_epochs=2,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=mode.startswith("forgotten"),
        callbacks=[
            FastseedCallback(),
            importlib.import_module(f"{package}.callbacks").ModelCheckpoint(
                folder, filename="{step}", every_n_train_steps=6, save_top_k=-1
            ),
        ],
    )
    path = folder / "step=6.ckpt" if mode == "load" else None
    batches = Loader(Points(), batch_size=3, shuffle=True)
    sampled = DataLoader(Points(), batch_size=3, sampler=ShuffleSampler(24))
    _, _, phase = mode.partition(" ")
    try:
        if phase in ("validate", "test", "predict"):
            getattr(trainer, phase)(model, sampled if phase == "test" else batches)
        else:
            trainer.fit(model, sampled if phase == "sampler" else batches, ckpt_path=path)
    except ValueError as error:
        return {"error": str(error)}
    seeder = fastseed.derivation.context.current("test")
    held = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
    return {
        "rank": [seeder.rank, seeder.world_size],
        "seen": model.seen,
        "draws": model.draws,
        "digest": hashlib.sha256(held).hexdigest(),
    }


print(json.dumps([run(mode) for mode in modes]), flush=True)
os._exit(0)
