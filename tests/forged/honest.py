"""Names, copies and figures of the honest files that tests forge; the fixture `honest` writes them."""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

WEIGHTS = "c" * 64
SHARD, SUMS, TENSORS = "shard-00000.safetensors", "sums.safetensors", "model.safetensors"


def check_finite(item: Any, case: object) -> None:
    """Every figure in it, however deep."""
    if isinstance(item, float):
        assert math.isfinite(item), case
    elif isinstance(item, Tensor):
        bias = item[item != -torch.inf] if item.is_floating_point() else item  # −∞: a class that nobody has
        assert bool(bias.isfinite().all()), case
    elif isinstance(item, Mapping):
        check_finite((*item.keys(), *item.values()), case)
    elif isinstance(item, tuple | list):
        for inner in item:
            check_finite(inner, case)
    elif is_dataclass(item):
        check_finite([getattr(item, field.name) for field in fields(item)], case)


def copied(honest: Path, name: str, out: Path) -> Path:
    """Anew each time: what was mapped before must not change under its reader."""
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(honest / name, out)
    return out
