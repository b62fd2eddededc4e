"""``slots_under_lightning.py``: a rank of a Lightning job whose steps are cut into slots.

Prints the digest of the parameters.
"""

import json
import os
import warnings

import lightning
import torch
from helpers.loaders import digest
from lightning.pytorch.strategies import DDPStrategy

import fastseed
from fastseed.elastic import SlotGradients

SLOTS = 6
warnings.simplefilter("ignore")


class SlotStrategy(DDPStrategy):
    def _setup_model(self, model):  # without DistributedDataParallel
        return model

    def _register_ddp_hooks(self):
        pass


class Epochs:
    def __init__(self, steps):
        self.steps, self.epoch = steps, steps.epoch

    def __len__(self):
        return len(self.steps.in_epoch(self.epoch))

    def __iter__(self):
        epoch, self.epoch = self.epoch, self.epoch + 1
        return self.steps.in_epoch(epoch)


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        torch.manual_seed(0)
        layers = torch.nn.Linear(8, 16), torch.nn.Dropout(0.1), torch.nn.Linear(16, 8)
        self.layers = fastseed.nn.convert(torch.nn.Sequential(*layers))

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=0.01)

    def on_fit_start(self):
        self.gradients = SlotGradients(self, slots=SLOTS)

    def training_step(self, step, batch_idx):
        optimizer = self.optimizers()
        _, _, batches = step
        for _, batch in self.gradients.step(batches):
            self.manual_backward(torch.nn.functional.mse_loss(self.layers(batch), batch))
        self.clip_gradients(optimizer, 0.1, "norm")
        optimizer.step()
        optimizer.zero_grad()


fastseed.init(42)
torch.set_num_threads(1)
torch.manual_seed(0)
loader = torch.utils.data.DataLoader(torch.randn(30, 8), 2, shuffle=True)
model = Model()
trainer = lightning.Trainer(
    max_epochs=2,
    accelerator="cpu",
    devices=int(os.environ["WORLD_SIZE"]),
    strategy=SlotStrategy(process_group_backend="gloo"),
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    use_distributed_sampler=False,
)
trainer.fit(model, Epochs(fastseed.data.steps(loader, task=1, slots=SLOTS)))
print(json.dumps([trainer.global_step, digest(model)]))
