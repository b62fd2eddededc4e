"""A LoRA adapter by peft under the Trainer; lines of fastseed end in ``# +``."""

import sys

import peft
import torch
import transformers
from transformers.trainer_utils import get_last_checkpoint

import fastseed  # +
from fastseed.integrations.transformers import FastseedCallback  # +

OUT, WORKERS = sys.argv[1], int(sys.argv[2])


class Texts(torch.utils.data.Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, index):
        start = int(torch.randint(8, ()))  # a random crop
        tokens = (torch.arange(start, start + 12) * (index + 1)) % 31
        return {"input_ids": tokens, "labels": tokens}


class Printer(transformers.TrainerCallback):
    def on_log(self, args, state, control, logs=None, **more):
        if "loss" in logs:
            print(int(state.epoch), state.global_step, logs["loss"], logs["grad_norm"], flush=True)


fastseed.init(42)  # + transformers.set_seed(42)
config = transformers.GPT2Config(
    n_layer=2, n_embd=16, n_head=2, vocab_size=31, n_positions=16, bos_token_id=0, eos_token_id=0
)
lora = peft.LoraConfig(r=4, lora_dropout=0.1, target_modules=["c_attn"], task_type="CAUSAL_LM")
model = peft.get_peft_model(transformers.GPT2LMHeadModel(config), lora)
trainer = transformers.Trainer(
    model=model,
    args=transformers.TrainingArguments(
        OUT, num_train_epochs=5, per_device_train_batch_size=4, gradient_accumulation_steps=2,
        save_steps=1, save_total_limit=2, logging_steps=1, learning_rate=1e-2, report_to=[],
        dataloader_num_workers=WORKERS, remove_unused_columns=False, disable_tqdm=True,
        use_cpu=True,
    ),
    train_dataset=fastseed.data.per_sample(Texts()),  # + Texts()
    callbacks=[Printer(), FastseedCallback()],  # + [Printer()]
)  # fmt: skip
trainer.train(resume_from_checkpoint=get_last_checkpoint(OUT))
print("end", [p.double().sum().item() for p in model.parameters() if p.requires_grad])
