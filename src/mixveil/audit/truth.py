"""Is this the data that a release was made of? And what is left of its rows without it?"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from mixveil.errors import ArgumentError, WrongTruthError
from mixveil.types import Dataset, Release, Trace, View


def check_truth(view: View, truth: Dataset) -> None:
    """Refuse data that the releases cannot be made of: an audit of other data would say that all is well."""
    if len({release.id for release in view.releases}) != len(view.releases):
        raise ArgumentError("a release is given twice: its noise would be taken for new noise")
    for release in view.releases:
        if release.shape != truth.shape or len(release.payload) != len(truth) or release.classes != truth.classes:
            raise WrongTruthError(
                f"release {release.id} has {len(release.payload)} rows of {release.shape} in {len(release.classes)} "
                f"classes, the truth {len(truth)} of {truth.shape} in {len(truth.classes)}"
            )


def check_rows(view: View, records: Dataset) -> list[str]:
    """Refuse rows that were not made of these records; say of which releases that could not be told.

    Labels must be the mixtures that the trace says. Pixels are judged by the likelihood of the rows: if the truth is
    right, the rows' projection on it is E with variance E; if it is not, 0 with variance E; if σ is not what the
    settings say, a multiple of E."""
    said = []
    for t, release in enumerate(view.releases):
        if view.traces is None:
            said.append(
                f"There is no trace of release {release.id[:8]}: that it was made of these data is not checked."
            )
        elif not _check_rows(release, view.traces[t], records):
            said.append(
                f"The noise is so strong that the pixels do not show whether release {release.id[:8]} was made of "
                f"these data; the labels agree."
            )
    return said


def _check_rows(release: Release, trace: Trace, truth: Dataset) -> bool:
    """Whether the rows show that the truth is right; an error if they show that it is not."""
    mixed, seen, labels = _mixtures(release, trace, truth)
    if not torch.allclose(labels, release.payload.take(torch.arange(len(labels))).y, atol=1e-6):
        raise WrongTruthError(f"release {release.id} was not made of these data: its labels are not mixtures of theirs")
    noise = (trace.weight.double()[:, 1:].sum(1) * (release.encoder.sigma or 0)).square()
    deviation = mixed - mixed.mean(0)
    telling = deviation / noise.clamp(min=1e-12)[:, None]
    expected, found = float((telling * deviation).sum()), float((telling * (seen - mixed.mean(0))).sum())
    if abs(found - expected) > 6 * math.sqrt(expected) + 1e-3 * expected:
        raise WrongTruthError(
            f"release {release.id} was not made of these data with these settings: its rows hold "
            f"{found / expected:.2f} times the mixtures that they should"
        )
    return expected > 50


def standardised_noise(release: Release, trace: Trace, truth: Dataset) -> Tensor:
    """(n, d) what is left of the rows without their mixtures, over w₂σ: standard normals, if all is as stated."""
    mixed, seen, _ = _mixtures(release, trace, truth)
    return (seen - mixed) / (trace.weight.double()[:, 1:].sum(1, keepdim=True) * float(release.encoder.sigma or 1))


def _mixtures(release: Release, trace: Trace, truth: Dataset) -> tuple[Tensor, Tensor, Tensor]:
    """(n, d) what the rows would be without noise, the rows, and (n, classes) the labels that the trace implies."""
    rows = torch.arange(len(trace.weight))
    x, y = truth.take(torch.arange(len(truth)))
    sources = torch.cat([rows[:, None], trace.partner], dim=1)
    labels = (y[sources] * trace.weight[:, :, None]).sum(1)
    mixed = (release.encoder.prepare(x)[sources] * trace.weight.double()[:, :, None]).sum(1)
    return mixed, release.payload.take(rows).x.flatten(1).double(), labels
