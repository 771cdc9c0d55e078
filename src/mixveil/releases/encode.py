"""The whole job of encoding: from data, as their owner names them, to a release on disk that is entered in the ledger.

What must not leave is refused here, for the command line and for Python alike.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from mixveil.core import randomness
from mixveil.core.errors import ArgumentError, MismatchError, MissingFactError
from mixveil.core.types import Calibration, Encoder, Fact, Mu, Scheme, Target, Tau
from mixveil.core.watching import Warn, Watch, unheard, unwatched
from mixveil.core.wording.notes import Note, note
from mixveil.data.covers import KEYPOINTS, PATCHES, Patches
from mixveil.data.covers import patches as cut_patches
from mixveil.data.images import Images
from mixveil.data.opening import DataOptions, DataSpec, open_both
from mixveil.encoders import calibration as calibrations
from mixveil.encoders import catalogue
from mixveil.encoders.mixing import PRIVATE
from mixveil.encoders.singular import PAPER_ALPHA
from mixveil.features import displacement as displacements
from mixveil.features.cache import Features, Loaded
from mixveil.features.displacement import Displacement, Normalisation
from mixveil.features.extractor import Extractor
from mixveil.features.opening import FeatureOptions, chosen_extractor
from mixveil.features.projection import Projected
from mixveil.releases import accounting
from mixveil.releases.devices import Device, check_device
from mixveil.releases.devices import chosen as chosen_device
from mixveil.releases.envelope import Envelope
from mixveil.releases.kinds.records import RecordSettings
from mixveil.releases.ledger import Ledger
from mixveil.releases.records import write_release
from mixveil.releases.screening import NOT_PICTURES, Screen, Screened
from mixveil.releases.spending import Standing
from mixveil.releases.traces import load_trace, trace_path
from mixveil.releases.writing import LedgerTerms, check_output
from mixveil.theory.dropped_rows import BrokenCycles, broken_cycles


@dataclass(frozen=True)
class Encoded:
    """A release that was made, for its owner's eyes.

    Attributes:
        manifest: What leaves with it.
        trace: The file with its pairing and weights, which stays with the owner.
        displacement: How far image noise moved features, where the noise was calibrated by that.
        broken: What dropped rows did to the pairing, where rows were screened.
        standing: What the ledger says of these records now.
    """

    folder: Path
    manifest: Envelope
    trace: Path
    warnings: tuple[Note, ...]
    displacement: Displacement | None
    broken: BrokenCycles | None
    standing: Standing

    @property
    def screened(self) -> Screened | None:
        """The screen, and the number of rows that were made; None where no row could be dropped."""
        settings = self.manifest.settings
        return settings.screened if isinstance(settings, RecordSettings) else None


def encode(
    data: DataSpec,
    out: Path | str,
    *,
    mu: float | None = None,
    tau: float | None = None,
    calibration: Calibration | None = None,
    encoder: str = "singular",
    alpha: float | None = None,
    noise: Literal["gaussian", "sphere"] | None = None,
    images_per_row: int | None = None,
    c1: float | None = None,
    c2: float | None = None,
    augmented: bool = False,
    patches: int | None = None,
    keypoints: int | None = None,
    clip: float | None = None,
    public: DataSpec | None = None,
    party: str = "party",
    recipient: str | None = None,
    budget: float | None = None,
    label_epsilon: float | None = None,
    label_budget: float | None = None,
    screen: Screen | str | None = None,
    device: Device | None = None,
    seed: int | None = None,
    projection: Path | str | None = None,
    backbone: str | None = None,
    stage: str | None = None,
    mirror: bool = False,
    normalisation: Normalisation | None = None,
    options: DataOptions | None = None,
    cache: Path | str | None = None,
    ledger: Ledger | None = None,
    watch: Watch = unwatched,
    warn: Warn = unheard,
) -> Encoded:
    """Encode data once, as a release that may leave. It is entered in the ledger before it is made; pairing and weights
    stay in the state folder.

    Args:
        data: A data set, or its name or path.
        out: The folder to make. It must not exist.
        mu: Certified: every record (every unit, where units are named) μ-GDP, labels excluded; noise from public facts.
        tau: Instead: Theorem 2's directional SNR, in (0, 1]; noise from the records' own moments, not certified.
        calibration: How tau is met; `spectral` unless another is given.
        encoder: The name of one of `mixveil.encoders()`.
        alpha, noise, images_per_row, c1, c2, augmented: Its settings, if it has them.
        clip: The norm to which records are clipped, chosen without looking at them.
        public: Public data of the same shape, for the centre, the clip norm and the moments; for mixup and instahide
            public images of any size, patches of which are mixed in.
        patches, keypoints: How many patches there are to choose from, and more than how many keypoints (SIFT) each has;
            0 keeps flat patches too.
        party: The sender's name, which the manifest shows.
        recipient, budget, label_budget, ledger: See `writing.LedgerTerms`.
        label_epsilon: Labels under ε-DP randomised response; else they are shown.
        screen: Drop rows that show too much, as `lpips:0.7`. Not with mu.
        device: Where Gaussian noise is drawn: `cuda`, on a GPU, or `cpu`; where the rows lie unless it is given. The
            release is exact either way, and does not say which.
        seed: For experiments: an attacker who knows the seed can remove the noise, so nothing is promised.
        projection: The file of a public projection that images go through, or `photographs` for the one that comes
            with mixveil.
        backbone, stage, mirror: Encode these features instead of pixels; normalisation: of `displacement`'s noise.
        options, cache: How data are read, and where features are kept.
        warn: Is told every warning before anything is entered or written.
    """
    out, options, ledger = Path(out), options or DataOptions(), ledger or Ledger()
    check_output(out, party)
    check_device(device)
    target = chosen_target(mu, tau, calibration)
    screen = Screen.parse(screen) if isinstance(screen, str) else screen
    if screen is not None:
        screen.check_promises(mu is not None, label_epsilon)
        if backbone is not None or projection is not None:
            raise ArgumentError(f"screen = {screen}: {NOT_PICTURES}")
    lpips = None if screen is None else screen.distance(options.folder)
    given = {"alpha": alpha, "noise": noise, "images_per_row": images_per_row, "c1": c1, "c2": c2}
    scheme = configured(encoder, {**given, "augmented": augmented or None})
    cut = PatchesAsked(patches, keypoints, c2)
    check_public(scheme, target, clip, public, cut, pixels=backbone is None and projection is None)
    extractor = _chosen_features(backbone, stage, mirror, projection, target, normalisation, clip, public)
    stream = stream_for(seed)
    images, known = open_both(data, public, options)
    owners = accounting.owners_of(ledger, images, watch)
    features = FeatureOptions(options, cache, watch)
    if projection is not None:
        promised = mu is not None or label_epsilon is not None
        rows, digest, told = features.open_projected(
            images, projection, certified=promised, apart=scheme.needs_facts, seeded=seed is not None
        )
        if rows.projection.classes and rows.classes != rows.projection.classes:
            raise MismatchError(
                "these data do not have the classes of the statistics, in the same order: name all of them (--classes)"
            )
        told += accounting.earlier_statistics(ledger, rows.projection, party)
        clipped = Fact(rows.projection.clip, rows.projection.origin)
        source = Source(rows, clip=clipped, assets={"projection": digest}, notes=told)
    elif scheme.public_use == "covers" and known is not None:
        source = cut.source(images, known, stream.fork("patches"), watch)
    elif extractor is not None:
        source = _featured(images, known, features, extractor, target, alpha, normalisation, stream)
    else:
        source = Source(images, known)
    warnings = source.rows.warnings() + source.notes
    warnings += accounting.copies(owners) + accounting.labels_were_shown(ledger, owners, label_epsilon)
    ready, guarantees, more = calibrations.calibrate(
        scheme,
        target,
        source.rows,
        public=source.public,
        clip=clip if source.clip is None else source.clip,
        displacement=displacement_fact(source.displacement, known),
        covers=None if source.covers is None else len(source.covers),
        stream=stream.fork("facts"),
        watch=watch,
    )
    warnings += more + chosen_device(device, source.rows, ready)[1]
    for item in warnings:
        warn(item)
    terms = LedgerTerms(recipient=recipient, budget=budget, label_budget=label_budget, owners=owners, ledger=ledger)
    with watch("encoding", len(source.rows)) as step:
        written = write_release(
            out,
            source.rows,
            ready,
            guarantees,
            party=party,
            stream=stream.fork("release"),
            assets=source.assets,
            extractor=extractor,
            label_epsilon=label_epsilon,
            screen=screen,
            lpips=lpips,
            covers=source.covers,
            device=device,
            progress=step,
            **terms,
        )
    trace, moved = trace_path(written.id, ledger.folder), source.displacement
    return Encoded(out, written, trace, tuple(warnings), moved, _broken(written, ledger), ledger.standing(owners))


def stream_for(seed: int | None) -> randomness.Stream:
    return randomness.SecureStream() if seed is None else randomness.SeededStream(seed)


def chosen_target(mu: float | None, tau: float | None, calibration: Calibration | None = None) -> Target | None:
    if mu is not None and tau is not None:
        raise ArgumentError(f"mu = {mu:g} (certified) and tau = {tau:g} (Theorem 2) cannot be given together")
    if calibration is not None and tau is None:
        raise ArgumentError(f"calibration = {calibration} says how tau is met, and tau is not given")
    if tau is not None:
        return Tau(tau, calibration or "spectral")
    return None if mu is None else Mu(mu)


def configured(name: str, given: dict[str, object]) -> Scheme[Encoder]:
    """The scheme of that name with the settings that were given; one that it does not have is refused."""
    kind: Any = catalogue.encoder(name)
    fields = {"images_per_row" if field.name == "k" else field.name: field.name for field in dataclasses.fields(kind)}
    settings = {option: value for option, value in given.items() if value is not None}
    if unknown := sorted(settings.keys() - fields.keys()):
        raise ArgumentError(f"{unknown[0]} = {settings[unknown[0]]}: the encoder {name} has no such setting")
    made: Scheme[Encoder] = kind(**{fields[option]: value for option, value in settings.items()})
    return made


def measured(
    images: Images,
    loaded: Loaded,
    taus: list[float],
    alpha: float | None = None,
    normalisation: Normalisation | None = None,
    *,
    stream: randomness.Stream,
    watch: Watch = unwatched,
) -> list[Displacement]:
    """How far image noise moves the features of images, for each τ."""
    with watch("displacement", displacements.work(len(images), len(taus))) as step:
        return displacements.measure(
            images,
            loaded,
            taus,
            alpha=PAPER_ALPHA if alpha is None else alpha,
            normalisation=normalisation or "imagenet",
            stream=stream,
            progress=step,
        )


def displacement_fact(far: Displacement | None, public: Images | None) -> Fact | None:
    """As a calibration takes it; it is public where it was measured on public images."""
    return None if far is None else Fact(far.radius, "private" if public is None else "public")


@dataclass(frozen=True)
class Source:
    """The rows to encode, and what is known of them. clip: the bound of a projection."""

    rows: Images | Features | Projected
    public: Images | Features | None = None
    clip: Fact | None = None
    assets: dict[str, str] = dataclasses.field(default_factory=dict)
    displacement: Displacement | None = None
    notes: list[Note] = dataclasses.field(default_factory=list)
    covers: Patches | None = None


@dataclass(frozen=True)
class PatchesAsked:
    """The public patches that are mixed in, as they are asked for; None: as many, or as varied, as by default."""

    """What is asked of public patches, where it is."""

    count: int | None
    keypoints: int | None
    c2: float | None = None

    def source(self, images: Images, public: Images, stream: randomness.Stream, watch: Watch) -> Source:
        """Images, with the patches of public images that they are mixed with."""
        calibrations.check_apart(images, public)
        count = PATCHES if self.count is None else self.count
        least = KEYPOINTS if self.keypoints is None else self.keypoints
        covers = cut_patches(public, images, count=count, keypoints=least, stream=stream, watch=watch)
        flat = [note("instahide-flat-covers", keypoints=least, least=KEYPOINTS)] if least < KEYPOINTS else []
        return Source(images, covers=covers, notes=flat)


def _featured(
    images: Images,
    public: Images | None,
    features: FeatureOptions,
    extractor: Extractor,
    target: Target | None,
    alpha: float | None,
    normalisation: Normalisation | None,
    stream: randomness.Stream,
) -> Source:
    loaded, far = features.load(extractor), None
    if isinstance(target, Tau) and target.calibration == "displacement":
        moved = images if public is None else public
        drawn = stream.fork("displacement")
        (far,) = measured(moved, loaded, [target.value], alpha, normalisation, stream=drawn, watch=features.watch)
    rows = features.of(images, loaded)
    known = None if public is None else features.of(public, loaded)
    return Source(rows, known, assets={"features": loaded.digest}, displacement=far)


def check_public(
    scheme: Scheme[Encoder],
    target: Target | None,
    clip: float | None,
    public: DataSpec | None,
    cut: PatchesAsked,
    *,
    pixels: bool,
) -> None:
    """What public data and a clip norm are for; what does not go together is refused. pixels: rows are images."""
    if (scheme.public_use is None and public is not None) or (not scheme.needs_facts and clip is not None):
        raise ArgumentError(f"clip and public are for noise, and the encoder {scheme.name} adds none")
    covers = scheme.public_use == "covers" and public is not None
    if covers and not pixels:
        raise ArgumentError(f"public = {public}: the encoder {scheme.name} mixes public images into images only")
    for name, value in (("patches", cut.count), ("keypoints", cut.keypoints), ("c2", cut.c2)):
        if value is not None and not covers:
            raise ArgumentError(f"{name} = {value:g} is for rows that public images are mixed into: give public")
    images = getattr(scheme, "k", None)
    if covers and images is not None and images <= PRIVATE:
        raise ArgumentError(
            f"images_per_row must be {PRIVATE + 1} or more with public images, of which two are private, got {images}"
        )
    if target is None and clip is not None:
        raise ArgumentError(f"clip = {clip:g} is for mu and tau: nothing else clips records")


def _chosen_features(
    backbone: str | None,
    stage: str | None,
    mirror: bool,
    projection: Path | str | None,
    target: Target | None,
    normalisation: Normalisation | None,
    clip: float | None,
    public: DataSpec | None,
) -> Extractor | None:
    """Which features are encoded, if any; what does not go together is refused."""
    for name, given in (("clip", clip), ("public", public), ("backbone", backbone)):
        if projection is not None and given is not None:
            raise ArgumentError(f"{name} must be left out: the projection brings its own network and clip norm")
    extractor = chosen_extractor(backbone, stage, mirror)
    moved = isinstance(target, Tau) and target.calibration == "displacement"
    if moved and extractor is None:
        raise ArgumentError("calibration = displacement is of features: name a backbone")
    if normalisation is not None and not moved:
        raise ArgumentError(f"normalisation = {normalisation} is for calibration = displacement")
    if extractor is not None and isinstance(target, Mu) and clip is None and public is None:
        raise MissingFactError(calibrations.UNBOUNDED)  # before features are computed
    return extractor


def _broken(written: Envelope, ledger: Ledger) -> BrokenCycles | None:
    """What dropped rows did to the pairing; None where none were dropped, or records were not mixed in pairs."""
    settings = written.settings
    if not isinstance(settings, RecordSettings) or settings.screened is None:
        return None
    trace = load_trace(written.id, written.rows, ledger.folder)
    if trace is None or trace.kept is None or trace.partner.shape[1] != 1:
        return None
    return broken_cycles(trace.partner[:, 0], trace.kept)
