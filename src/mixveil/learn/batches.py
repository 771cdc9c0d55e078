"""Where the batches of a training come from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, cast

import torch
from torch import Tensor

from mixveil.core.types import Batch, Release
from mixveil.encoders.batch_transform import BatchTransform
from mixveil.releases.kinds.records import Records
from mixveil.theory.response import posterior

_SHARE_HELD = 0.5  # of a GPU's free memory


class BatchSource(Protocol):
    """Rows to train on. `batch` gives some of them on the device; step: the number of the batch, for what is drawn."""

    rows: int
    inputs: int
    classes: int

    def batch(self, index: Tensor, step: int) -> Batch: ...


class Released:
    """The rows of releases, as they are: this is all that a server has. They stay in their files and are read as they
    are asked for; on a GPU they are held there, if they fit. Randomised labels stand for the classes that they make
    likely."""

    def __init__(self, releases: Sequence[Release], device: torch.device) -> None:
        self.rows = sum(len(release.payload) for release in releases)
        self.inputs = torch.Size(releases[0].shape).numel()
        self.classes = len(releases[0].classes)
        self.device = device
        room = torch.cuda.mem_get_info(device)[0] * _SHARE_HELD if device.type == "cuda" else 0
        held = sum(_records(release).bytes for release in releases) <= room
        self._parts = [_Part(release, device, held=held) for release in releases]
        doubt = any(release.label_epsilon is not None for release in releases)
        self.met = (torch.stack([part.said for part in self._parts]).sum(0) > 0) | doubt
        """(classes,) which of them may have rows."""

    def batch(self, index: Tensor, step: int) -> Batch:
        found, places, start = [], [], 0
        for part in self._parts:
            inside = ((index >= start) & (index < start + part.rows)).nonzero()[:, 0]
            if len(inside):
                found.append(part.take(index[inside] - start))
                places.append(inside)
            start += part.rows
        if len(found) == 1:
            return found[0]
        order = torch.cat(places).argsort().to(self.device)  # rows in the order of the index
        return Batch(*(torch.cat(parts)[order] for parts in zip(*found, strict=True)))


class _Part:
    """One release. said: (classes,) how many rows are said to be of each class."""

    def __init__(self, release: Release, device: torch.device, *, held: bool) -> None:
        self.rows, self.encoder, self.device = len(release.payload), release.encoder, device
        records = _records(release)
        self.said = sum((shard.y.double().sum(0) for shard in records.shards), start=torch.zeros(1))
        self.records = records.held_on(device) if held else records
        epsilon = release.label_epsilon
        self.shares = None if epsilon is None else posterior(self.said, epsilon).float().to(device)

    def take(self, index: Tensor) -> Batch:
        x, y = self.records.take(index)
        x, y = x.to(self.device, non_blocking=True), y.to(self.device, non_blocking=True)
        x = self.encoder.restore(x.flatten(1))
        return Batch(x, y if self.shares is None else y @ self.shares)


class RemixedEveryBatch:
    """Rows that are mixed anew in every batch, as the paper's code trains. It needs the raw rows at every step, so it
    is no release and protects nothing: for experiments. Without a transform: the rows in the clear."""

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
