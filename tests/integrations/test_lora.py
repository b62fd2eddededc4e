"""The recipe for LoRA adapters: initialized by name, whatever was drawn before."""

import math

import pytest
import torch

import fastseed

peft = pytest.importorskip("peft", reason="peft is not installed")
transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.filterwarnings("ignore")


def adapters(kind, *, recipe, drawn):
    config = transformers.GPT2Config(n_layer=2, n_embd=16, n_head=2, vocab_size=32)
    base = transformers.GPT2LMHeadModel(config)
    torch.rand(drawn)
    lora = peft.LoraConfig(r=4, target_modules=["c_attn"], init_lora_weights=kind)
    model = peft.get_peft_model(base, lora)
    if recipe:
        with fastseed.nn.initialize(model, task=0):
            for module in model.modules():
                if hasattr(module, "reset_lora_parameters"):
                    module.reset_lora_parameters("default", kind)
    return [p.detach() for name, p in model.named_parameters() if "lora_A" in name]


@pytest.mark.parametrize("kind", [True, "gaussian"])
def test_an_adapter_is_a_function_of_its_name(kind):
    fastseed.init(42, rank=0, world_size=1)
    one, two = (adapters(kind, recipe=True, drawn=drawn) for drawn in (0, 5))
    assert len(one) == 2 and not torch.equal(*one)
    assert all(map(torch.equal, one, two))
    plain = (adapters(kind, recipe=False, drawn=drawn) for drawn in (0, 5))
    assert not any(map(torch.equal, *plain))  # the negative control


safetensors = pytest.importorskip("safetensors.torch")


def base():
    config = transformers.GPT2Config(n_layer=2, n_embd=16, n_head=2, vocab_size=32)
    torch.manual_seed(0)  # stands for a pretrained model
    return transformers.GPT2LMHeadModel(config).eval()


def fill_projections(model, adapter="default"):
    for name in ("vera_A", "vera_B"):
        matrix = getattr(model.base_model, name)[adapter]
        key = fastseed.derive_key(f"vera/{name}", task=0)
        fastseed.random.normal_(matrix, key, std=math.sqrt(2 / matrix.shape[1]))
    return model


def test_frozen_matrices_come_from_their_names_and_not_from_the_checkpoint(tmp_path):
    fastseed.init(42, rank=0, world_size=1)
    config = peft.VeraConfig(r=4, target_modules=["c_attn"], save_projection=False, d_initial=0.5)
    model = fill_projections(peft.get_peft_model(base(), config)).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "vera_lambda" in name:
                parameter.add_(0.1)
    tokens = torch.arange(8).unsqueeze(0)
    expected = model(tokens).logits
    model.save_pretrained(tmp_path)
    kept = safetensors.load_file(tmp_path / "adapter_model.safetensors")
    assert kept and not any("vera_A" in name or "vera_B" in name for name in kept)

    fastseed.init(42, rank=0, world_size=1)
    torch.rand(5)  # generators elsewhere change nothing
    loaded = peft.PeftModel.from_pretrained(base(), tmp_path).eval()
    assert not torch.equal(loaded(tokens).logits, expected)  # peft's own matrices
    assert torch.equal(fill_projections(loaded)(tokens).logits, expected)
