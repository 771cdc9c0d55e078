"""Privacy curves: the records of a release encoded at other settings, and every encoding attacked alike.

Encodings are made in memory by a seeded stream and forgotten. Nothing is written, nothing is entered in the ledger, and
none of them may leave. All settings share records, attacks' draws, pairing, weights and the directions of the noise, so
that what differs between them is the setting.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, get_args

import torch
from torch import Tensor

from mixveil.audit.figures import AttackRun, Figure
from mixveil.audit.found import Audit
from mixveil.audit.metrics.catalogue import METRICS
from mixveil.audit.thumbnails import Thumbnails, thumbnails
from mixveil.audit.truth import ranged
from mixveil.core import checks
from mixveil.core.errors import ArgumentError
from mixveil.core.randomness import SeededStream
from mixveil.core.types import (
    Calibration,
    Dataset,
    Encoder,
    Fact,
    Facts,
    Guarantee,
    Mu,
    Release,
    Rows,
    Target,
    Tau,
    Trace,
    View,
)
from mixveil.core.watching import Moment, Observe, unobserved, unwatched
from mixveil.data.covers import Patches
from mixveil.data.row_views import Subset
from mixveil.encoders.calibration import facts_for, watched_moments
from mixveil.releases.records import traced_in_memory

MOST_VALUES = 12
MOST_RELEASES = 64

Attacked = Callable[..., Audit]
"""`audit` with all its options but the stream and who watches."""
Ready = Mapping[float, tuple[Encoder, tuple[Guarantee, ...]]]


@dataclass(frozen=True)
class Sweep:
    """What is varied, and its values, put in order so that the most revealing is first: `tau`, `mu`, or `releases`, how
    many encodings of the same records leave."""

    name: str
    values: tuple[float, ...]
    SYMBOLS: ClassVar[Mapping[str, str]] = {"tau": "τ", "mu": "μ", "releases": "releases"}

    def __post_init__(self) -> None:
        if self.name not in self.SYMBOLS:
            raise ArgumentError(f"sweep must be over one of {', '.join(self.SYMBOLS)}, got {self.name!r}")
        for value in self.values:
            _check_value(self.name, value)
        if len(set(self.values)) != len(self.values):
            twice = next(value for value in self.values if self.values.count(value) > 1)
            raise ArgumentError(f"sweep {self.name}: {twice:g} is given twice")
        if not 2 <= len(self.values) <= MOST_VALUES:
            raise ArgumentError(
                f"sweep {self.name}: 2 to {MOST_VALUES} values make a curve, got {len(self.values)}: "
                f"{', '.join(f'{value:g}' for value in self.values)}"
            )
        object.__setattr__(self, "values", tuple(sorted(self.values, reverse=True)))

    @classmethod
    def parse(cls, text: str) -> Sweep:
        """
        >>> Sweep.parse("mu=0.5, 2,1").values
        (2.0, 1.0, 0.5)
        """
        name, sign, listed = text.partition("=")
        if not sign:
            raise ArgumentError(f"sweep must be like tau=1,0.1,0.01 or mu=0.5,1,2 or releases=1,4,16, got {text!r}")
        values = []
        for item in listed.split(","):
            try:
                values.append(float(item))
            except ValueError:
                raise ArgumentError(f"sweep {name.strip()}: {item.strip()!r} is no number") from None
        return cls(name.strip(), tuple(values))

    @property
    def symbol(self) -> str:
        return self.SYMBOLS[self.name]

    def said(self, value: float) -> str:
        return f"{self.symbol} = {value:g}"


def _check_value(name: str, value: float) -> None:
    if name == "tau":
        checks.fraction("sweep tau", value)
    elif name == "mu":
        checks.finite_positive("sweep mu", value)
    elif not (1 <= value <= MOST_RELEASES and value == int(value)):
        raise ArgumentError(f"sweep releases must be whole numbers from 1 to {MOST_RELEASES}, got {value:g}")


@dataclass(frozen=True)
class SweepPoint:
    """The audit at one value of what is varied. followed: by attack, the record that is the same at all values; best:
    the record of which it got most at this value."""

    value: float
    sigma: float
    figures: tuple[Figure, ...]
    attacks: tuple[AttackRun, ...]
    followed: Mapping[str, Thumbnails] = field(default_factory=dict, repr=False)
    best: Mapping[str, Thumbnails] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class Swept:
    """records: how many were encoded at every value; of: how many the release has."""

    sweep: Sweep
    seed: int
    records: int
    of: int
    points: tuple[SweepPoint, ...]


def calibrated(sweep: Sweep, template: Release, truth: Dataset, *, seed: int) -> Ready:
    """The template's encoder at each value, and what it guarantees; a template that cannot be varied so is refused.

    Centre, clip norm and weights stay the template's. τ is met by the template's calibration (`spectral`, where it
    states none), from the moments of the records themselves."""
    encoder, scheme = template.encoder, template.encoder.scheme
    if template.screened is not None:
        raise ArgumentError("rows were dropped from this release: sweep a release without --screen")
    if sweep.name == "releases":
        return dict.fromkeys(sweep.values, (encoder, template.guarantees))
    facts, how = _facts(template), _calibration(template)
    if sweep.name == "tau" and how == "displacement":
        raise ArgumentError(
            "the noise of this release is the displacement of features, which keeps no tau: sweep mu or releases"
        )
    moments_of = watched_moments(SeededStream(seed), unwatched)
    ready = {}
    for value in sweep.values:
        target: Target = Mu(value) if sweep.name == "mu" else Tau(value, how)
        known = facts
        if isinstance(target, scheme.targets):  # others refuse it by themselves, and say why
            known = facts_for(target, truth, public=None, moments_of=moments_of, settled=facts)
        ready[value] = scheme.calibrate(target, known)
    return ready


def _facts(template: Release) -> Facts:
    """What the template's settings say, and where they are from as far as its guarantees tell."""
    origins = {name: origin for stated in template.guarantees for name, origin in stated.assumes.items()}
    known = {"dimension": Fact(float(torch.Size(template.shape).numel()), "range")}
    made = template.encoder
    settings = {"centre": made.centre, "clip": made.clip, "amplitude": made.amplitude, "unit_rows": made.unit_rows}
    for name, value in settings.items():
        if value is not None:
            known[name] = Fact(float(value), "private" if origins.get(name) == "private" else "public")
    return Facts(known)


def _calibration(template: Release) -> Calibration:
    stated = {guarantee.assumes.get("calibration") for guarantee in template.guarantees}
    kinds: tuple[Calibration, ...] = get_args(Calibration)
    return next((kind for kind in kinds if kind in stated), "spectral")


def run(
    sweep: Sweep,
    ready: Ready,
    found: Audit,
    truth: Dataset,
    attack: Attacked,
    *,
    seed: int,
    pictures: Dataset | None = None,
    watch: Observe = unobserved,
) -> Swept:
    """Encode the records that `found`, the template's audit, attacked again at every value, and attack them as it did.

    attack: called as `attack(view, records, stream=, watch=, pictures=)`; pictures: the images that `truth` is features
    of. Of large releases only the part that was attacked is encoded, by itself: at every value the same records."""
    template = found.view.releases[0]
    records = Subset(ranged(truth), found.numbers)
    chosen: dict[str, int] = {}
    points = []
    for place, value in enumerate(sweep.values, 1):
        said = f"{sweep.said(value)} ({place} of {len(sweep.values)})"
        audits = 1 + len(sweep.values)
        watch(Moment(f"{said}: encoding", place / audits))
        times = int(value) if sweep.name == "releases" else 1
        releases, traces = _encoded(template, *ready[value], records, times, seed, found.view.covers)
        result = attack(
            View(releases, traces, found.view.public, pictures=found.view.pictures),
            records,
            stream=SeededStream(seed),
            pictures=None if pictures is None else Subset(pictures, found.numbers),
            watch=part_of(watch, place, audits, f"{said}: "),
        )
        points.append(_point(value, result, found.numbers, chosen))
    return Swept(sweep, seed, len(records), len(truth), tuple(points))


def part_of(watch: Observe, place: int, audits: int, said: str = "") -> Observe:
    """For one of several audits that take about as long: how much of all of them is done. place: how many are before
    it; said: before what it is doing."""

    def observe(moment: Moment) -> None:
        done = None if moment.done is None else (place + moment.done) / audits
        watch(Moment(said + moment.doing, done))

    return observe


def _encoded(
    template: Release,
    encoder: Encoder,
    guarantees: tuple[Guarantee, ...],
    records: Dataset,
    times: int,
    seed: int,
    covers: Rows | None = None,
) -> tuple[tuple[Release, ...], tuple[Trace, ...]]:
    """Releases in memory that state what they would if their noise were secret: their audit should know the ceilings.
    The stream starts from the seed, so every value gets the same draws; each further encoding gets new ones."""
    stream = SeededStream(seed).fork("sweep")
    releases, traces = [], []
    for _ in range(times):
        release, trace = traced_in_memory(
            records,
            encoder,
            guarantees,
            party=template.party,
            stream=stream.fork("release"),
            assets=template.assets,
            extractor=template.extractor,
            label_epsilon=template.label_epsilon,
            covers=covers if isinstance(covers, Patches) else None,
        )
        releases.append(release.with_(guarantees=guarantees))
        traces.append(trace)
    return tuple(releases), tuple(traces)


def _point(value: float, result: Audit, numbers: Tensor, chosen: dict[str, int]) -> SweepPoint:
    """What is kept of an audit. chosen: the record that is followed under each attack, set where it is not yet."""
    followed, best = {}, {}
    sigma = result.view.releases[0].encoder.sigma
    priors = {figure.attack for figure in result.figures if figure.kind == "prior"}
    images = {name: guess for name, guess in result.images.items() if name not in priors and guess.dim() == 4}
    for name, guess in images.items():
        most = int((result.errors[name] / result.spreads.clamp(min=1e-12)).argmin())
        best[name] = thumbnails(result, guess, most, numbers)
        followed[name] = thumbnails(result, guess, chosen.setdefault(name, most), numbers)
    return SweepPoint(value, sigma, result.figures, result.attacks, followed, best)


def table(swept: Swept) -> list[tuple[str, str, list[float | None]]]:
    """Of each attack but those that know nothing its main figure: the attack, the metric's code, and the mean at every
    value."""
    figures = [figure for point in swept.points for figure in point.figures if figure.kind != "prior"]
    lines = []
    for name in dict.fromkeys(figure.attack for figure in figures):
        measured = {figure.metric for figure in figures if figure.attack == name}
        metric = next((metric.code for metric in METRICS if metric.main and metric.code in measured), None)
        if metric is not None:
            means = [{f.attack: f.mean for f in point.figures if f.metric == metric} for point in swept.points]
            lines.append((name, metric, [here.get(name) for here in means]))
    return lines
