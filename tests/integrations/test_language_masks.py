"""``per_batch`` around the collator of transformers that masks tokens, and in its Trainer."""

import pytest
import torch
from helpers.batches import BATCH, N, check
from helpers.loaders import start
from helpers.worker_cases import flat
from torch.utils.data import Dataset

from fastseed.data import Loader, per_batch, per_sample

pytestmark = pytest.mark.filterwarnings("ignore")
LENGTH = 16


@pytest.fixture(autouse=True)
def job():
    start(3)


class Texts(Dataset):
    """Token ids; of one length, or of lengths that differ."""

    def __init__(self, lengths):
        self.lengths = lengths

    def __len__(self):
        return N

    def __getitem__(self, i):
        length = self.lengths[i % len(self.lengths)]
        return {"input_ids": [5 + (i * 7 + k) % 90 for k in range(length)]}


@pytest.fixture(scope="module")
def transformers():
    return pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def tokenizer(transformers):
    tokenizers = pytest.importorskip("tokenizers")
    special = ["[PAD]", "[MASK]", "[UNK]", "[CLS]", "[SEP]"]
    words = {word: i for i, word in enumerate([*special, *(f"w{i}" for i in range(90))])}
    model = tokenizers.models.WordLevel(words, unk_token="[UNK]")
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer(model),
        **{"pad_token": "[PAD]", "mask_token": "[MASK]", "unk_token": "[UNK]"},
        **{"cls_token": "[CLS]", "sep_token": "[SEP]"},
    )


@pytest.mark.parametrize("kind", ["pt", "np"])
def test_masks_of_language_models(transformers, tokenizer, kind):
    masks = transformers.DataCollatorForLanguageModeling(tokenizer, return_tensors=kind)
    whole = check(per_sample(Texts((9, LENGTH, 12))), per_batch(masks))
    masked = [[row.count(1) for row in batch[0]] for batch in whole]
    assert len({str(row) for row in masked}) > N // BATCH // 2 and sum(map(sum, masked)) > N


@pytest.mark.parametrize("workers", [0, 1])
def test_the_collator_s_own_seed_is_an_error(transformers, tokenizer, workers):
    """Its generator is made in each process anew, from the seed and the worker's number."""
    masks = transformers.DataCollatorForLanguageModeling(tokenizer, seed=1)
    loader = Loader(Texts((9,)), BATCH, num_workers=workers, collate_fn=per_batch(masks))
    with pytest.raises(RuntimeError, match=r"its call made collate\.generator: pass it no seed"):
        flat(loader)


def test_the_trainer(transformers, tokenizer, tmp_path):
    """With ``remove_unused_columns=False``: it would hand other samples to the collator."""

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight, self.seen = torch.nn.Parameter(torch.zeros(1)), []

        def forward(self, input_ids, labels, **more):
            self.seen.append((input_ids.tolist(), labels.tolist()))
            return {"loss": (self.weight**2).sum()}

    from fastseed.integrations.transformers import FastseedCallback

    masks = per_batch(transformers.DataCollatorForLanguageModeling(tokenizer))
    found = []
    for workers, keeps in ((0, True), (2, True), (0, False)):
        start(0)
        model, arguments = Model(), transformers.TrainingArguments(
            str(tmp_path), num_train_epochs=2, per_device_train_batch_size=BATCH, report_to=[],
            dataloader_num_workers=workers, remove_unused_columns=not keeps, use_cpu=True,
            save_strategy="no", disable_tqdm=True,
        )  # fmt: skip
        trainer = transformers.Trainer(
            model, arguments, data_collator=masks, train_dataset=per_sample(Texts((9, LENGTH))),
            callbacks=[FastseedCallback()],
        )  # fmt: skip
        if keeps:
            trainer.train()
            found.append(model.seen)
        else:
            with pytest.raises(RuntimeError, match="the samples of this batch are not known"):
                trainer.train()
    assert found[0] == found[1] and len(found[0]) == 2 * N // BATCH
