"""Releases of records: rows are planned, encoded block by block, screened, and written in shards.

Also in memory, for experiments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, ParamSpec, Unpack

import torch
from torch import Tensor

from mixveil.core import checks, randomness, tensor_files
from mixveil.core.errors import ArgumentError, PrivateFactError, ScreenedOutError
from mixveil.core.types import Batch, Dataset, Encoder, Guarantee, Progress, Release, Rows, Trace
from mixveil.data import privacy_units
from mixveil.data.covers import Covered, Patches
from mixveil.data.randomised_labels import Randomised, label_shifts
from mixveil.data.row_views import OnDevice, Subset
from mixveil.encoders.grid import stored_dtype
from mixveil.features.extractor import Extractor
from mixveil.features.projection import Projected
from mixveil.releases.devices import Device, chosen
from mixveil.releases.envelope import Envelope, File
from mixveil.releases.kinds.records import Records, RecordSettings, of_all_rows
from mixveil.releases.screening import Measure, Screen, Screened, Screening
from mixveil.releases.writing import LedgerTerms, Produced, check_output, write, write_tensors
from mixveil.theory.response import keep_probability

P = ParamSpec("P")
SHARD_BYTES = 64 << 20
_BLOCK_ELEMENTS = 1 << 20  # values encoded at a time: fewer cost more in calls, more take more memory
_GPU_ELEMENTS = 1 << 26  # the same on a GPU


def write_release(
    out: Path,
    rows: Dataset,
    encoder: Encoder,
    guarantees: tuple[Guarantee, ...],
    *,
    party: str,
    stream: randomness.Stream,
    assets: Mapping[str, str] | None = None,
    extractor: Extractor | None = None,
    label_epsilon: float | None = None,
    screen: Screen | None = None,
    lpips: Measure | None = None,
    covers: Patches | None = None,
    device: Device | None = None,
    progress: Progress = lambda _: None,
    **terms: Unpack[LedgerTerms],
) -> Envelope:
    """Encode all rows and write them as a release, which is entered in the ledger on these terms.

    Certified means: calibrated for μ, and noise from a secure stream. A seeded release promises nothing.

    Args:
        assets: The SHA-256 of the projection that the rows went through, or of the network whose features they are.
        extractor: Names that network, where rows are features themselves.
        label_epsilon: Of randomised labels; None: labels are shown.
        screen: Rows that show too much are dropped, and never written.
        lpips: The distance, where the screen needs it.
        covers: The public patches, where the encoder mixes them in.
        device: See `devices.chosen`.
    """
    checks.enough_rows(len(rows))
    check_output(out, party)
    if (extractor is None) != ("features" not in (assets or {})):
        raise ArgumentError(f"extractor = {extractor} and assets = {dict(assets or {})} must both name features")
    screening = None if screen is None else Screening(screen, rows, encoder, lpips)
    if screening:
        screening.screen.check_promises(any(stated.name == "gdp" for stated in guarantees), label_epsilon)
        guarantees = of_all_rows(guarantees)
    settings = RecordSettings(encoder, rows.shape, extractor, None if screen is None else Screened(screen, len(rows)))
    row = settings.row_bytes(len(rows.classes))
    if row + tensor_files.HEADER > settings.largest_file:
        raise ArgumentError(f"a row takes {row:,} bytes, and a shard has at most {settings.largest_file:,}")
    envelope = _enveloped(settings, rows, guarantees, party, stream, assets, label_epsilon)
    where, _ = chosen(device, rows, encoder)
    said, trace = _planned(rows, encoder, label_epsilon, covers, stream)

    def produce(folder: Path) -> Produced:
        noise = stream.fork("noise")
        shards = _write_shards(folder, said, settings, trace, covers, where, noise, screening, progress)
        return shards, lambda: trace if screening is None else replace(trace, kept=screening.kept)

    return write(out, rows, envelope, produce, space=_bytes(rows, settings), **terms)


def traced_in_memory(
    rows: Dataset,
    encoder: Encoder,
    guarantees: tuple[Guarantee, ...],
    *,
    party: str,
    stream: randomness.Stream,
    assets: Mapping[str, str] | None = None,
    extractor: Extractor | None = None,
    label_epsilon: float | None = None,
    covers: Patches | None = None,
) -> tuple[Release, Trace]:
    """The same release and its trace, for experiments: nothing is written or entered."""
    checks.enough_rows(len(rows))
    settings = RecordSettings(encoder, rows.shape, extractor)
    said, trace = _planned(rows, encoder, label_epsilon, covers, stream)
    where, _ = chosen(None, rows, encoder)
    with _workers() as pool:
        batch = _encoded(said, 0, len(rows), encoder, trace, covers, where, stream.fork("noise"), pool)
    envelope = _enveloped(settings, rows, guarantees, party, stream, assets, label_epsilon)
    return Release(envelope, Records((batch,), encoder.step)), trace


def _without_trace(make: Callable[P, tuple[Release, Trace]]) -> Callable[P, Release]:
    return lambda *args, **options: make(*args, **options)[0]


in_memory = _without_trace(traced_in_memory)


def _enveloped(
    settings: RecordSettings,
    rows: Dataset,
    guarantees: tuple[Guarantee, ...],
    party: str,
    stream: randomness.Stream,
    assets: Mapping[str, str] | None,
    label_epsilon: float | None,
) -> Envelope:
    return Envelope(
        settings=settings,
        party=party,
        classes=rows.classes,
        guarantees=() if stream.reproducible else guarantees,  # an attacker who finds the seed removes the noise
        reproducible=stream.reproducible,
        label_epsilon=label_epsilon,
        assets=dict(assets or {}),
    )


def _write_shards(
    folder: Path,
    rows: Dataset,
    settings: RecordSettings,
    trace: Trace,
    covers: Patches | None,
    where: torch.device | None,
    stream: randomness.Stream,
    screening: Screening | None,
    progress: Progress,
) -> Iterator[File]:
    """While one shard is written the next is encoded: at most two are held. A shard without rows is left out."""
    shard_rows = max(1, SHARD_BYTES // settings.row_bytes(len(rows.classes)))
    waiting: Future[File] | None = None
    with _workers() as pool, ThreadPoolExecutor(1) as writer:
        number = 0
        for start in range(0, len(rows), shard_rows):
            stop = min(start + shard_rows, len(rows))
            batch = _encoded(
                rows, start, stop, settings.encoder, trace, covers, where, stream, pool, screening, progress
            )
            if not len(batch.y):
                continue
            if waiting:
                yield waiting.result()
            path = folder / f"shard-{number:05d}.safetensors"
            waiting = writer.submit(write_tensors, path, {"x": batch.x, "y": batch.y}, len(batch.y))
            number += 1
            del batch
        if waiting:
            yield waiting.result()
    if screening is not None and (left := int(screening.kept.sum())) < 2:
        made = len(screening.kept)
        raise ScreenedOutError(f"{screening.screen} leaves {left} of {made} rows, and a release has at least 2")


def _encoded(
    rows: Dataset,
    start: int,
    stop: int,
    encoder: Encoder,
    trace: Trace,
    covers: Patches | None,
    where: torch.device | None,
    stream: randomness.Stream,
    pool: Executor,
    screening: Screening | None = None,
    progress: Progress = lambda _: None,
) -> Batch:
    """The rows from `start` to `stop`, encoded by blocks that stay in the cache, less those that the screening drops.
    Each block has a stream of its own, forked in their order: the same stream gives the same rows with any number of
    threads. A GPU gets larger blocks, one after the other."""
    x = torch.empty(stop - start, *rows.shape, dtype=stored_dtype(encoder.index_bound))
    y = torch.empty(stop - start, len(rows.classes))
    mixed: Rows = rows if covers is None else Covered(rows, covers)
    mixed = mixed if where is None else OnDevice(mixed, where)
    on_gpu = where is not None and where.type == "cuda"

    def block(index: Tensor, noise: randomness.Stream) -> int:
        here = slice(int(index[0]) - start, int(index[-1]) + 1 - start)
        x[here], y[here] = encoder.encode(mixed, index, trace, stream=noise)
        if screening:
            screening.look(index, trace, x[here])
        return len(index)

    values = _GPU_ELEMENTS if on_gpu and screening is None else _BLOCK_ELEMENTS
    size = max(1, values // torch.Size(rows.shape).numel())
    index = torch.split(torch.arange(start, stop), size)
    run: Any = map if on_gpu else pool.map
    for done in run(block, index, [stream.fork("block") for _ in index]):
        progress(done)
    if screening is None:
        return Batch(x, y)
    kept = screening.kept[start:stop]
    return Batch(x[kept], y[kept])


@contextmanager
def _workers() -> Iterator[Executor]:
    """As many threads as torch would use, each working on blocks of its own: a block is too small to be shared."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            yield pool
    finally:
        torch.set_num_threads(threads)


def _planned(
    rows: Dataset, encoder: Encoder, label_epsilon: float | None, covers: Patches | None, stream: randomness.Stream
) -> tuple[Dataset, Trace]:
    """The rows as they are to be encoded, and who is mixed with whom. Where labels are randomised, rows are put in a
    random order first: data are often sorted by class, and then their order says what the labels do not."""
    if rows.units is not None and not encoder.scheme.targets:
        raise ArgumentError(f"the encoder {encoder.name} promises nothing to units: leave the units out")
    if rows.units is None and encoder.unit_rows > 1:
        raise ArgumentError(f"the noise is for units of {encoder.unit_rows} rows, and these rows have no units")
    if encoder.covers != (0 if covers is None else len(covers)):
        given = "none" if covers is None else f"{len(covers):,}"
        raise ArgumentError(f"the encoder mixes in {encoder.covers:,} public patches, and {given} are given")
    order = None
    if label_epsilon is not None:
        check_declared(rows, label_epsilon)
        order = stream.fork("order").permutation(len(rows))
        moved = label_shifts(len(rows), len(rows.classes), label_epsilon, stream.fork("labels"))
        rows = Randomised(Subset(rows, order), moved)
    trace = encoder.plan(len(rows), stream=stream.fork("plan"), units=privacy_units.numbered(rows))
    return rows, replace(trace, order=order, covers=None if covers is None else covers.table)


def check_declared(rows: Dataset, label_epsilon: float) -> None:
    """Refuse to protect labels by an ε that means nothing, or where the list of classes shows which of them occur."""
    keep_probability(label_epsilon, len(rows.classes))
    check_labels_hidden(rows)


def check_labels_hidden(rows: Dataset) -> None:
    """Refuse to protect labels that the projection or the list of classes shows."""
    if isinstance(rows, Projected) and rows.projection.origin == "private":
        raise PrivateFactError("the projection was fitted on private labels, and shows them: use a public projection")
    if not rows.declared:
        raise ArgumentError(
            "labels are protected only with a list of classes that was not taken from them, which shows the classes "
            "that occur: name all classes with --classes"
        )


def _bytes(rows: Dataset, settings: RecordSettings) -> int:
    """About how much room a release takes."""
    return len(rows) * settings.row_bytes(len(rows.classes))
