"""The page of a sweep over (λ, β): accuracy against separability and against what attackers recover, and pictures."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from mixveil.core import files, strict_json, tensor_files
from mixveil.core.errors import DataFormatError, ManifestError, MixveilError
from mixveil.core.wording.notes import Note
from mixveil.report.pages import environment
from mixveil.report.pictures import png
from mixveil.report.scatter import Dot, scatter
from mixveil.theory.separability import Separability

PICTURES = "pictures.safetensors"
_LIMIT, _HEADER = 64 << 20, 1 << 20
_NO_PENALTY = "no penalty"
_CLEARLY = 0.05  # of SSIM, and of accuracy
_ROUNDING = 1e-6


class AttackFigures(NamedTuple):
    """How near an attack came on several images: SSIM (None where records are no images) and the mean squared error;
    the worst is the best recovered image. All are None where the attack failed: it gave values that are not finite,
    which say nothing of what others would recover."""

    ssim: float | None
    ssim_std: float | None
    ssim_worst: float | None
    mse: float | None
    mse_worst: float | None

    @property
    def failed(self) -> bool:
        return self.mse is None

    @classmethod
    def of(cls, ssim: Tensor | None, mse: Tensor) -> AttackFigures:
        """From figures (n,) of images."""
        if ssim is None:
            return cls(None, None, None, float(mse.mean()), float(mse.min()))
        return cls(float(ssim.mean()), float(ssim.std()), float(ssim.max()), float(mse.mean()), float(mse.min()))


@dataclass(frozen=True)
class SweepPoint:
    """One training of a sweep, and what came of it, on the data to test on.

    Attributes:
        weight, beta: λ and β.
        attacks: By name.
        folder: Where it lies.
    """

    penalty: str
    weight: float
    beta: float
    accuracy: float
    separability: Separability
    attacks: Mapping[str, AttackFigures]
    folder: Path | None = field(default=None, compare=False)

    @property
    def label(self) -> str:
        return _NO_PENALTY if self.penalty == "none" else f"λ = {self.weight:g}, β = {self.beta:g}"

    @property
    def recovered(self) -> float | None:
        """The mean SSIM of the attack that recovers most; None where nothing was measured, or all attacks failed."""
        return max((figures.ssim for figures in self.attacks.values() if figures.ssim is not None), default=None)

    @property
    def failed(self) -> list[str]:
        """The attacks that gave no figure."""
        return [name for name, figures in self.attacks.items() if figures.failed]

    def ssim(self, name: str) -> float | None:
        """The mean SSIM of one attack."""
        return self.attacks[name].ssim if name in self.attacks else None

    def most(self) -> float:
        """The same as `recovered`; more than any where nothing was measured, or an attack failed: an attack that fails
        is no defence."""
        return math.inf if self.recovered is None or self.failed else self.recovered

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "penalty": self.penalty,
            "weight": self.weight,
            "beta": self.beta,
            "accuracy": self.accuracy,
            "separability": self.separability._asdict(),
            "attacks": {name: figures._asdict() for name, figures in self.attacks.items()},
        }

    @classmethod
    def read(cls, item: Any, folder: Path) -> SweepPoint:
        """From JSON."""
        whole = strict_json.mapping("point", item)
        strict_json.only("point", whole, {"penalty", "weight", "beta", "accuracy", "separability", "attacks"})
        weight, beta = (strict_json.number(name, whole[name]) for name in ("weight", "beta"))
        accuracy = _between("accuracy", whole["accuracy"], 0, 1)
        apart = _named("separability", whole["separability"], Separability._fields)
        distances = {name: _between(name, value, 0, 2) for name, value in apart.items()}  # of points of norm 1
        attacks = {
            name: _figures(name, figures) for name, figures in strict_json.mapping("attacks", whole["attacks"]).items()
        }
        penalty = strict_json.text("penalty", whole["penalty"])
        return cls(penalty, weight, beta, accuracy, Separability(**distances), attacks, folder)


def _named(where: str, item: Any, names: tuple[str, ...]) -> dict[str, Any]:
    whole = strict_json.mapping(where, item)
    strict_json.only(where, whole, {*names})
    return whole


def _between(where: str, item: Any, low: float, high: float) -> float:
    """A number that lies there, but for rounding."""
    found = strict_json.number(where, item)
    if not low - _ROUNDING <= found <= high + _ROUNDING:
        raise ManifestError(f"{where} must be between {low:g} and {high:g}, got {found:g}")
    return found


def _figures(where: str, item: Any) -> AttackFigures:
    """All numbers; or none of SSIM, where records are no images; or none at all, where the attack failed."""
    whole = _named(where, item, AttackFigures._fields)
    missing = {name for name in whole if whole[name] is None}
    if missing not in (set(), {"ssim", "ssim_std", "ssim_worst"}, {*AttackFigures._fields}):
        raise ManifestError(f"{where} lacks {', '.join(sorted(missing))}")
    least = {"ssim": -1.0, "ssim_worst": -1.0}  # deviations and errors of values in [0, 1] are 0 or more
    given = {name: _between(name, whole[name], least.get(name, 0.0), 1) for name in whole.keys() - missing}
    return AttackFigures(**{name: given.get(name) for name in AttackFigures._fields})


def chosen(points: Sequence[SweepPoint], within: float, nothing: float | None, commonest: float = 0.0) -> int | None:
    """The number of the point of which attackers recover least, of those within `within` of the accuracy without a
    penalty. None where there is none, where attackers do not recover clearly less than without a penalty, where an
    attack failed at it, where the network learned nothing, or where attackers get nothing without a penalty too: then
    their failure elsewhere shows nothing. nothing: the SSIM of the mean image, which is guessed without looking;
    commonest: the share of the commonest test class, which is named right without looking."""
    if not learned(points, commonest) or not attacks_work(points, nothing):
        return None
    bare = min(point.recovered for point in _bare(points) if point.recovered is not None)
    best = _least(points, within, SweepPoint.most)
    return best if best is not None and points[best].most() < bare - _CLEARLY else None


def _bare(points: Sequence[SweepPoint]) -> list[SweepPoint]:
    return [point for point in points if point.penalty == "none"]


def learned(points: Sequence[SweepPoint], commonest: float) -> bool:
    """Whether the network without a penalty names clearly more test images right than their commonest class has: of one
    that learned nothing, no setting loses accuracy."""
    bare = [point.accuracy for point in _bare(points)]
    return bool(bare) and min(bare) >= commonest + _CLEARLY


def attacks_work(points: Sequence[SweepPoint], nothing: float | None) -> bool:
    """Whether attackers recover clearly more than the mean image where there is no penalty."""
    bare = [point.recovered for point in _bare(points) if point.recovered is not None]
    return nothing is not None and bool(bare) and min(bare) > nothing + _CLEARLY


def _least(points: Sequence[SweepPoint], within: float, of: Callable[[SweepPoint], float]) -> int | None:
    bare = max((point.accuracy for point in _bare(points)), default=math.inf)
    good = [n for n, p in enumerate(points) if p.penalty != "none" and p.accuracy >= bare - within]
    return min(good, key=lambda number: of(points[number]), default=None)


def write_pictures(folder: Path, pictures: Mapping[str, Tensor]) -> None:
    """(m, …) images in [0, 1] by name, `original` first, into the folder of a point. Failed attacks have none."""
    files.write_file(folder / PICTURES, save({name: x.contiguous() for name, x in pictures.items()}), 0o600)


def read_pictures(point: SweepPoint) -> dict[str, Tensor]:
    """The pictures of a point that has a folder: as many of each attack that did not fail as originals, in [0, 1]."""
    path = (point.folder or Path()) / PICTURES
    try:
        with files.opened(path, _LIMIT) as file:
            tensor_files.check_header(file, path, limit=_HEADER)
            found = load(file.read(_LIMIT))
    except (SafetensorError, MixveilError) as error:
        raise DataFormatError(f"{path} does not hold pictures: {error}") from None
    sound = all(x.dtype == torch.float32 and bool(((x >= 0) & (x <= 1)).all()) for x in found.values())
    asked = {"original", *point.attacks} - {*point.failed}
    if found.keys() != asked or not sound or len({x.shape for x in found.values()}) != 1:
        raise DataFormatError(f"{path} does not hold pictures of each attack beside the originals")
    return found


def write_page(path: Path, points: Sequence[SweepPoint], **asked: Any) -> None:
    """Write the page of a sweep, readable by its owner only: it shows test images. asked: as for `page`."""
    files.write_whole(path, page(points, **asked).encode(), 0o600)


def page(
    points: Sequence[SweepPoint],
    *,
    about: Mapping[str, Any],
    within: float,
    nothing: float | None,
    commonest: float,
    warnings: Sequence[Note],
) -> str:
    """The page of a sweep. about: its settings; within, nothing, commonest: as for `chosen`; warnings: what readers of
    its figures must know."""
    able = learned(points, commonest)
    close, best = _least(points, within, _apart) if able else None, chosen(points, within, nothing, commonest)
    names = list(dict.fromkeys(name for point in points for name in point.attacks))
    pictured = [name for name in names if any(point.ssim(name) is not None for point in points)]
    charts = [_chart("Accuracy against separability", "mean distance of two representations", points, close, _apart)]
    for name in pictured:
        title, of = f"Accuracy against what {name} recovers", partial(SweepPoint.ssim, name=name)
        charts.append(_chart(title, f"mean SSIM of {name}", points, best, of))
    text: str = (
        environment()
        .get_template("split.html.j2")
        .render(
            points=points,
            about=about,
            names=names,
            charts=charts,
            within=within,
            nothing=nothing,
            commonest=commonest,
            warnings=warnings,
            learned=able,
            bare=next(iter(_bare(points)), None),
            works=attacks_work(points, nothing),
            chosen=None if best is None else points[best],
            closest=None if close is None else points[close],
            strips=_strips(points),
        )
    )
    return text


def _apart(point: SweepPoint) -> float:
    return point.separability.mean


def _chart(
    title: str,
    across: str,
    points: Sequence[SweepPoint],
    marked: int | None,
    of: Callable[[SweepPoint], float | None],
) -> str:
    dots = []
    for number, point in enumerate(points):
        if (x := of(point)) is not None:
            group = _NO_PENALTY if point.penalty == "none" else f"λ = {point.weight:g}"
            dots.append(Dot(x, point.accuracy, group, point.label, number == marked))
    return scatter(title, across, dots, shares=True)


class Strip(NamedTuple):
    """Pictures of one point: the attack, and a picture for each image; no picture where the attack failed."""

    label: str
    accuracy: float
    rows: list[tuple[str, list[str]]]


def _strips(points: Sequence[SweepPoint]) -> list[Strip]:
    """The pictures of all points that have some."""
    found = []
    for point in points:
        if point.folder is None:
            continue
        pictures = read_pictures(point)
        if pictures["original"].dim() == 4 and pictures["original"].shape[1] in (1, 3):
            names = ("original", *point.attacks)
            rows = [(name, [png(image) for image in pictures.get(name, ())]) for name in names]
            found.append(Strip(point.label, point.accuracy, rows))
    return found
