"""Tiny-ImageNet: one folder a class for training, a list of file names for validation."""

from __future__ import annotations

from pathlib import Path

import torch

from mixveil.core.errors import DataFormatError, DataNotFoundError
from mixveil.data.binary import plain_file
from mixveil.data.folder import folder_images, listed_images
from mixveil.data.images import Images

_LIMIT = 16 << 20


def named_images(root: Path, split: str) -> Images:
    """Classes are the WordNet ids of train/, in alphabetical order, in both splits."""
    train = root / "train"
    if not train.is_dir():
        raise DataNotFoundError(f"{train} does not exist")
    if split == "train":
        return folder_images(train, name="tiny-imagenet")
    classes = tuple(sorted(entry.name for entry in train.iterdir() if entry.is_dir()))
    number = {name: label for label, name in enumerate(classes)}
    annotations = root / "val" / "val_annotations.txt"
    if not annotations.exists():
        raise DataNotFoundError(f"{annotations} does not exist")
    paths, labels = [], []
    with plain_file(annotations, _LIMIT) as opened:
        lines = opened.read().decode("utf-8", "replace").splitlines()
    for line in lines:
        file, _, rest = line.partition("\t")
        wordnet_id = rest.partition("\t")[0]
        if wordnet_id not in number:
            raise DataFormatError(f"{annotations}: {file} has the class {wordnet_id!r}, which train/ does not have")
        paths.append(root / "val" / "images" / file)
        labels.append(number[wordnet_id])
    return listed_images("tiny-imagenet", paths, torch.tensor(labels), classes)
