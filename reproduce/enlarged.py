"""scikit-learn's digits at the sizes of other data sets: what quick versions take, since they need no download."""

from __future__ import annotations

from pathlib import Path

import torch
from torch.nn.functional import interpolate

import mixveil
from mixveil.data.images import Images, from_tensors

NAME = "digits-28"
"""The digits in MNIST's size, as a data set by name."""


def digits(split: str, size: int, colours: int = 1, rows: int | None = None) -> Images:
    """The first rows of a split, in whole 255ths."""
    data = mixveil.open_data(f"digits:{split}")
    index = torch.arange(len(data) if rows is None else min(rows, len(data)))
    x = interpolate(data.take(index).x, size=(size, size), mode="bilinear", antialias=True)
    x = x.mul(255).round().clamp(0, 255).div(255).expand(-1, colours, -1, -1).contiguous()
    return from_tensors(x, data.labels[index], classes=10, name=f"digits, {size} × {size}")


def open_data(name: str, *, data_dir: Path | None = None) -> Images:
    """As `mixveil.open_data`; and the digits in MNIST's size."""
    known, _, split = name.partition(":")
    return digits(split or "train", 28) if known == NAME else mixveil.open_data(name, data_dir=data_dir)
