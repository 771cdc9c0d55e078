"""What the losses of MixCon and UniCon cost beside a training step of VGG-16: 32 × 32 pixels, 10 classes, float32."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from benchmarks.record import Found, Plain
from benchmarks.timing import device_name, medians
from mixveil.core.device_random import DeviceStream
from mixveil.core.randomness import SeededStream
from mixveil.features.split import networks
from mixveil.learn.image_training import ImageTraining
from mixveil.learn.split_training import Penalty, SplitRecipe, begun

_STEPS = 20


def penalties(batch: int = 128) -> Found:
    """A step with each loss against the same step without, in turns: as a CUDA graph on a GPU, as it is on a CPU."""
    cuda = torch.cuda.is_available()
    device = torch.device("cuda" if cuda else "cpu")
    rows = batch * (_STEPS if cuda else 2)
    x = DeviceStream(SeededStream(0)).uniform(rows, 3, 32, 32, device=device)
    labels = torch.arange(rows, device=device) % 10
    recipe = SplitRecipe(epochs=10_000, batch=batch, learning_rate=1e-3, momentum=0.1, weight_decay=5e-4, beta=1e-8)
    kinds: tuple[Penalty, ...] = ("none", "mixcon", "unicon")
    works = [_steps(x, labels, replace(recipe, penalty=kind)) for kind in kinds]
    repetitions = 15 if cuda else 7
    plain, mixcon, unicon = medians(*works, calls=_STEPS if cuda else 2, repetitions=repetitions)
    row: dict[str, Plain] = {
        "device": device_name(),
        "rows": batch,
        "plain_step_ms": plain * 1e3,
        "mixcon_over_plain": mixcon / plain,
        "unicon_over_plain": unicon / plain,
    }
    return Found([row], {"warm_up": 1, "repetitions": repetitions, "statistic": "median"}, device=device_name())


def _steps(x: Tensor, labels: Tensor, recipe: SplitRecipe) -> Callable[[], object]:
    client, server = networks.cut(networks.network("vgg16", (3, 32, 32), 10), "block2")
    training: ImageTraining = begun(client, server, x, labels, 10, recipe)
    steps = training.steps()
    return lambda: next(steps)
