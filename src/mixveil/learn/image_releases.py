"""From releases of images to a network that was trained on them from scratch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mixveil.core.checkpoint import EVERY, Saved
from mixveil.core.errors import ArgumentError, MismatchError, TrainingError
from mixveil.core.types import Progress, Release
from mixveil.encoders.instahide import CalibratedInstaHide
from mixveil.learn.batches import Released
from mixveil.learn.epochs import SameEveryEpoch
from mixveil.learn.image_head import ImageHead, InstaHideSettings, is_image
from mixveil.learn.image_training import ImageRecipe, fit_images
from mixveil.learn.training import Job, Trained, described

_BLOCK = 1 << 13


def check_images(job: Job) -> None:
    """Refuse releases that are not of images: a network that looks at pixels has nothing to see in others."""
    if job.of_sums:
        raise ArgumentError("the head resnet18 is trained on records, not on statistics")
    first = job.releases[0]
    if job.projection is not None or first.extractor is not None or not is_image(first.shape):
        what = "through a projection" if job.projection is not None else f"of shape {first.shape}"
        raise MismatchError(
            f"the head resnet18 is trained on images, and release {first.id[:8]} of {first.party} has rows {what}: "
            f"encode pixels, or take the head mlp or discriminant"
        )


def train_images(
    job: Job,
    *,
    recipe: ImageRecipe,
    device: torch.device,
    state: Path | None = None,
    every: float = EVERY,
    progress: Progress = lambda _: None,
    note: Callable[[str], None] = lambda text: None,
    stop: Callable[[], bool] = lambda: False,
) -> Trained:
    """Train a ResNet-18 on all rows of a job, the same in every epoch. state, every, note, stop: as in `train_mlp`."""
    check_images(job)
    released = Released(job.releases, torch.device("cpu"))
    x, y = _all_rows(released)
    mean, std = float(x.double().mean()), float(x.double().std())
    if not 0 < std < float("inf"):
        raise TrainingError("all values of these releases are alike: there is nothing to learn")
    x = x.sub_(mean).div_(std).view(len(x), *job.releases[0].shape)
    about = {"head": "resnet18", **asdict(recipe), "rows": released.rows, "device": device.type}
    same = {**about, "releases": [release.id for release in job.releases]}
    saved = None if state is None else Saved(state, same, every)
    source = SameEveryEpoch(x.to(device), y.to(device))
    net, _ = fit_images(source, recipe, saved=saved, progress=progress, note=note, stop=stop)
    net = net.cpu()
    if not all(bool(tensor.isfinite().all()) for tensor in net.state_dict().values()):
        raise TrainingError("the trained network is not finite: use a smaller learning rate")
    with torch.no_grad():
        net.head.bias[~released.classes_present] = -torch.inf  # no party has this class
    return described(ImageHead(net, job.releases[0].shape, mean, std, _instahide(job.releases)), about, job)


def _all_rows(released: Released) -> tuple[Tensor, Tensor]:
    """(n, d) and (n, classes), in memory."""
    x, y = torch.empty(released.rows, released.inputs), torch.empty(released.rows, released.classes)
    for index in torch.split(torch.arange(released.rows), _BLOCK):
        x[index], y[index] = (part.float() for part in released.batch(index, 0))
    return x, y


def _instahide(releases: Sequence[Release]) -> InstaHideSettings | None:
    """The one of all releases; None where one is of another encoder, or they differ."""
    found: set[InstaHideSettings | None] = set()
    for release in releases:
        encoder: Any = release.encoder
        masks = isinstance(encoder, CalibratedInstaHide)
        found.add(InstaHideSettings(encoder.k, encoder.c1, encoder.centre) if masks else None)
    return found.pop() if len(found) == 1 else None
