"""``slots_in_frameworks.py FOLDER [CHECKPOINT]``: a rank of jobs whose steps are cut into slots.

Prints the digests of the parameters that loops under Accelerate (in float32 and in bfloat16) and
the Trainer leave, the latter from the beginning or from a checkpoint, and those of torch's own
gradients under the Trainer for control.
"""

import json
import sys
import warnings

import accelerate
import torch
import transformers
from helpers.loaders import digest
from helpers.paths import EXAMPLES

import fastseed
from fastseed.elastic import SlotGradients

sys.path.insert(0, str(EXAMPLES))
from train_slots_trainer import SlotTrainer, Texts

SLOTS = 6
folder, checkpoint = sys.argv[1], (*sys.argv[2:], None)[0]
warnings.simplefilter("ignore")
warnings.filterwarnings("error", message="fastseed")
transformers.logging.set_verbosity_error()


def under_accelerate(precision):
    accelerate.state.AcceleratorState._reset_state()
    accelerator = accelerate.Accelerator(cpu=True, mixed_precision=precision)
    torch.set_num_threads(1)  # Accelerate divides the cores by the ranks
    fastseed.init(42)
    torch.manual_seed(0)
    layers = torch.nn.Linear(8, 16), torch.nn.Dropout(0.1), torch.nn.Linear(16, 8)
    model = fastseed.nn.convert(torch.nn.Sequential(*layers))
    model = accelerator.prepare_model(model, evaluation_mode=True)
    inner = torch.optim.AdamW(model.parameters(), lr=0.01)
    optimizer, gradients = accelerator.prepare(inner), SlotGradients(model, slots=SLOTS)
    scheduler = torch.optim.lr_scheduler.LinearLR(inner, total_iters=4)
    loader = torch.utils.data.DataLoader(torch.randn(30, 8), 2, shuffle=True)
    for _, _, batches in fastseed.data.steps(loader, 2, task=1, slots=SLOTS):
        for _, batch in gradients.step(batches):
            loss = torch.nn.functional.mse_loss(model(batch), batch)
            accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
    return digest(model)


def under_trainer(kind, **more):
    fastseed.init(42)
    transformers.set_seed(0)
    size = {"vocab_size": 32, "n_positions": 8, "n_embd": 16, "n_layer": 1, "n_head": 2}
    model = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(**size, bos_token_id=None, eos_token_id=None)
    )
    ranks = accelerate.PartialState().num_processes
    arguments = transformers.TrainingArguments(
        output_dir=folder,
        num_train_epochs=2,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=SLOTS // ranks,
        learning_rate=0.02,
        max_grad_norm=0.5,
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
        logging_strategy="no",
        save_strategy="steps" if kind is SlotTrainer and checkpoint is None else "no",
        save_steps=2,
    )
    trainer = kind(model=model, args=arguments, train_dataset=Texts(), **more)
    torch.set_num_threads(1)
    trainer.train(resume_from_checkpoint=checkpoint if kind is SlotTrainer else None)
    return digest(model)


found = {
    "no": under_accelerate("no"),
    "bf16": under_accelerate("bf16"),
    "trainer": under_trainer(SlotTrainer, slots=SLOTS),
    "control": under_trainer(transformers.Trainer),
}
print(json.dumps(found))
