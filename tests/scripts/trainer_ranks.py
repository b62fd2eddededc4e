"""``trainer_ranks.py FOLDER [KIND]``: a rank of a Trainer's job, as torchrun starts it.

It writes checkpoints in two epochs of two steps, and then resumes from the third step. Prints, of
both, the samples that this rank saw, what it drew, its parameters' digest and what was logged.
KIND is what yields the order: ``sampler`` has its own generator, ``global`` has none, ``grouped``
is that of transformers by length, and ``loader`` is fastseed's.
"""

import hashlib
import json
import logging
import os
import random
import sys
import warnings
from pathlib import Path

import torch
import transformers
from transformers.trainer_pt_utils import LengthGroupedSampler

import fastseed
from fastseed.integrations.transformers import FastseedCallback

folder, kind = Path(sys.argv[1]), (*sys.argv[2:], None)[0]
warnings.simplefilter("ignore")
warnings.filterwarnings("error", message="fastseed")  # none that the Trainer's own loop disproves
log = []
logging.getLogger("fastseed").addFilter(lambda record: log.append(record.getMessage()))
logging.getLogger("fastseed").propagate = False
transformers.logging.set_verbosity_error()


class Points(torch.utils.data.Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, i):
        return {"index": torch.tensor(int(i)), "point": torch.full((3,), float(i))}


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 1)
        self.seen, self.draws = [], []

    def forward(self, index, point):
        self.seen += index.tolist()
        self.draws.append(float(torch.rand(())))
        return {"loss": (self.layer(torch.nn.functional.dropout(point, 0.5)) ** 2).mean()}


class Own(torch.utils.data.Sampler):
    def __init__(self):
        self.generator = torch.Generator()

    def __len__(self):
        return 12

    def __iter__(self):
        return iter(torch.randperm(12, generator=self.generator).tolist())


class Global(Own):
    def __init__(self):
        pass

    def __iter__(self):
        return iter(random.sample(range(12), 12))


class Trainer(transformers.Trainer):
    def _get_train_sampler(self, train_dataset=None):
        if kind in ("sampler", "global"):
            return Own() if kind == "sampler" else Global()
        if kind == "grouped":
            return LengthGroupedSampler(6, lengths=[1 + i % 3 for i in range(12)])
        return super()._get_train_sampler(train_dataset)

    def get_train_dataloader(self):
        if kind != "loader":
            return super().get_train_dataloader()
        options = {"collate_fn": self.data_collator}
        return fastseed.data.Loader(self.train_dataset, 3, shuffle=True, **options)


def run(resume):
    fastseed.init(42)
    fastseed.reseed(0)
    model = Model()
    arguments = transformers.TrainingArguments(
        output_dir=str(folder),
        num_train_epochs=2,
        per_device_train_batch_size=3,
        learning_rate=0.01,
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
        logging_strategy="no",
        save_strategy="no" if resume else "steps",
        save_steps=1,
        remove_unused_columns=False,
        label_names=["index"],
    )
    trainer = Trainer(
        model=model, args=arguments, train_dataset=Points(), callbacks=[FastseedCallback()]
    )
    fastseed.reseed(0, 1)  # as scripts do that draw here: torch's seed is now each rank's own
    trainer.train(resume_from_checkpoint=resume)
    held = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
    digest = hashlib.sha256(held).hexdigest()
    return {"seen": model.seen, "draws": model.draws, "digest": digest, "log": " ".join(log)}


print(json.dumps([run(None), run(str(folder / "checkpoint-3"))]), flush=True)
os._exit(0)
