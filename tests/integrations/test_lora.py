"""The recipe for LoRA adapters: initialized by name, whatever was drawn before."""

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
