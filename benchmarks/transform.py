"""A training step with mixed batches beside the same step on the batch as it is."""

from __future__ import annotations

import torch
from torch.nn.functional import cross_entropy

from benchmarks.record import Found, Plain
from benchmarks.timing import device_name, medians
from mixveil.core.randomness import SeededStream
from mixveil.encoders.batch_transform import BatchTransform
from mixveil.encoders.singular import Singular
from mixveil.features.backbones.resnet import resnet18


def transform() -> Found:
    """A training step of a ResNet-18 with mixed batches against the same step on the batch as it is, and the transform
    alone. On a GPU in bfloat16, with images of two sizes; else a few small ones on the CPU."""
    cuda = torch.cuda.is_available()
    cases = [(128, 224), (128, 32)] if cuda else [(16, 32)]
    with torch.backends.cudnn.flags(enabled=True, benchmark=True):
        found = [mixed_steps(torch.device("cuda" if cuda else "cpu"), rows, size) for rows, size in cases]
    settings: dict[str, Plain] = {"warm_up": 1, "repetitions": 15, "statistic": "median", "calls": 20 if cuda else 3}
    return Found(found, settings, device=device_name())


def mixed_steps(device: torch.device, rows: int, size: int) -> dict[str, Plain]:
    cuda = device.type == "cuda"
    torch.manual_seed(0)
    net = resnet18().to(device).requires_grad_(True).train()
    net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)
    x = torch.rand(rows, 3, size, size, device=device).contiguous(memory_format=torch.channels_last)
    y = torch.arange(rows, device=device) % 1000
    mix = BatchTransform(Singular(alpha=0.7), sigma=0.5, classes=1000, stream=SeededStream(0))

    def step(x: torch.Tensor, y: torch.Tensor) -> None:
        optimizer.zero_grad()
        with torch.autocast(device.type, torch.bfloat16, enabled=cuda):
            *_, (_, last) = net.maps(x)
            loss = cross_entropy(net.fc(last.mean((2, 3))), y)
        loss.backward()
        optimizer.step()

    works = (lambda: step(x, y), lambda: step(*mix(x, y)), lambda: mix(x, y))
    plain, mixed, alone = medians(*works, calls=20 if cuda else 3, repetitions=15)
    return {
        "device": device_name(),
        "rows": rows,
        "pixels": size,
        "plain_step_ms": plain * 1e3,
        "mixed_step_ms": mixed * 1e3,
        "transform_alone_ms": alone * 1e3,
        "mixed_over_plain": mixed / plain,
    }
