"""One digest of all parameters, whatever the number of ranks and the layout."""

import functools
import hashlib

import pytest
import torch
import torch.distributed as dist
from helpers.ranks import ranks
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

import fastseed

UNTOUCHED = 0.34375  # what nothing initializes to


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
    t = pytest.importorskip("transformers")

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


def layouts(world):
    line = init_device_mesh("cpu", (world,))
    yield "FSDP2", lambda model: shard(model, line)
    yield "TP", lambda model: cut(model, line)
    if world > 2:
        grid = init_device_mesh("cpu", (world // 2, 2), mesh_dim_names=("dp", "tp"))

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
    return total.hexdigest(), tuple(untouched)


def on_memory(model):
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


def initialized(build, layout=lambda model: None):
    """Lay out a model of the meta device and initialize it."""
    with torch.device("meta"):
        model = build()
    layout(model)
    before = torch.get_rng_state()
    with fastseed.nn.initialize(on_memory(model)):
        init_weights(model)
    assert torch.equal(torch.get_rng_state(), before)
    return digest(model)


def by_layout(models, chosen):
    """Return the digests of a rank, by model and layout."""
    fastseed.init(42)
    builds, world = MODELS[models](), dist.get_world_size()
    return {
        model: {name: initialized(builds[model], layout) for name, layout in layouts(world)}
        for model in chosen or builds
    }


MODELS = {"torch": torch_models, "transformers": transformers_models}
SOME = ("GPT2LMHeadModel", "LlamaForCausalLM", "BertForMaskedLM")
# transformers itself leaves it uninitialized after to_empty
LEFT = {"CLIPModel": ("logit_scale",)}


@functools.cache
def whole(models):
    """Return the digests of whole models, in this process."""
    fastseed.init(42)
    return {name: initialized(build) for name, build in MODELS[models]().items()}


@pytest.mark.parametrize(
    ("models", "world", "chosen"),
    [
        pytest.param("torch", 2, (), marks=pytest.mark.slow),
        pytest.param("torch", 4, (), marks=pytest.mark.slow),
        pytest.param("transformers", 2, SOME, marks=pytest.mark.integrations),
        pytest.param("transformers", 4, (), marks=pytest.mark.integrations),
    ],
)
def test_parameters_do_not_depend_on_the_layout(models, world, chosen):
    expected = whole(models)
    assert len(expected) == {"torch": 2, "transformers": 12}[models]
    for found in ranks(world, by_layout, models, chosen, timeout=280):
        assert len(found) == len(chosen or expected)
        for model, digests in found.items():
            assert expected[model][1] == LEFT.get(model, ())
            assert len(digests) == (4 if world > 2 else 2)
            assert set(digests.values()) == {expected[model]}, (model, digests)
