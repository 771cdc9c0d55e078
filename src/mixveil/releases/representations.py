"""Releases of representations: what the client half of a split network makes of images. They promise nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Unpack

import torch
from torch import Tensor

from mixveil.core import tensor_files
from mixveil.core.errors import ArgumentError, MismatchError, TooFewRowsError
from mixveil.core.randomness import SeededStream
from mixveil.core.types import Batch, Dataset, Progress, Release
from mixveil.core.watching import Warn, Watch, unheard, unwatched
from mixveil.core.wording.notes import Note, note
from mixveil.data.opening import DataOptions, DataSpec
from mixveil.features.split.half import Half, read_half
from mixveil.releases import accounting
from mixveil.releases.envelope import Envelope, File
from mixveil.releases.kinds.records import Records
from mixveil.releases.kinds.representations import RepresentationSettings
from mixveil.releases.ledger import Ledger
from mixveil.releases.spending import Standing
from mixveil.releases.writing import LedgerTerms, Produced, check_output, write, write_tensors

_SHARD_BYTES = 64 << 20
_LARGEST = 1e30  # of a value: squares of larger ones, and sums of many, are no float32
_NOISY = 4  # images of noise that a half is tried on
_FEW = 10  # labels are sorted that change in fewer than one of so many of the places where chance would change them


@dataclass(frozen=True)
class Represented:
    """Representations that were released, for their owner's eyes. standing: what the ledger says of these records."""

    folder: Path
    manifest: Envelope
    warnings: tuple[Note, ...]
    standing: Standing


def split_encode(
    data: DataSpec,
    out: Path | str,
    *,
    client: Half | Path | str,
    labelled: bool = False,
    party: str = "party",
    recipient: str | None = None,
    budget: float | None = None,
    label_budget: float | None = None,
    options: DataOptions | None = None,
    ledger: Ledger | None = None,
    watch: Watch = unwatched,
    warn: Warn = unheard,
) -> Represented:
    """Release what the client half of a split network makes of data, one row an image. No noise is added and nothing is
    promised: `mixveil.audit` shows what attackers get. The release is entered in the ledger, without a bound.

    Args:
        client: The half, or its folder.
        labelled: Send labels too. A server that only answers does not need them.
        party, recipient, budget, label_budget, options, ledger, watch, warn: As for `mixveil.encode`.
    """
    out, options, ledger = Path(out), options or DataOptions(), ledger or Ledger()
    check_output(out, party)
    half = client if isinstance(client, Half) else read_half(client, "client")
    images = options.open(data)
    check_takes(half, images)
    owners = accounting.owners_of(ledger, images, watch)
    shown = [] if labelled else labels_sorted(images.labels)
    warnings = [note("representations-warning"), *shown, *images.warnings(), *accounting.copies(owners)]
    for item in warnings:
        warn(item)
    terms = LedgerTerms(recipient=recipient, budget=budget, label_budget=label_budget, owners=owners, ledger=ledger)
    with watch("encoding", len(images)) as step:
        written = write_representations(out, images, half, labelled=labelled, party=party, progress=step, **terms)
    return Represented(out, written, tuple(warnings), ledger.standing(owners))


def write_representations(
    out: Path,
    rows: Dataset,
    client: Half,
    *,
    labelled: bool,
    party: str,
    progress: Progress = lambda _: None,
    **terms: Unpack[LedgerTerms],
) -> Envelope:
    """Write what the half makes of all rows, shard by shard, and enter it in the ledger on these terms."""
    if rows.units is not None:
        raise ArgumentError("representations promise nothing to units: leave the units out")
    if not len(rows):
        raise TooFewRowsError("there are no images to make representations of: give one at least")
    check_runs(client)
    envelope = _envelope(rows, client, labelled, party)
    row = 4 * (client.values + len(rows.classes) * labelled)
    together = max(1, (_SHARD_BYTES - tensor_files.HEADER) // row)

    def shards(folder: Path) -> Iterator[File]:
        for number, index in enumerate(torch.split(torch.arange(len(rows)), together)):
            batch = represented(rows, client, index, labelled, progress)
            path = folder / f"shard-{number:05d}.safetensors"
            yield write_tensors(path, {"x": batch.x, "y": batch.y}, len(index))

    def produce(folder: Path) -> Produced:
        return shards(folder), None

    return write(out, rows, envelope, produce, space=len(rows) * row, **terms)


def in_memory(rows: Dataset, client: Half, *, party: str = "party", labelled: bool = False) -> Release:
    """The same release in memory, for experiments: nothing is written or entered."""
    batch = represented(rows, client, torch.arange(len(rows)), labelled)
    return Release(_envelope(rows, client, labelled, party), Records((batch,), None))


def represented(
    rows: Dataset, client: Half, index: Tensor, labelled: bool, progress: Progress = lambda _: None
) -> Batch:
    """What the half makes of some rows: x (m, values) and y (m, classes), without columns where labels are not sent."""
    x, y = [], []
    for part in torch.split(index, 1024):
        batch = rows.take(part)
        x.append(client.in_batches(batch.x))
        if not bool(x[-1].isfinite().all()):
            raise MismatchError("the client half makes values that are not finite of these images: train it again")
        y.append(batch.y if labelled else batch.y[:, :0])
        progress(len(part))
    return Batch(torch.cat(x), torch.cat(y).contiguous())


def check_takes(client: Half, data: Dataset) -> None:
    """Refuse data that the half is not for."""
    if client.role != "client":
        raise MismatchError(f"this is the {client.role} half of a network; images go through the client half")
    if client.shape != data.shape:
        raise MismatchError(f"the client half takes images of {client.shape}, and these have {data.shape}")
    if (client.low, client.high) != (data.low, data.high):
        raise MismatchError(
            f"the client half takes pixels in [{client.low:g}, {client.high:g}], these lie in "
            f"[{data.low:g}, {data.high:g}]"
        )


def check_runs(client: Half) -> None:
    """Refuse a half that makes no usable values of any image, before the ledger has an entry of what cannot be sent. It
    is tried on images that are made: black, grey, white, and noise."""
    low, size, stream = client.low, client.high - client.low, SeededStream(0)
    made = [torch.full((1, *client.shape), part, dtype=torch.float64) for part in (0.0, 0.5, 1.0)]
    for number in range(len(made) + _NOISY):
        x = made[number] if number < len(made) else stream.uniform(1, *client.shape)
        most = float(client.in_batches((low + size * x).float()).abs().max())
        if not most <= _LARGEST:  # no number is not less either
            raise MismatchError(
                f"the client half makes values up to {most:g} of plain images, not finite ones within ±{_LARGEST:g}: "
                "train it again"
            )


def labels_sorted(labels: Tensor) -> list[Note]:
    """A warning where the order of rows shows their (n,) labels: they change far more seldom than by chance, or each
    class has one run."""
    counts, rows = torch.bincount(labels).double(), len(labels)
    changes = int((labels[1:] != labels[:-1]).sum())
    by_chance = rows - float(counts.square().sum()) / max(1, rows)  # the mean over all orders
    whole = changes + 1 == int((counts > 0).sum()) and 2 * changes <= by_chance
    if changes and (_FEW * changes < by_chance or whole):
        return [note("labels-sorted", rows=rows, runs=changes + 1)]
    return []


def _envelope(rows: Dataset, client: Half, labelled: bool, party: str) -> Envelope:
    settings = RepresentationSettings(client.output, labelled)
    return Envelope(settings, party, rows.classes, assets={"client": client.digest})
