"""Sources of training batches: released rows, or raw rows that are mixed again in every batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, cast

import torch
from torch import Tensor

from mixveil.core.types import Batch, Release
from mixveil.encoders.batch_transform import BatchTransform
from mixveil.releases.kinds.records import Records
from mixveil.theory.response import posterior

_SHARE_KEPT = 0.5  # of the free memory of a GPU


class BatchSource(Protocol):
    """Rows to train on: how many there are, the values of a row, and the number of classes."""

    rows: int
    inputs: int
    classes: int

    def batch(self, index: Tensor, step: int) -> Batch:
        """The rows of `index`, (m, inputs) and (m, classes), on the device. step: of the training, for draws."""


class Released:
    """The rows of releases, as a server has them.

    Rows stay in their files and are read on demand; where they fit, they are kept on the GPU. A randomised label
    becomes the probabilities of the classes that it may stand for.
    """

    def __init__(self, releases: Sequence[Release], device: torch.device) -> None:
        self.rows = sum(len(release.payload) for release in releases)
        self.inputs = torch.Size(releases[0].shape).numel()
        self.classes = len(releases[0].classes)
        self.device = device
        room = torch.cuda.mem_get_info(device)[0] * _SHARE_KEPT if device.type == "cuda" else 0
        on_device = sum(_records(release).bytes for release in releases) <= room
        self._parts = [_ReleasedPart(release, device, on_device=on_device) for release in releases]
        randomised = any(release.label_epsilon is not None for release in releases)
        self.classes_present = (torch.stack([part.reported for part in self._parts]).sum(0) > 0) | randomised
        """(classes,) which classes may have rows."""

    def batch(self, index: Tensor, step: int) -> Batch:
        batches, places, start = [], [], 0
        for part in self._parts:
            inside = ((index >= start) & (index < start + part.rows)).nonzero()[:, 0]
            if len(inside):
                batches.append(part.take(index[inside] - start))
                places.append(inside)
            start += part.rows
        if len(batches) == 1:
            return batches[0]
        order = torch.cat(places).argsort().to(self.device)  # back to the order of the index
        return Batch(*(torch.cat(parts)[order] for parts in zip(*batches, strict=True)))


class _ReleasedPart:
    """One release. reported: (classes,) how many rows are labelled with each class."""

    def __init__(self, release: Release, device: torch.device, *, on_device: bool) -> None:
        self.rows, self.encoder, self.device = len(release.payload), release.encoder, device
        records = _records(release)
        self.reported = sum((shard.y.double().sum(0) for shard in records.shards), start=torch.zeros(1))
        self.records = records.held_on(device) if on_device else records
        epsilon = release.label_epsilon
        self.shares = None if epsilon is None else posterior(self.reported, epsilon).float().to(device)

    def take(self, index: Tensor) -> Batch:
        x, y = self.records.take(index)
        x, y = x.to(self.device, non_blocking=True), y.to(self.device, non_blocking=True)
        x = self.encoder.restore(x.flatten(1))
        return Batch(x, y if self.shares is None else y @ self.shares)


class RemixedEveryBatch:
    """Raw rows that are mixed again in every batch, as the paper's code trains. For experiments only.

    It needs the raw rows at every step, so it protects nothing. transform: None trains on the raw rows.
    """

    def __init__(self, x: Tensor, labels: Tensor, classes: int, transform: BatchTransform | None) -> None:
        self.rows, self.inputs, self.classes = len(x), x[0].numel(), classes
        self._x, self._labels, self._transform = x, labels.to(x.device), transform

    def batch(self, index: Tensor, step: int) -> Batch:
        rows = index.to(self._x.device, non_blocking=True)
        x, labels = self._x[rows].flatten(1).float(), self._labels[rows]
        if self._transform is None:
            return Batch(x, torch.nn.functional.one_hot(labels, self.classes).float())
        self._transform.restart(step)
        return Batch(*self._transform(x, labels))


def _records(release: Release) -> Records:
    return cast("Records", release.payload)
