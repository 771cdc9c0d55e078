"""Releases of noisy class sums, a party's first step of the certified protocol: the whole job, and the sums alone.

The guarantee: `kinds/sums.py`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Unpack

import torch
from torch import Tensor

from mixveil.core import checks, randomness
from mixveil.core.types import Guarantee, Progress, Release
from mixveil.core.watching import Warn, Watch, unheard, unwatched
from mixveil.core.wording.notes import Note
from mixveil.data import privacy_units
from mixveil.data.opening import DataOptions, DataSpec
from mixveil.data.randomised_labels import label_shifts
from mixveil.encoders.calibration import meaningless
from mixveil.encoders.grid import GRID
from mixveil.features.opening import FeatureOptions
from mixveil.features.projection import Projected
from mixveil.releases import accounting
from mixveil.releases.encode import stream_for
from mixveil.releases.envelope import Envelope
from mixveil.releases.kinds.sums import SumSettings
from mixveil.releases.ledger import Ledger
from mixveil.releases.records import check_declared
from mixveil.releases.spending import Standing
from mixveil.releases.writing import LedgerTerms, Produced, check_output, write, write_tensors

_ROWS = 4096


@dataclass(frozen=True)
class Summed:
    """Class sums that were released, for their owner's eyes. standing: what the ledger says of these records now."""

    folder: Path
    sums: Envelope
    warnings: tuple[Note, ...]
    standing: Standing


def statistics(
    data: DataSpec,
    out: Path | str,
    *,
    projection: Path | str,
    mu: float,
    party: str = "party",
    recipient: str | None = None,
    budget: float | None = None,
    label_epsilon: float | None = None,
    label_budget: float | None = None,
    seed: int | None = None,
    options: DataOptions | None = None,
    cache: Path | str | None = None,
    ledger: Ledger | None = None,
    watch: Watch = unwatched,
    warn: Warn = unheard,
) -> Summed:
    """Release the noisy class sums of data through a public projection, every record (every unit) μ-GDP, labels
    excluded. Arguments are those of `mixveil.encode`."""
    out, options, ledger = Path(out), options or DataOptions(), ledger or Ledger()
    check_output(out, party)
    stream = stream_for(seed)
    images = options.open(data)
    owners = accounting.owners_of(ledger, images, watch)
    features = FeatureOptions(options, cache, watch)
    rows, digest, told = features.open_projected(images, Path(projection), certified=True, seeded=seed is not None)
    warnings = [
        *rows.warnings(),
        *told,
        *accounting.earlier_statistics(ledger, rows.projection, party),
        *accounting.copies(owners),
        *accounting.labels_were_shown(ledger, owners, label_epsilon),
        *meaningless(mu),
    ]
    for item in warnings:
        warn(item)
    with watch("sums", len(rows)) as step:
        terms = LedgerTerms(recipient=recipient, budget=budget, label_budget=label_budget, owners=owners, ledger=ledger)
        written = write_statistics(
            out, rows, digest, mu, party=party, stream=stream, label_epsilon=label_epsilon, progress=step, **terms
        )
    return Summed(out, written, tuple(warnings), ledger.standing(owners))


def write_statistics(
    out: Path,
    rows: Projected,
    digest: str,
    mu: float,
    *,
    party: str,
    stream: randomness.Stream,
    label_epsilon: float | None = None,
    progress: Progress = lambda _: None,
    **terms: Unpack[LedgerTerms],
) -> Envelope:
    """Write the noisy class sums of all rows at μ. digest: of the rows' projection."""
    check_output(out, party)
    envelope, settings, labels = _planned(rows, digest, mu, party, stream, label_epsilon)

    def produce(folder: Path) -> Produced:
        indices = _noisy(rows, labels, settings.sigma, stream, progress)
        return [write_tensors(folder / "sums.safetensors", {"sums": indices})], None

    return write(out, rows, envelope, produce, space=8 * len(settings.counts) * settings.dimension, **terms)


def class_sums(
    rows: Projected,
    digest: str,
    mu: float,
    *,
    party: str,
    stream: randomness.Stream,
    label_epsilon: float | None = None,
) -> Release:
    """The same release in memory, entered in no ledger; its payload is (classes, k) float64."""
    envelope, settings, labels = _planned(rows, digest, mu, party, stream, label_epsilon)
    return Release(envelope, settings.values(_noisy(rows, labels, settings.sigma, stream, lambda _: None)))


def _planned(
    rows: Projected, digest: str, mu: float, party: str, stream: randomness.Stream, label_epsilon: float | None
) -> tuple[Envelope, SumSettings, Tensor]:
    """All but the sums: the envelope, its settings, and (n,) the labels as they are said. σ makes every unit μ-GDP: all
    its records may be in one sum, and each moves it by 2C at most."""
    checks.enough_rows(len(rows))
    labels, clip, unit_rows = rows.labels, rows.projection.clip, privacy_units.largest(rows)
    mu = checks.finite_positive("mu", mu)
    sigma = checks.size("sigma", 2 * clip * unit_rows / mu)
    if label_epsilon is not None:
        check_declared(rows, label_epsilon)
        drawn = label_shifts(len(labels), len(rows.classes), label_epsilon, stream.fork("labels"))
        labels = (labels + drawn) % len(rows.classes)
    counts = labels.bincount(minlength=len(rows.classes)).tolist()
    settings = SumSettings(tuple(counts), rows.projection.dimension, clip, sigma, unit_rows)
    claim = settings.claims()["gdp"]
    facts = dict.fromkeys(settings.fact_origins(), "public")
    stated = Guarantee("gdp", mu, claim.realised, {**claim.assumes, **facts})
    envelope = Envelope(
        settings=settings,
        party=party,
        classes=rows.classes,
        guarantees=() if stream.reproducible else (stated,),
        reproducible=stream.reproducible,
        label_epsilon=label_epsilon,
        assets={"projection": digest},
    )
    return envelope, settings, labels


def clipped(z: Tensor, clip: float) -> Tensor:
    """(m, k) rows, none longer than `clip`. A row that is not finite, which cannot be, counts as 0."""
    norm = torch.linalg.vector_norm(z, dim=1, keepdim=True)
    finite = norm.isfinite()
    return torch.where(finite, z, 0.0).mul_(torch.where(finite, clip / norm, 0.0).clamp_(max=1))


def _noisy(rows: Projected, labels: Tensor, sigma: float, stream: randomness.Stream, progress: Progress) -> Tensor:
    """(classes, k) int64: the sums of clipped records and their noise, on the grid."""
    sums = torch.zeros(len(rows.classes), rows.projection.dimension, dtype=torch.float64)
    for index in torch.split(torch.arange(len(rows)), _ROWS):
        sums.index_add_(0, labels[index], clipped(rows.take(index).x.double(), rows.projection.clip))
        progress(len(index))
    sums += stream.fork("sums").normal(*sums.shape).mul_(sigma)  # forked only now: its key is as fresh as can be
    return sums.div_(sigma * GRID).round_().long()
