"""Releases of updates: what a party of federated averaging sends after its part of a round. They promise nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Unpack

from torch import Tensor, nn

from mixveil.core.errors import ArgumentError, MismatchError, NotFiniteError, TooFewRowsError
from mixveil.core.local_training import LocalTraining
from mixveil.core.types import Dataset, Release
from mixveil.features.split import layers
from mixveil.releases.envelope import Envelope
from mixveil.releases.kinds.updates import AFTER, BEFORE, UpdateSettings
from mixveil.releases.writing import LedgerTerms, Produced, write, write_tensors

Weights = Mapping[str, Tensor]


def in_memory(
    rows: Dataset,
    before: Weights,
    after: Weights,
    *,
    method: str,
    training: LocalTraining | None,
    net: nn.Sequential | None,
    party: str = "party",
) -> Release:
    """The release of an update in memory, for experiments: nothing is written or entered. rows: that were trained on;
    net: the network, without regard to its weights; None where it is not a plain sequence of layers."""
    tensors = payload(before, after)
    return Release(envelope_of(rows, tensors, method=method, training=training, net=net, party=party), tensors)


def write_update(
    out: Path,
    rows: Dataset,
    before: Weights,
    after: Weights,
    *,
    method: str,
    training: LocalTraining | None,
    net: nn.Sequential | None,
    party: str,
    **terms: Unpack[LedgerTerms],
) -> Envelope:
    """Write the update as a release, and enter it in the ledger on these terms: without a bound, for nothing is
    promised. rows, net: as for `in_memory`."""
    if rows.units is not None:
        raise ArgumentError("updates promise nothing to units: leave the units out")
    if not len(rows):
        raise TooFewRowsError("there are no rows to train on: give one at least")
    if training is not None and training.rows != len(rows):
        raise MismatchError(f"the training is of {training.rows} rows, and there are {len(rows)}")
    tensors = payload(before, after)
    if not all(bool(value.isfinite().all()) for value in tensors.values()):  # before the ledger has an entry of it
        raise NotFiniteError("a weight of this update is not finite: train with a lower learning rate")
    envelope = envelope_of(rows, tensors, method=method, training=training, net=net, party=party)
    name = envelope.settings.file_names(1)[0]

    def produce(folder: Path) -> Produced:
        return [write_tensors(folder / name, tensors)], None

    return write(out, rows, envelope, produce, space=sum(value.nbytes for value in tensors.values()), **terms)


def weights_of(release: Release, part: str) -> dict[str, Tensor]:
    """The weights before or after a round, by name. part: `BEFORE` or `AFTER`."""
    return {name.removeprefix(part): t for name, t in release.payload.items() if name.startswith(part)}


def settings_of(release: Release) -> UpdateSettings:
    settings = release.envelope.settings
    if not isinstance(settings, UpdateSettings):
        raise MismatchError(f"release {release.id[:8]} holds {release.envelope.kind}, not updates")
    return settings


def payload(before: Weights, after: Weights) -> dict[str, Tensor]:
    """Both sets of weights, as a release holds them."""
    if {n: t.shape for n, t in before.items()} != {n: t.shape for n, t in after.items()}:
        raise MismatchError("the weights before and after a round are not those of one model")
    parts = ((BEFORE, before), (AFTER, after))
    return {f"{part}{name}": t.detach().float().cpu().contiguous() for part, of in parts for name, t in of.items()}


def envelope_of(
    rows: Dataset,
    tensors: Weights,
    *,
    method: str,
    training: LocalTraining | None,
    net: nn.Sequential | None,
    party: str,
) -> Envelope:
    """What is said of an update, without its files."""
    shapes = {name: tuple(value.shape) for name, value in tensors.items()}
    known = None if net is None else layers.plain(net)
    settings = UpdateSettings(method, shapes, rows.shape, rows.low, rows.high, training, known)
    settings.check_network()
    return Envelope(settings, party, rows.classes)
