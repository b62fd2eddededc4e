"""One rank of a job: initializes models in every layout, and prints digests of their parameters.

``init_ranks.py torch|transformers [class ...]``: all models, or those of some classes. A job of one
rank initializes each model whole. More ranks shard it while it is on the meta device (FSDP2, every
parameter cut as tensor parallelism does, and both) and initialize the shards. Parameters are
gathered before they are digested.
"""

import hashlib
import json
import logging
import os
import sys
import traceback
import warnings

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import (
    DTensor,
    Replicate,
    Shard,
    distribute_tensor,
)

import fastseed

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
warnings.simplefilter("ignore")
logging.disable(logging.WARNING)
torch.set_num_threads(1)
UNTOUCHED = 0.34375
CONTROL = {"torch": "encoder", "transformers": "LlamaForCausalLM"}


class Everything(nn.Module):
    """Initialized by every function of ``torch.nn.init`` that draws, and by methods of tensors."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(7 + i, 12) for i in range(10))
        self.embedding = nn.Embedding(11, 6, padding_idx=3)
        self.conv = nn.Conv2d(3, 5, 3)
        self.attention = nn.MultiheadAttention(12, 2)
        self.tied = nn.Linear(7, 12)
        self.tie_weights()
        self.order = nn.Parameter(torch.empty(9, dtype=torch.int64), requires_grad=False)

    def tie_weights(self):
        self.tied.weight = self.layers[0].weight

    def init_weights(self):
        for module in self.modules():
            getattr(module, "reset_parameters", lambda: None)()
        self.attention._reset_parameters()
        weights = [layer.weight for layer in self.layers]
        nn.init.trunc_normal_(weights[0], std=0.02)
        nn.init.kaiming_uniform_(weights[1])
        nn.init.kaiming_normal_(weights[2])
        nn.init.xavier_uniform_(weights[3])
        nn.init.xavier_normal_(weights[4])
        nn.init.orthogonal_(weights[5], gain=1.5)
        nn.init.sparse_(weights[6], sparsity=0.3)
        weights[7].data.exponential_(2.0)
        weights[8].data.bernoulli_(0.4)
        nn.init.orthogonal_(self.conv.weight)
        self.layers[9].weight.data.normal_(mean=0.0, std=0.3).mul_(2)
        self.order.data.random_(-5, 1000)


def torch_models():
    layer = dict(d_model=16, nhead=2, dim_feedforward=24, batch_first=True)
    return {"everything": Everything, "encoder": lambda: nn.TransformerEncoderLayer(**layer)}


def transformers_models():
    import transformers as t

    text = dict(vocab_size=61, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
                intermediate_size=24, max_position_embeddings=20)  # fmt: skip
    image = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24,
                 image_size=8, patch_size=4)  # fmt: skip
    grouped = {**text, "num_key_value_heads": 1, "pad_token_id": None}
    audio = dict(vocab_size=61, d_model=16, encoder_layers=1, decoder_layers=1,
                 encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=24,
                 decoder_ffn_dim=24, max_source_positions=10, max_target_positions=10,
                 num_mel_bins=8, pad_token_id=0)  # fmt: skip
    configs = {
        "GPT2LMHeadModel": t.GPT2Config(vocab_size=61, n_embd=16, n_layer=2, n_head=2,
                                        n_positions=20, bos_token_id=1, eos_token_id=1),
        "LlamaForCausalLM": t.LlamaConfig(**grouped),
        "BertForMaskedLM": t.BertConfig(**text),
        "T5ForConditionalGeneration": t.T5Config(vocab_size=61, d_model=16, d_kv=8, d_ff=24,
                                                 num_layers=1, num_heads=2),
        "ViTForImageClassification": t.ViTConfig(**image),
        "MistralForCausalLM": t.MistralConfig(**grouped),
        "Qwen2ForCausalLM": t.Qwen2Config(**grouped),
        "Qwen2MoeForCausalLM": t.Qwen2MoeConfig(**grouped, num_experts=2, num_experts_per_tok=1,
                                                moe_intermediate_size=8,
                                                shared_expert_intermediate_size=8),
        "RobertaForMaskedLM": t.RobertaConfig(**text),
        "OPTForCausalLM": t.OPTConfig(vocab_size=61, hidden_size=16, num_hidden_layers=2,
                                      num_attention_heads=2, ffn_dim=24, word_embed_proj_dim=16,
                                      max_position_embeddings=20),
        "CLIPModel": t.CLIPConfig(text_config={**text, "projection_dim": 8}, projection_dim=8,
                                  vision_config={**image, "projection_dim": 8}),
        "WhisperForConditionalGeneration": t.WhisperConfig(**audio),
    }  # fmt: skip
    return {name: lambda name=name, c=c: getattr(t, name)(c) for name, c in configs.items()}


# ---------------------------------------------------------------- layouts


def cut(model, mesh):
    """Cut every parameter along the dimension that its name chooses, or repeat it."""

    def placement(name, tensor):
        choice = sum(name.encode()) % (tensor.dim() + 1)
        return [Replicate() if choice == tensor.dim() else Shard(choice)]

    for module in model.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            part = distribute_tensor(
                parameter, mesh, placement(name, parameter), src_data_rank=None
            )
            trained = parameter.requires_grad
            module.register_parameter(name, nn.Parameter(part, requires_grad=trained))
    getattr(model, "tie_weights", lambda: None)()


def shard(model, mesh):
    """Apply FSDP2 to each layer, then to the model, as its tutorial does; it takes no scalars."""
    scalars = {parameter for parameter in model.parameters() if parameter.dim() == 0}
    lists = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
    for module in (*(layer for layers in reversed(lists) for layer in layers), model):
        fully_shard(module, mesh=mesh, ignored_params=scalars)


def layouts():
    line = init_device_mesh("cpu", (WORLD,))
    yield "FSDP2", lambda model: shard(model, line)
    yield "TP", lambda model: cut(model, line)
    if WORLD > 2:
        grid = init_device_mesh("cpu", (WORLD // 2, 2), mesh_dim_names=("dp", "tp"))

        def both(model):
            cut(model, grid["tp"])
            shard(model, grid["dp"])

        yield "FSDP2 over TP", both
        yield "HSDP", lambda model: shard(model, grid)


def digest(model):
    """Return the SHA-256 of all parameters, and the names of those that nothing initialized."""
    total, untouched = hashlib.sha256(), []
    for name, parameter in model.named_parameters():
        whole = parameter.full_tensor() if isinstance(parameter, DTensor) else parameter
        if (whole == UNTOUCHED).any():
            untouched.append(name)
        total.update(name.encode() + whole.detach().reshape(-1).view(torch.uint8).numpy().tobytes())
    return [total.hexdigest(), untouched]


def poisoned(model):
    """Give a model on the meta device memory with a value that nothing initializes to."""
    model.to_empty(device="cpu")
    for tensor in (*model.parameters(), *model.buffers()):
        local = tensor.to_local() if isinstance(tensor, DTensor) else tensor
        if local.is_floating_point():
            local.detach().fill_(UNTOUCHED)
    getattr(model, "tie_weights", lambda: None)()
    return model


def init_weights(model):
    if hasattr(model, "init_weights"):
        model.init_weights()
        return
    for module in model.modules():
        for name in ("reset_parameters", "_reset_parameters"):
            getattr(module, name, lambda: None)()


def by_fastseed(model):
    before = torch.get_rng_state()
    with fastseed.nn.initialize(model):
        init_weights(model)
    assert torch.equal(torch.get_rng_state(), before)


def digests(build):
    def on_meta():
        with torch.device("meta"):
            return build()

    found = {}
    for name, layout in layouts() if WORLD > 1 else [("whole", lambda model: None)]:
        model = on_meta()
        layout(model)
        by_fastseed(poisoned(model))
        found[name] = digest(model)
    return found


def torch_alone(build):
    """Torch's own initialization under one seed, whole or as FSDP2."""
    with torch.device("meta"):
        model = build()
    if WORLD > 1:
        shard(model, init_device_mesh("cpu", (WORLD,)))
    poisoned(model)
    torch.manual_seed(1)
    init_weights(model)
    return digest(model)


def attempt(check, build):
    try:
        return check(build)
    except Exception:
        return traceback.format_exc()


def main():
    if WORLD > 1:
        dist.init_process_group("gloo")
    fastseed.init(42)
    models = torch_models() if sys.argv[1] == "torch" else transformers_models()
    chosen = sys.argv[2:] or models
    found = {name: attempt(digests, models[name]) for name in chosen}
    print(
        json.dumps({"digests": found, "torch": attempt(torch_alone, models[CONTROL[sys.argv[1]]])}),
        flush=True,
    )
    if WORLD > 1:
        dist.barrier()
        dist.destroy_process_group()
    os._exit(0)  # threads of gloo may abort an interpreter that ends in good order


main()
