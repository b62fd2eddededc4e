"""``trainer_ranks.py FOLDER``: a rank of a Trainer's job, as torchrun starts it.

It writes checkpoints in two epochs of two steps, and then resumes from the third step. Prints, of
both, the samples that this rank saw, what it drew and its parameters' digest.
"""

import hashlib
import json
import logging
import os
import sys
import warnings
from pathlib import Path

import torch
import transformers

import fastseed
from fastseed.integrations.transformers import FastseedCallback

folder = Path(sys.argv[1])
warnings.simplefilter("ignore")
logging.disable(logging.WARNING)
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
    trainer = transformers.Trainer(
        model=model, args=arguments, train_dataset=Points(), callbacks=[FastseedCallback()]
    )
    fastseed.reseed(0, 1)  # as scripts do that draw here: torch's seed is now each rank's own
    trainer.train(resume_from_checkpoint=resume)
    held = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
    digest = hashlib.sha256(held).hexdigest()
    return {"seen": model.seen, "draws": model.draws, "digest": digest}


print(json.dumps([run(None), run(str(folder / "checkpoint-3"))]), flush=True)
os._exit(0)
