"""A release on disk: a folder with `manifest.json` and safetensors shards. Never a pickle.

Writing is atomic: everything is made in a hidden folder beside the output and renamed in one step, so that a
killed process leaves no release that verifies. Reading checks everything before anything is used.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import save
from torch import Tensor

from mixveil.core import checks, files, randomness, strict_json, tensor_files
from mixveil.core.errors import (
    ArgumentError,
    DtypeError,
    GridError,
    HashError,
    ManifestError,
    MissingShardError,
    NotFiniteError,
    PrivateFactError,
    ScreenedOutError,
    ShapeError,
    ShardFormatError,
    ShardSizeError,
    SimplexError,
    UnreadableFileError,
    UnreadableReleaseError,
)
from mixveil.core.types import Batch, Dataset, Encoder, Guarantee, Progress, Release, Trace
from mixveil.data import privacy_units
from mixveil.data.randomised_labels import Randomised, label_shifts
from mixveil.data.row_views import Subset
from mixveil.encoders.grid import stored_dtype
from mixveil.features.extractor import Extractor
from mixveil.releases import manifest, traces
from mixveil.releases.ledger import Against, Entry, Ledger
from mixveil.releases.manifest import LARGEST_SHARD, Manifest, Shard
from mixveil.releases.screening import NOT_CERTIFIED, NOT_PROTECTED, Measure, Screen, Screened, Screening
from mixveil.releases.spending import Owners
from mixveil.theory.response import keep_probability

SHARD_BYTES = 64 << 20
_BLOCK_ELEMENTS = 1 << 18  # values encoded at a time: fewer cost more in calls, more do not stay in the cache
MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Records:
    """The rows of a release, shard by shard, as they lie on disk. `take` gives values, not grid indices."""

    shards: tuple[Batch, ...]
    step: float | None

    def __len__(self) -> int:
        return sum(len(shard.y) for shard in self.shards)

    @property
    def bytes(self) -> int:
        return sum(shard.x.nbytes + shard.y.nbytes for shard in self.shards)

    def held_on(self, device: torch.device) -> Records:
        """The same rows, all of them in that device's memory."""
        first, rows = self.shards[0], len(self)
        x = torch.empty(rows, *first.x.shape[1:], dtype=first.x.dtype, device=device)
        y = torch.empty(rows, first.y.shape[1], device=device)
        start = 0
        for shard in self.shards:
            here = slice(start, start + len(shard.y))
            x[here], y[here] = shard.x.to(device), shard.y.to(device)
            start += len(shard.y)
        return Records((Batch(x, y),), self.step)

    def take(self, index: Tensor) -> Batch:
        """The rows of `index`, which is not on a device but in memory."""
        checks.rows_within(index, len(self))
        first = self.shards[0]
        if len(self.shards) == 1:
            rows = index.to(first.y.device)
            x, y = first.x[rows].float(), first.y[rows]
        else:
            x = torch.empty(len(index), *first.x.shape[1:])
            y = torch.empty(len(index), first.y.shape[1])
            number = torch.bucketize(index, self._starts, right=True) - 1
            for which in set(number.tolist()):
                inside = (number == which).nonzero()[:, 0]
                rows = index[inside] - self._starts[which]
                x[inside], y[inside] = self.shards[which].x[rows].float(), self.shards[which].y[rows]
        return Batch(x if self.step is None else x.mul_(self.step), y)

    @cached_property
    def _starts(self) -> Tensor:
        """(shards,) the first row of each."""
        sizes = torch.tensor([len(shard.y) for shard in self.shards])
        return sizes.cumsum(0) - sizes


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
    recipient: str | None = None,
    budget: float | None = None,
    label_budget: float | None = None,
    against: Against = "records",
    owners: Owners | None = None,
    progress: Progress | None = None,
) -> Manifest:
    """Encode all rows and write them as a release. The trace goes to the owner's state folder, nowhere else.

    Certified means: calibrated for μ, and noise from a secure stream. A seeded release promises nothing. assets: the
    SHA-256 of the projection that the rows went through, if they did, or the digest of what made them, where they are
    the features that `extractor` names. label_epsilon: labels under randomised response. screen: rows that show too
    much are dropped, and never written; lpips: the distance, where the screen asks for it.

    It is entered in the owner's ledger before anything is written, and refused where it would cost some record more
    than the budget, or its label more than the label budget; against: what budgets are compared with
    (`ledger.Against`). Images that changed since they were entered are refused, and the entry counts. recipient: to
    whom it goes, for the ledger; owners: what `Ledger.owners` said of the rows.
    """
    checks.enough_rows(len(rows))
    check_output(out, party)
    if (extractor is None) != ("features" not in (assets or {})):
        raise ArgumentError(
            f"extractor = {extractor} and assets = {dict(assets or {})}: both name features, or neither"
        )
    screening = None if screen is None else Screening(screen, rows, encoder, lpips)
    if screening:
        _check_screen(guarantees, label_epsilon)
        guarantees = manifest.of_all_rows(guarantees)
    reproducible = stream.reproducible
    if reproducible:
        guarantees = ()  # whoever finds the seed removes the noise
    certified = any(guarantee.name == "gdp" for guarantee in guarantees)
    identity = randomness.release_id()
    if _row_bytes(rows, encoder) + tensor_files.HEADER > LARGEST_SHARD:
        raise ArgumentError(
            f"a row takes {_row_bytes(rows, encoder):,} bytes, and a shard has at most {LARGEST_SHARD:,}"
        )
    files.check_space(out, _bytes(rows, encoder))
    book = Ledger()
    owners = book.owners(rows) if owners is None else owners
    check_owners(rows, owners)
    said, trace = _planned(rows, encoder, label_epsilon, stream)
    entry = Entry(
        id=identity,
        kind="records",
        party=party,
        recipient=recipient,
        encoder=encoder.name,
        sigma=encoder.sigma,
        cost=encoder.cost() if certified else None,
        stated=next((guarantee.nominal for guarantee in guarantees if guarantee.name == "gdp"), None),
        label_epsilon=None if reproducible else label_epsilon,
        rows=len(rows),
    )
    with book.making(entry, owners, budget, label_budget=label_budget, against=against):
        try:
            with files.atomic_folder(out, identity[:8]) as folder:
                shards = tuple(_write_shards(folder, said, encoder, trace, stream.fork("noise"), screening, progress))
                book.confirm(rows, owners)
                screened = None if screening is None else _screened(screening)
                written = Manifest(
                    id=identity,
                    party=party,
                    created=datetime.now(UTC).isoformat(timespec="seconds"),
                    rows=sum(shard.rows for shard in shards),
                    shape=rows.shape,
                    classes=rows.classes,
                    encoder=encoder,
                    guarantees=guarantees,
                    certified=certified,
                    reproducible=reproducible,
                    assets=dict(assets or {}),
                    extractor=extractor,
                    label_epsilon=label_epsilon,
                    screened=screened,
                    not_promised=manifest.not_promised(encoder, guarantees, reproducible, label_epsilon, screened),
                    shards=shards,
                )
                text = written.to_json()
                manifest.parse(text)  # what we would refuse to read we do not write
                trace = replace(trace, kept=None if screening is None else screening.kept)
                traces.save_trace(identity, trace, hashlib.sha256(text.encode()).hexdigest())
                files.write_file(folder / MANIFEST, text.encode())
        except BaseException:
            if not out.exists():  # once it is there its owner needs the trace
                traces.discard_trace(identity)
            raise
        files.sync_folder(out.parent)
    return written


def in_memory(
    rows: Dataset,
    encoder: Encoder,
    guarantees: tuple[Guarantee, ...],
    *,
    party: str,
    stream: randomness.Stream,
    assets: Mapping[str, str] | None = None,
    extractor: Extractor | None = None,
    label_epsilon: float | None = None,
) -> Release:
    """The same release, for experiments: nothing is written or entered, and nobody keeps its trace."""
    return traced_in_memory(
        rows,
        encoder,
        guarantees,
        party=party,
        stream=stream,
        assets=assets,
        extractor=extractor,
        label_epsilon=label_epsilon,
    )[0]


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
) -> tuple[Release, Trace]:
    """A release in memory, and its trace, for an owner who attacks it."""
    checks.enough_rows(len(rows))
    said, trace = _planned(rows, encoder, label_epsilon, stream)
    with _workers() as pool:
        batch = _encoded(said, 0, len(rows), encoder, trace, stream.fork("noise"), pool)
    stated = () if stream.reproducible else guarantees
    release = Release(
        id=randomness.release_id(),
        party=party,
        payload=Records((batch,), encoder.step),
        shape=rows.shape,
        classes=rows.classes,
        encoder=encoder,
        guarantees=stated,
        certified=any(guarantee.name == "gdp" for guarantee in stated),
        reproducible=stream.reproducible,
        assets=dict(assets or {}),
        extractor=extractor,
        label_epsilon=label_epsilon,
    )
    return release, trace


def check_output(out: Path, party: str) -> None:
    """What can be refused before any work is done."""
    files.check_new(out)
    if not party or not party.isprintable() or len(party) > 1000:
        raise ArgumentError(f"party must be a printable name of at most 1000 characters, got {party!r}")


def check_owners(rows: Dataset, owners: Owners) -> None:
    """Refuse to count other units than those that are kept apart."""
    if (rows.units is None) != (owners.units is None):
        raise ArgumentError("the rows have units, and their owners none, or the other way round")


def read_release(folder: Path) -> Release:
    """Open a release. Sizes, hashes, dtypes, shapes, finiteness, grid range, labels and claims are all checked.

    Rows stay in the files and are mapped: keep the folder unchanged while the release is in use."""
    stated, shards = _open(folder)
    return Release(
        id=stated.id,
        party=stated.party,
        payload=Records(shards, stated.encoder.step),
        shape=stated.shape,
        classes=stated.classes,
        encoder=stated.encoder,
        guarantees=stated.guarantees,
        certified=stated.certified,
        reproducible=stated.reproducible,
        assets=stated.assets,
        extractor=stated.extractor,
        label_epsilon=stated.label_epsilon,
        screened=stated.screened,
    )


def verify_release(folder: Path) -> Manifest:
    """Check all that `read_release` checks, and return what the manifest says."""
    return _open(folder)[0]


def _open(folder: Path) -> tuple[Manifest, tuple[Batch, ...]]:
    try:
        stated = read_manifest(folder)
        return stated, tuple(read_shard(folder, stated, shard) for shard in stated.shards)
    except OSError as error:
        raise UnreadableReleaseError(f"{folder} cannot be read: {error}") from None


# Writing


def _check_screen(guarantees: tuple[Guarantee, ...], label_epsilon: float | None) -> None:
    """Refuse to drop rows where that would make a promise false."""
    if any(guarantee.name == "gdp" for guarantee in guarantees):
        raise ArgumentError(NOT_CERTIFIED)
    if label_epsilon is not None:
        raise ArgumentError(NOT_PROTECTED)


def _screened(screening: Screening) -> Screened:
    """What to say of the rows that were dropped, if enough are left."""
    left, records = int(screening.kept.sum()), len(screening.kept)
    if left < 2:
        raise ScreenedOutError(f"of {records} rows {screening.screen} leaves {left}, and a release has at least 2")
    return Screened(screening.screen, records)


def _write_shards(
    folder: Path,
    rows: Dataset,
    encoder: Encoder,
    trace: Trace,
    stream: randomness.Stream,
    screening: Screening | None,
    progress: Progress | None,
) -> Iterator[Shard]:
    """While one shard is written the next is encoded: at most two are held. One of which no row is left is none."""
    shard_rows = max(1, SHARD_BYTES // _row_bytes(rows, encoder))
    waiting: Future[Shard] | None = None
    with _workers() as pool, ThreadPoolExecutor(1) as writer:
        number = 0
        for start in range(0, len(rows), shard_rows):
            stop = min(start + shard_rows, len(rows))
            batch = _encoded(rows, start, stop, encoder, trace, stream, pool, screening, progress)
            if not len(batch.y):
                continue
            if waiting:
                yield waiting.result()
            waiting = writer.submit(_write_shard, folder / f"shard-{number:05d}.safetensors", batch)
            number += 1
            del batch
        if waiting:
            yield waiting.result()


def _write_shard(path: Path, batch: Batch) -> Shard:
    data = save({"x": batch.x, "y": batch.y})
    files.write_file(path, data)
    return Shard(path.name, len(batch.y), len(data), hashlib.sha256(data).hexdigest())


def _encoded(
    rows: Dataset,
    start: int,
    stop: int,
    encoder: Encoder,
    trace: Trace,
    stream: randomness.Stream,
    pool: Executor,
    screening: Screening | None = None,
    progress: Progress | None = None,
) -> Batch:
    """The rows from `start` to `stop`, encoded by blocks that stay in the cache, less those that the screening drops.
    Each block has a stream of its own, forked in their order: the same stream gives the same rows, however many threads
    are at work."""
    x = torch.empty(stop - start, *rows.shape, dtype=stored_dtype(encoder.index_bound))
    y = torch.empty(stop - start, len(rows.classes))

    def block(index: Tensor, noise: randomness.Stream) -> int:
        here = slice(int(index[0]) - start, int(index[-1]) + 1 - start)
        x[here], y[here] = encoder.encode(rows, index, trace, stream=noise)
        if screening:
            screening.look(index, trace, x[here])
        return len(index)

    size = max(1, _BLOCK_ELEMENTS // torch.Size(rows.shape).numel())
    index = torch.split(torch.arange(start, stop), size)
    for done in pool.map(block, index, [stream.fork("block") for _ in index]):
        if progress:
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
    rows: Dataset, encoder: Encoder, label_epsilon: float | None, stream: randomness.Stream
) -> tuple[Dataset, Trace]:
    """The rows as they are to be encoded, and who is mixed with whom. Where labels are randomised, rows are put in a
    random order first: data are often sorted by class, and then their order says what the labels do not."""
    unit_rows = getattr(encoder, "unit_rows", None)
    if rows.units is not None and unit_rows is None:
        raise ArgumentError(f"the encoder {encoder.name} promises nothing, to units either: leave them out")
    if rows.units is None and (unit_rows or 1) > 1:
        raise ArgumentError(
            f"it is not said which rows belong together, and the noise is for units of {unit_rows} rows"
        )
    order = None
    if label_epsilon is not None:
        check_declared(rows, label_epsilon)
        order = stream.fork("order").permutation(len(rows))
        moved = label_shifts(len(rows), len(rows.classes), label_epsilon, stream.fork("labels"))
        rows = Randomised(Subset(rows, order), moved)
    trace = encoder.plan(len(rows), stream=stream.fork("plan"), units=privacy_units.numbered(rows))
    return rows, replace(trace, order=order)


def check_declared(rows: Dataset, label_epsilon: float) -> None:
    """Refuse to protect labels by an ε that means nothing, or where the list of classes shows which of them occur."""
    keep_probability(label_epsilon, len(rows.classes))
    if getattr(getattr(rows, "projection", None), "origin", "public") == "private":
        raise PrivateFactError(
            "the projection was fitted on private labels, and shows them: protect them by a public one"
        )
    if not rows.declared:
        raise ArgumentError(
            "the list of classes was taken from the labels, and shows which of them occur: say with --classes which "
            "there can be, so that labels can be protected"
        )


def _row_bytes(rows: Dataset | Manifest, encoder: Encoder) -> int:
    return math.prod(rows.shape) * stored_dtype(encoder.index_bound).itemsize + 4 * len(rows.classes)


def _bytes(rows: Dataset, encoder: Encoder) -> int:
    """About how much room a release takes."""
    return len(rows) * _row_bytes(rows, encoder)


# Reading


def read_manifest(folder: Path) -> Manifest:
    """What a release says of itself; its shards are not looked at."""
    if os.path.realpath(folder).endswith(files.PARTIAL):
        raise ManifestError(f"{folder} is what an interrupted encoding left behind: it is not a release; remove it")
    try:
        data = files.read_small(folder / MANIFEST, strict_json.MANIFEST_LIMIT)
    except UnreadableFileError as error:
        raise ManifestError(f"{folder} is not a release: {error}") from None
    return manifest.parse(strict_json.decoded(data))


def read_shard(folder: Path, stated: Manifest, shard: Shard) -> Batch:
    """One shard of a release, checked as all of them are."""
    path = folder / shard.file
    most = shard.rows * _row_bytes(stated, stated.encoder)
    found = mapped(path, shard.bytes, shard.sha256, most)
    if set(found) != {"x", "y"}:
        raise ShapeError(f"{path}: it holds {strict_json.shown(sorted(found))}, a shard holds x and y")
    _check_tensors(path, stated, shard, found["x"], found["y"])
    return Batch(found["x"], found["y"])


def mapped(path: Path, size: int, sha256: str, most: int) -> dict[str, Tensor]:
    """The tensors of a file, mapped, once it is the file that a manifest names: its size and SHA-256. most: bytes of
    all values that the manifest says are in it; a larger file is not even read."""
    try:
        with files.opened(path) as file:
            if (found := file.seek(0, 2)) != size:
                raise ShardSizeError(f"{path} has {found} bytes, the manifest says {size}")
            if size > most + tensor_files.HEADER:
                raise ShapeError(f"{path} has {size:,} bytes, and all that the manifest says is in it takes {most:,}")
            file.seek(0)
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            if digest != sha256:
                raise HashError(f"{path} has the SHA-256 {digest}, the manifest says {sha256}")
            tensor_files.check_header(file, path)
            with tensor_files.mapped(file, path) as opened:
                return {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    except UnreadableFileError as error:
        raise MissingShardError(str(error)) from None
    except SafetensorError as error:
        raise ShardFormatError(f"{path}: not a safetensors file: {error}") from None


def _check_tensors(path: Path, stated: Manifest, shard: Shard, x: Tensor, y: Tensor) -> None:
    bound = stated.encoder.index_bound
    if x.dtype != stored_dtype(bound) or y.dtype != torch.float32:
        raise DtypeError(
            f"{path}: x is {x.dtype} and y {y.dtype}, the encoder releases {stored_dtype(bound)} and torch.float32"
        )
    if x.shape != (shard.rows, *stated.shape) or y.shape != (shard.rows, len(stated.classes)):
        raise ShapeError(
            f"{path}: x is {tuple(x.shape)} and y {tuple(y.shape)}, the manifest says "
            f"{(shard.rows, *stated.shape)} and {(shard.rows, len(stated.classes))}"
        )
    block = max(1, _BLOCK_ELEMENTS * 16 // max(1, x[0].numel()))
    for start in range(0, len(x), block):
        part = y[start : start + block]
        _check_values(f"{path}, from row {start}", bound, x[start : start + block], part)
        if not bool(stated.encoder.possible_labels(part).all()):
            raise SimplexError(f"{path}, from row {start}: labels that this encoder cannot make")


def _check_values(where: str, bound: int | None, x: Tensor, y: Tensor) -> None:
    low, high = torch.aminmax(x)
    if bound is None and not (bool(low.isfinite()) and bool(high.isfinite())):
        raise NotFiniteError(f"{where}: a released value is not finite")
    if bound is not None and (int(low) < -bound or int(high) > bound):
        raise GridError(f"{where}: grid indices reach {int(low)}…{int(high)}, the encoder's lie in ±{bound}")
    if not bool(y.isfinite().all()):
        raise NotFiniteError(f"{where}: a label is not finite")
    sums = y.double().sum(1)
    if bool((y < 0).any()) or bool(((sums - 1).abs() > 1e-6).any()):
        raise SimplexError(
            f"{where}: labels must be at least 0 and sum to 1, found {float(y.min()):g} and sum "
            f"{float(sums[(sums - 1).abs().argmax()]):g}"
        )
