"""Small data and releases that tests make."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from mixveil.attacks.shared.model import Prior, prior_of
from mixveil.core.randomness import SecureStream, SeededStream, Stream
from mixveil.core.types import Batch, Dataset, Encoder, Fact, Facts, Mu, Release, Rows, Trace, View
from mixveil.data.covers import Covered
from mixveil.data.images import Images, from_tensors
from mixveil.data.row_views import InMemoryRows
from mixveil.encoders.calibration import settled_facts
from mixveil.encoders.singular import Singular
from mixveil.features import lpips
from mixveil.features.backbones._blocks import Frozen
from mixveil.features.backbones.loading import KNOWN, BackboneSpec
from mixveil.features.cache import Features, Loaded, extract
from mixveil.features.extractor import Extractor
from mixveil.releases.envelope import Envelope
from mixveil.releases.kinds.records import Records, RecordSettings
from mixveil.releases.records import write_release

NET = ("--backbone", "tiny", "--stage", "head")
"""Options that name the network of `tiny_weights`."""


def images(n: int = 20, shape: tuple[int, ...] = (1, 4, 4), classes: int = 4, seed: int = 1) -> Images:
    """Uniform pixels; labels 0, 1, …, classes − 1, over and over."""
    x = SeededStream(seed).uniform(n, *shape).float()
    return from_tensors(x, torch.arange(n) % classes, classes=classes, name="made")


def range_facts(data: Dataset) -> Facts:
    return settled_facts(data, certified=True, public=None, clip=None)


def write(out: Path, data: Images | None = None, mu: float = 1.0, seed: int | None = None) -> Path:
    data = images() if data is None else data
    encoder, guarantees = Singular().calibrate(Mu(mu), range_facts(data))
    stream = SecureStream() if seed is None else SeededStream(seed)
    write_release(out, data, encoder, guarantees, party="a hospital", stream=stream)
    return out


def with_moments(facts: Facts, *, energy: float, lambda_max: float) -> Facts:
    return facts.with_(energy=Fact(energy, "private"), lambda_max=Fact(lambda_max, "private"))


def in_memory(encoder: Encoder, batch: Batch, step: float | None, classes: tuple[str, ...]) -> Release:
    settings = RecordSettings(encoder, tuple(batch.x.shape[1:]))
    envelope = Envelope(settings, party="made", classes=classes, reproducible=True, id="0" * 32)
    return Release(envelope, Records((batch,), step))


def encoded(encoder: Encoder, data: Dataset, stream: Stream, covers: Rows | None = None) -> tuple[Release, Trace]:
    """A release in memory. covers: the public rows that are mixed in, without their labels, where some are."""
    trace, rows = encoder.plan(len(data), stream=stream.fork("plan")), data
    if covers is not None:
        x, y = covers.take(torch.arange(len(covers)))
        rows = Covered(data, InMemoryRows(Batch(x, torch.zeros_like(y))))
    batch = encoder.encode(rows, torch.arange(len(data)), trace, stream=stream.fork("noise"))
    return in_memory(encoder, batch, encoder.step, data.classes), trace


def mixing_matrix(partner: Tensor, weight: Tensor) -> Tensor:
    """W, dense: the slow and obvious twin of everything that walks along cycles."""
    n = len(partner)
    matrix = torch.zeros(n, n, dtype=torch.float64)
    for row in range(n):
        matrix[row, row] += float(weight[row, 0])
        matrix[row, int(partner[row])] += float(weight[row, 1])
    return matrix


def features_of(data: Images) -> Features:
    """The pixels themselves, as features."""
    return extract(data, Loaded(Extractor(), (), torch.device("cpu")), None)


def blobs(n: int, seed: int, classes: int = 3, apart: float = 0.15, rare: int = 0) -> Images:
    """Images of 2 × 3 values around one mean a class, the same for every seed."""
    means = 0.5 + apart * SeededStream(99).normal(classes, 6).clamp(-2, 2)
    labels = torch.arange(n) % classes if not rare else torch.arange(n) % (classes - rare)
    x = means[labels] + 0.05 * SeededStream(seed).normal(n, 6)
    return from_tensors(x.clamp(0, 1).float().view(n, 1, 2, 3), labels, classes=classes)


class Tiny(Frozen):
    """A network of two stages that is fast at any size: patches of 16 × 16 to six values, and those to three."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.last = nn.Conv2d(3, 6, 16, 16), nn.Conv2d(6, 3, 1)

    def maps(self, x: Tensor) -> Iterator[tuple[str, Tensor]]:
        x = torch.relu(self.stem(x))
        yield "stem", x
        yield "head", torch.relu(self.last(x))


def tiny_weights(folder: Path, monkeypatch: pytest.MonkeyPatch, seed: int = 0) -> Path:
    """A data folder with made weights of the network `tiny`, which is known until the test ends."""
    net, stream = Tiny(), SeededStream(seed)
    for values in net.state_dict().values():
        values.copy_(0.1 * stream.normal(*values.shape))
    (folder / "weights").mkdir(parents=True, exist_ok=True)
    torch.save(net.state_dict(), folder / "weights" / "tiny.pth")
    monkeypatch.setitem(KNOWN, "tiny", BackboneSpec(Tiny, "tiny.pth", ""))
    return folder


def lpips_weights(folder: Path, monkeypatch: pytest.MonkeyPatch, net: lpips.Net) -> dict[str, Tensor]:
    """Made weights of LPIPS in a data folder, taken for the real ones until the test ends."""
    weights, stream = lpips.KNOWN[net].make().state_dict(), SeededStream(0)
    for key, values in weights.items():
        # So wide that maps neither die out nor grow from layer to layer.
        width = 0.1 if "bias" in key else math.sqrt(2 / values[0].numel())
        drawn = stream.normal(*values.shape)
        values.copy_(drawn.abs() if "heads" in key else width * drawn)
    (folder / "weights").mkdir(parents=True, exist_ok=True)
    save_file(weights, folder / "weights" / lpips.KNOWN[net].file)
    monkeypatch.setitem(lpips.KNOWN, net, replace(lpips.KNOWN[net], digest=""))
    return weights


def basis_of(prior: Prior) -> Tensor:
    """(d, k) a direction a column."""
    return prior.directions.back(torch.eye(len(prior.variance), dtype=torch.float64)).T


def dense_posterior(view: View) -> Tensor:
    """The slow twin: condition the joint Gaussian of all records on the rows, then on the known records, if any."""
    prior, n = prior_of(view), len(view.releases[0].payload)
    basis = basis_of(prior)
    assert view.traces is not None
    index, given = torch.empty(0, dtype=torch.int64), torch.empty(0, len(prior.variance), dtype=torch.float64)
    if view.known is not None:
        index, given = view.known.records, (view.known.images.flatten(1).double() - prior.mean) @ basis
    rest = torch.tensor([i for i in range(n) if i not in set(index.tolist())], dtype=torch.int64)
    guesses = torch.empty(n, len(prior.variance), dtype=torch.float64)
    guesses[index] = given
    for k, variance in enumerate(prior.variance.tolist()):
        precision, target = torch.eye(n, dtype=torch.float64) / variance, torch.zeros(n, dtype=torch.float64)
        for release, trace in zip(view.releases, view.traces, strict=True):
            matrix = mixing_matrix(trace.partner[:, 0], trace.weight)
            noise = torch.diag(1 / (trace.weight[:, 1].double() * release.encoder.sigma) ** 2)
            rows = release.payload.take(torch.arange(n)).x.flatten(1).double()
            precision += matrix.T @ noise @ matrix
            target += matrix.T @ noise @ ((rows + 0.5 - prior.mean) @ basis[:, k])
        told = target[rest] - precision[rest][:, index] @ given[:, k]
        if len(rest):
            guesses[rest, k] = torch.linalg.solve(precision[rest][:, rest], told)
    return prior.images(view, guesses)
