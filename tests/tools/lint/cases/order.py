"""Orders that no file system and no set keeps. A line that ends in `fault: ID` has that fault."""

import glob
import os
from os import listdir
from pathlib import Path

import numpy as np
from torch.utils.data import Dataset


class Images(Dataset):
    def __init__(self, root: Path, labels, names, kinds: list[int]):
        self.files = os.listdir(root)  # fault: FS401
        self.paths = [root / name for name in listdir(root)]  # fault: FS401
        self.images = list(root.glob("*.png"))  # fault: FS401
        self.masks = sorted(root.rglob("*.png"))
        self.later = glob.glob("*.wav")
        self.later.sort()
        self.classes = list(set(names))  # fault: FS402
        self.class_to_idx = {c: i for i, c in enumerate(set(names))}  # fault: FS402
        self.numbers = list(set(labels)), list(set(kinds))  # numbers, in PyTorch's parlance
        self.ordered = sorted(set(labels))
        self.known = set(labels)

    def __getitem__(self, index):
        return self.files[index], self.paths[index], self.images[index], self.later[index]


def samples_of(folder):
    samples = []
    for name in os.listdir(folder):  # fault: FS401
        samples.append(name)
    return samples


def image_files(folder):
    found = []
    for root, _, files in os.walk(folder):  # fault: FS401
        found.extend(os.path.join(root, name) for name in files)
    return found


def image_files_in_order(folder):
    found = []
    for root, folders, files in os.walk(folder):
        folders.sort()
        found.extend(os.path.join(root, name) for name in sorted(files))
    return found


def sorted_later(folder):
    samples = []
    for path in Path(folder).iterdir():
        samples.append(path)
    samples.sort()
    return samples


def sorted_by_caller(folder):
    return [path for path in Path(folder).iterdir()]


def train_images(folder):
    yield from sorted(sorted_by_caller(folder))


def walked_samples(folder):
    yield from Path(folder).iterdir()  # fault: FS401
    for path in Path(folder).rglob("*"):  # fault: FS401
        if path.is_file():
            yield path


def counted_samples(folder):
    data = set(os.listdir(folder))
    if "train" in os.listdir(folder):
        print(len(os.listdir(folder)))
    return len(glob.glob("*.png")), max(Path(folder).iterdir()), data


def newest_image(folder):
    images = glob.glob(f"{folder}/*.png")
    return max(images, key=os.path.getmtime) if images else ""


def by_split(folder, results):
    for split in os.listdir(folder):
        results[split].append(split)


def clean_up(folder):
    for path in Path(folder).glob("checkpoint*"):
        path.unlink()
    stale = [name for name in os.listdir(folder) if name.endswith(".ckpt")]
    return stale


def vocabulary(text, labels):
    vocab = set(text.split())  # fault: FS402
    index = {word: i for i, word in enumerate(vocab)}
    chars = list(set(text))  # fault: FS402
    array = np.array(list({label.name for label in labels}))  # fault: FS402
    counted: set[int] = set(text)
    chars += list(counted)
    sizes = list({len(word) for word in text})
    tokens = [*set(text)]  # fault: FS402
    numbers = [label for label in {1, 2, 3}]
    kept = sorted(list(set(text)))
    return index, chars, array, sizes, tokens, numbers, kept


def words_of(text):
    vocab = list(dict.fromkeys(text))
    total = sum(len(word) for word in set(text))
    return vocab, total, any(word in "abc" for word in set(text))


CLASSES = {"cat", "dog"}  # fault: FS402
WORDS = frozenset({"a", "b"})


class Sorted:
    def __init__(self):
        self.names = sorted(CLASSES)  # a copy: the set has no order still
        self.class_to_idx = {name: i for i, name in enumerate(CLASSES)}
        self.words = sorted(WORDS)


def number_classes(names):
    labels = set(names)  # fault: FS402
    class_to_idx = {}
    for i, name in enumerate(labels):
        class_to_idx[name] = i
    return class_to_idx


def number_words(words):
    vocabulary = {}
    for word in {word.lower() for word in words}:  # fault: FS402
        vocabulary[word] = len(vocabulary)
    return vocabulary


def count_words(words):
    sizes, splits = {}, {}
    for word in {word.lower() for word in words}:
        sizes[word] = len(word)
    labels = set(words)
    labels = sorted(labels)
    for i, label in enumerate(labels):
        splits[label] = i
    return sizes, splits
