"""Noisy class sums: the first step of the certified protocol, and the task's directions from them.

    s_c = Σ_{i of class c} z_i + N(0, σ²I),   ‖z‖ ≤ C

Formal guarantees
- Replacing a record by another with the same label moves one sum by at most 2C: every unit of m records is μ-GDP,
  μ = 2Cm/σ, against whoever knows everything else. The counts of the classes are public, as all labels are.
- What is computed from the sums (directions, means, a model) is post-processing and costs nothing more.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from mixveil.core import checks, files, randomness, strict_json
from mixveil.core.errors import (
    ArgumentError,
    FalseClaimError,
    GridError,
    ManifestError,
    MismatchError,
    ShapeError,
    TrainingError,
    UnreadableFileError,
    UnreadableReleaseError,
    VersionError,
)
from mixveil.core.types import Cost, Guarantee, Progress
from mixveil.data import privacy_units
from mixveil.data.randomised_labels import label_shifts
from mixveil.encoders.grid import GRID
from mixveil.encoders.noisy import gdp_conditions
from mixveil.features.projection import Projected, Projection, Used
from mixveil.releases import manifest
from mixveil.releases.ledger import Against, Entry, Ledger
from mixveil.releases.records import MANIFEST, check_declared, check_output, check_owners, mapped
from mixveil.releases.spending import Owners
from mixveil.theory.response import posterior
from mixveil.theory.shrinkage import shrunk_means

FORMAT = "mixveil-statistics"
VERSION = 2
FILE = "sums.safetensors"
_LIMIT = 1 << 30
_ROWS = 4096

LABELS = "Labels are not protected: how many records of each class the party has is stated exactly."
RANDOMISED = (
    "Labels were randomised once for this release, each with ε = {:g}: what is said of a record's class is that "
    "private, and no more."
)


@dataclass(frozen=True)
class Sums:
    """A release of class sums. sums: (classes, k) values; counts: (classes,) records that are said to be of each class;
    clip, sigma: of records and of the noise; unit_rows: the most records that one unit has; label_epsilon: of
    randomised labels; projection: the SHA-256 of the projection that made records of images."""

    id: str
    party: str
    created: str
    classes: tuple[str, ...]
    counts: tuple[int, ...]
    dimension: int
    clip: float
    sigma: float
    unit_rows: int
    label_epsilon: float | None
    guarantees: tuple[Guarantee, ...]
    certified: bool
    reproducible: bool
    projection: str
    sums: Tensor = field(repr=False)

    @property
    def not_promised(self) -> tuple[str, ...]:
        """What a reader might think is promised and is not, in plain words."""
        return _not_promised(self.reproducible, self.unit_rows, self.label_epsilon)

    @property
    def mu(self) -> float | None:
        """What every record was promised; None where nothing was."""
        return next((g.nominal for g in self.guarantees if g.name == "gdp"), None)


def write_statistics(
    out: Path,
    rows: Projected,
    digest: str,
    mu: float,
    *,
    party: str,
    stream: randomness.Stream,
    label_epsilon: float | None = None,
    recipient: str | None = None,
    budget: float | None = None,
    label_budget: float | None = None,
    against: Against = "records",
    owners: Owners | None = None,
    progress: Progress = lambda _: None,
) -> Sums:
    """Write the noisy class sums of all rows at μ. digest: of the rows' projection. It is entered in the owner's ledger
    before they are computed, as a release of records is."""
    check_output(out, party)
    checks.enough_rows(len(rows))
    if label_epsilon is not None:
        check_declared(rows, label_epsilon)
    book, identity = Ledger(), randomness.release_id()
    owners = book.owners(rows) if owners is None else owners
    check_owners(rows, owners)
    sigma = _sigma(rows, mu)
    cost = Cost(2 * rows.projection.clip / sigma, 2 * rows.projection.clip / sigma, 1.0)
    seeded = stream.reproducible
    entry = Entry(
        id=identity,
        kind="statistics",
        party=party,
        recipient=recipient,
        encoder="class sums",
        sigma=sigma,
        cost=None if seeded else cost,
        stated=None if seeded else mu,
        label_epsilon=None if seeded else label_epsilon,
        rows=len(rows),
    )
    with book.making(entry, owners, budget, label_budget=label_budget, against=against):
        found, indices = class_sums(
            rows, digest, mu, party=party, stream=stream, label_epsilon=label_epsilon, progress=progress
        )
        book.confirm(rows, owners)
        found = replace(found, id=identity)
        data = save({"sums": indices})
        text = _to_json(found, data)
        parsed(text)  # what we would refuse to read we do not write
        with files.atomic_folder(out, found.id[:8]) as folder:
            files.write_file(folder / FILE, data)
            files.write_file(folder / MANIFEST, text.encode())
        files.sync_folder(out.parent)
    return found


def class_sums(
    rows: Projected,
    digest: str,
    mu: float,
    *,
    party: str,
    stream: randomness.Stream,
    label_epsilon: float | None = None,
    progress: Progress = lambda _: None,
) -> tuple[Sums, Tensor]:
    """The noisy class sums of all rows at μ, and as they are on the grid: in memory, entered in no ledger. All m
    records of a unit may be in one sum, and cost m times as much as one."""
    checks.enough_rows(len(rows))
    clip, sigma, unit_rows, classes = (
        rows.projection.clip,
        _sigma(rows, mu),
        privacy_units.largest(rows),
        len(rows.classes),
    )
    labels = rows.labels
    if label_epsilon is not None:
        check_declared(rows, label_epsilon)
        labels = (labels + label_shifts(len(labels), classes, label_epsilon, stream.fork("labels"))) % classes
    indices = _noisy(rows, labels, sigma, stream, progress)
    guarantees = () if stream.reproducible else (_claim(clip, sigma, unit_rows, mu),)
    found = Sums(
        id=randomness.release_id(),
        party=party,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        classes=rows.classes,
        counts=tuple(labels.bincount(minlength=classes).tolist()),
        dimension=rows.projection.dimension,
        clip=clip,
        sigma=sigma,
        unit_rows=unit_rows,
        label_epsilon=label_epsilon,
        guarantees=guarantees,
        certified=bool(guarantees),
        reproducible=stream.reproducible,
        projection=digest,
        sums=indices.double() * (sigma * GRID),
    )
    return found, indices


def read_statistics(folder: Path) -> Sums:
    """Open class sums; sizes, hash, shapes, grid range and claims are all checked."""
    try:
        text = strict_json.decoded(files.read_small(folder / MANIFEST, strict_json.MANIFEST_LIMIT))
    except UnreadableFileError as error:
        raise UnreadableReleaseError(f"{folder} holds no statistics: {error}") from None
    stated, file = parsed(text)
    path, shape = folder / FILE, (len(stated["classes"]), stated["dimension"])
    found = mapped(path, file["bytes"], file["sha256"], 8 * math.prod(shape))
    if set(found) != {"sums"}:
        raise ShapeError(f"{path}: it holds {strict_json.shown(sorted(found))}, statistics hold sums")
    indices = found["sums"]
    if indices.dtype != torch.int64 or indices.shape != shape:
        raise ShapeError(f"{path}: sums are {indices.dtype} of {tuple(indices.shape)}, not what the manifest says")
    most = max(stated["counts"]) * stated["clip"] + (randomness.NORMAL_BOUND + 1) * stated["sigma"]
    low, high = torch.aminmax(indices)
    if max(-int(low), int(high)) > most / (stated["sigma"] * GRID):
        raise GridError(f"{path}: sums larger than the records that the manifest counts can have")
    return Sums(**stated, sums=indices.double() * (stated["sigma"] * GRID))


def is_statistics(folder: Path) -> bool:
    """Whether a folder says that it holds class sums. Of what is wrong with it, whoever reads it will hear."""
    try:
        whole = strict_json.parsed(files.read_small(folder / MANIFEST, strict_json.MANIFEST_LIMIT))
    except (UnreadableFileError, ManifestError):
        return False
    return isinstance(whole, dict) and whole.get("format") == FORMAT


def class_means(parts: Sequence[Sums]) -> tuple[Tensor, Tensor]:
    """(classes, k) the means that all parties' sums say, and (classes,) the variance of one value of each.

    A sum of n records with within-class variance 1 has the variance n + σ²: every party counts by its precision. Where
    labels were randomised, a sum is one of all classes, by the shares that its records have of them. A class that
    nobody has gets the mean 0 and an infinite variance."""
    bottom, top = _normal_equations(parts, 0.0)
    met = bottom.diagonal() > 0
    solved = torch.linalg.pinv(bottom, hermitian=True)
    means = solved @ top
    if any(part.label_epsilon is not None for part in parts):
        means = shrunk_means(lambda spread: _normal_equations(parts, spread))
    variance = torch.where(met, solved.diagonal(), torch.inf)
    return torch.where(met[:, None], means, 0.0), variance


def _normal_equations(parts: Sequence[Sums], spread: float) -> tuple[Tensor, Tensor]:
    """(classes, classes) and (classes, k) of least squares on all sums. spread: how much the classes' means vary, and
    with them the records of a sum where their classes are not known."""
    classes = len(parts[0].classes)
    top, bottom = torch.zeros_like(parts[0].sums), torch.zeros(classes, classes, dtype=torch.float64)
    for part in parts:
        counts = torch.tensor(part.counts, dtype=torch.float64)
        shares = torch.eye(classes, dtype=torch.float64)
        if part.label_epsilon is not None:
            shares = posterior(counts, part.label_epsilon)
        within = 1 + spread * (1 - shares.square().sum(1))
        precision = counts / (counts * within + part.sigma**2)
        top += shares.T @ (precision[:, None] * part.sums)
        bottom += shares.T @ ((precision * counts)[:, None] * shares)
    return bottom, top


def directions(parts: Sequence[Sums], projection: Projection, digest: str) -> Projection:
    """The projection along the directions in which the classes' means differ: one fewer than there are classes."""
    check_together(parts, projection, digest)
    try:
        means, variance = class_means(parts)
    except torch.linalg.LinAlgError as error:  # type: ignore[attr-defined]
        raise TrainingError(f"these statistics have no class means: {error}") from None
    met = variance.isfinite()
    if int(met.sum()) < 2:
        raise ArgumentError("the statistics hold fewer than two classes: there is no direction between them")
    if not bool(means.isfinite().all()):
        raise TrainingError("the class means are not finite: the figures of some statistics are too large or too small")
    centred = means[met] - means[met].mean(0)
    found = torch.linalg.svd(centred, full_matrices=False).Vh[: int(met.sum()) - 1].T.float()
    spent = tuple(
        Used(p.id, p.party, p.mu or 0.0, p.unit_rows, None if p.reproducible else p.label_epsilon) for p in parts
    )
    found = found[:, : projection.dimension]
    return projection.along(found, means, 1 / variance, parts[0].classes, projection.spent + spent)


def check_together(parts: Sequence[Sums], projection: Projection, digest: str) -> None:
    """Refuse statistics that do not belong together, or to the projection."""
    if not parts:
        raise ArgumentError("no statistics are given")
    for part in parts:
        if part.projection != digest:
            raise MismatchError(
                f"the statistics {part.id[:8]} of {part.party} were made with the projection {part.projection[:8]}, "
                f"not with {digest[:8]}"
            )
        if part.dimension != projection.dimension or not math.isclose(part.clip, projection.clip, rel_tol=1e-6):
            raise MismatchError(
                f"the statistics {part.id[:8]} of {part.party} state {part.dimension} values clipped to {part.clip:g}, "
                f"their projection has {projection.dimension} clipped to {projection.clip:g}"
            )
        if part.classes != parts[0].classes or (projection.classes and part.classes != projection.classes):
            raise MismatchError(f"{part.party} and {parts[0].party} do not have the same classes in the same order")
    if len({part.id for part in parts}) != len(parts):
        raise MismatchError("the same statistics are given twice: they would count twice")


def _sigma(rows: Projected, mu: float) -> float:
    """The noise that makes every unit μ-GDP: its records move one sum by 2C each, at most."""
    return checks.size(
        "sigma", 2 * rows.projection.clip * privacy_units.largest(rows) / checks.finite_positive("mu", mu)
    )


def _noisy(rows: Projected, labels: Tensor, sigma: float, stream: randomness.Stream, progress: Progress) -> Tensor:
    """(classes, k) int64: the sums of clipped records and their noise, on the grid."""
    sums = torch.zeros(len(rows.classes), rows.projection.dimension, dtype=torch.float64)
    for index in torch.split(torch.arange(len(rows)), _ROWS):
        z = rows.take(index).x.double()
        norm = torch.linalg.vector_norm(z, dim=1, keepdim=True)
        finite = norm.isfinite()  # always so, and if it were not: it must not show
        z = torch.where(finite, z, 0.0).mul_(torch.where(finite, rows.projection.clip / norm, 0.0).clamp_(max=1))
        sums.index_add_(0, labels[index], z)
        progress(len(index))
    sums += stream.fork("sums").normal(*sums.shape).mul_(sigma)  # forked only now: its key is as fresh as can be
    return sums.div_(sigma * GRID).round_().long()


def _claim(clip: float, sigma: float, unit_rows: int, mu: float) -> Guarantee:
    origins = {"clip": "public", "centre": "public", "projection": "public"}
    return Guarantee("gdp", mu, 2 * clip * unit_rows / sigma, {**gdp_conditions(unit_rows), **origins})


def _not_promised(reproducible: bool, unit_rows: int, label_epsilon: float | None) -> tuple[str, ...]:
    labels = LABELS
    if label_epsilon is not None:
        labels = manifest.randomised(RANDOMISED, label_epsilon, unit_rows, reproducible)
    said = [labels, manifest.NOT_ENCRYPTION, manifest.unit(unit_rows, not reproducible)]
    return (*said, manifest.SEEDED) if reproducible else tuple(said)


def _to_json(found: Sums, data: bytes) -> str:
    fields = {name: value for name, value in vars(found).items() if name != "sums"}
    whole = {
        "format": FORMAT,
        "version": VERSION,
        **fields,
        "guarantees": [asdict(guarantee) for guarantee in found.guarantees],
        "not_promised": found.not_promised,
        "file": {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()},
    }
    return json.dumps(whole, indent=2, sort_keys=True, allow_nan=False, ensure_ascii=False) + "\n"


def parsed(text: str) -> tuple[dict[str, Any], Mapping[str, Any]]:
    """The fields of Sums but for the sums themselves, and what is said of the file."""
    whole = strict_json.mapping("manifest", strict_json.loads(text))
    if whole.get("format") != FORMAT:
        raise ManifestError(f"format must be {FORMAT!r}, got {strict_json.shown(whole.get('format'))}")
    if type(whole.get("version")) is not int or whole["version"] != VERSION:
        raise VersionError(
            f"this mixveil reads version {VERSION}, the manifest has {strict_json.shown(whole.get('version'))}"
        )
    names = {name for name in Sums.__dataclass_fields__ if name != "sums"}
    strict_json.only("manifest", whole, names | {"format", "version", "not_promised", "file"})
    file = strict_json.mapping("file", whole["file"])
    strict_json.only("file", file, {"bytes", "sha256"})
    found: dict[str, Any] = {
        "id": strict_json.text("id", whole["id"], r"[0-9a-f]{32}"),
        "party": strict_json.text("party", whole["party"]),
        "created": strict_json.text("created", whole["created"]),
        "classes": tuple(strict_json.text("classes", name) for name in strict_json.items("classes", whole["classes"])),
        "counts": tuple(_count(item) for item in strict_json.items("counts", whole["counts"])),
        "dimension": strict_json.count("dimension", whole["dimension"]),
        "clip": _size("clip", whole["clip"]),
        "sigma": _size("sigma", whole["sigma"]),
        "unit_rows": strict_json.count("unit_rows", whole["unit_rows"]),
        "label_epsilon": manifest.parse_epsilon(whole["label_epsilon"]),
        "guarantees": tuple(
            manifest.parse_guarantee(item) for item in strict_json.items("guarantees", whole["guarantees"])
        ),
        "certified": strict_json.flag("certified", whole["certified"]),
        "reproducible": strict_json.flag("reproducible", whole["reproducible"]),
        "projection": strict_json.text("projection", whole["projection"], r"[0-9a-f]{64}"),
    }
    counts = found["counts"]
    if len(counts) != len(found["classes"]) or sum(counts) < 2:
        raise ManifestError("counts must be one for each class, and of two records at least")
    if len(set(found["classes"])) != len(counts):
        raise ManifestError("two classes have the same name")
    if strict_json.count("file.bytes", file["bytes"]) > _LIMIT:
        raise ManifestError(f"file.bytes is {file['bytes']:,}, and statistics have at most {_LIMIT:,}")
    strict_json.text("file.sha256", file["sha256"], r"[0-9a-f]{64}")
    _honest(found, tuple(strict_json.items("not_promised", whole["not_promised"])))
    return found, file


def _size(name: str, item: Any) -> float:
    try:
        return checks.size(name, strict_json.number(name, item))
    except ArgumentError as error:
        raise ManifestError(str(error)) from None


def _count(item: Any) -> int:
    if type(item) is not int or not 0 <= item < 1 << 48:
        raise ManifestError(f"a count cannot be {strict_json.shown(item)}")
    return item


def _honest(found: dict[str, Any], not_promised: tuple[Any, ...]) -> None:
    stated = found["guarantees"]
    if found["reproducible"] and (stated or found["certified"]):
        raise FalseClaimError("the noise came from a seeded stream: a manifest of it promises nothing")
    if found["certified"] != bool(stated) or len(stated) > 1:
        raise FalseClaimError("statistics are certified if and only if they state one gdp guarantee")
    for guarantee in stated:
        due = _claim(found["clip"], found["sigma"], found["unit_rows"], guarantee.nominal)
        figures = (guarantee.nominal, guarantee.realised or 0.0)
        if guarantee.name != "gdp" or guarantee.assumes != due.assumes:
            raise FalseClaimError("the guarantee of statistics is gdp, under its own conditions")
        if min(figures) < (due.realised or 0.0) * (1 - 1e-9):
            raise FalseClaimError(f"the manifest claims μ = {min(figures):g}, its settings give {due.realised:g}")
    if not_promised != _not_promised(found["reproducible"], found["unit_rows"], found["label_epsilon"]):
        raise FalseClaimError("not_promised does not say what these settings leave unpromised")
