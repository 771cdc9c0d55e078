"""`mixveil encode`: from labelled images to a release on disk."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from mixveil.cli import _common, _screening, _spending
from mixveil.cli._common import (
    Alpha,
    AsJson,
    Backbone,
    Cache,
    Classes,
    Clip,
    Data,
    DataDir,
    Depth,
    Grey,
    Mirror,
    Noise,
    ProjectionFile,
    Public,
    Seed,
    Size,
    Stage,
    Unit,
    escape,
    out,
    print_json,
)
from mixveil.cli._displacement import Normalisation, as_fact, displacements
from mixveil.cli._release import show, summary
from mixveil.cli._screening import ScreenOption
from mixveil.cli._spending import Budget, LabelBudget, LabelEpsilon, To
from mixveil.core.errors import ArgumentError, MismatchError, MissingFactError

if TYPE_CHECKING:
    from mixveil.core.types import Encoder, Scheme, Target
    from mixveil.data.opening import Images
    from mixveil.features.cache import Features
    from mixveil.features.displacement import Displacement
    from mixveil.features.extractor import Extractor
    from mixveil.features.projection import Projected

Calibration = Annotated[
    Literal["spectral", "theorem", "energy", "displacement"] | None,
    typer.Option(
        "--calibration",
        help="How --tau is met; energy and displacement are the paper's and do not keep it. Default: spectral.",
        show_default=False,
    ),
]
MuOption = Annotated[
    float | None, typer.Option("--mu", help="Certified: every record (every unit, with --unit) μ-GDP, labels excluded.")
]
TauOption = Annotated[float | None, typer.Option("--tau", help="Theorem 2's directional SNR, in (0, 1].")]
EncoderOption = Annotated[
    str,
    typer.Option(
        "--encoder", help="singular; gaussian (no pairing); or mixup, laplace or identity, which promise nothing."
    ),
]
K = Annotated[int | None, typer.Option("--k", help="Images in each row of mixup. Default: 2.", show_default=False)]
Party = Annotated[str, typer.Option("--party", help="The party's name, as the manifest shows it.")]


def encode(
    data: Data,
    out_dir: Annotated[Path, typer.Option("--out", help="The folder to make. It must not exist.")],
    mu: MuOption = None,
    tau: TauOption = None,
    calibration: Calibration = None,
    encoder: EncoderOption = "singular",
    alpha: Alpha = None,
    noise: Noise = None,
    k: K = None,
    clip: Clip = None,
    public: Public = None,
    party: Party = "party",
    to: To = None,
    budget: Budget = None,
    label_epsilon: LabelEpsilon = None,
    label_budget: LabelBudget = None,
    screen: ScreenOption = None,
    seed: Seed = None,
    data_dir: DataDir = None,
    size: Size = None,
    grey: Grey = False,
    depth: Depth = None,
    unit: Unit = None,
    classes: Classes = None,
    projection: ProjectionFile = None,
    backbone: Backbone = None,
    stage: Stage = None,
    mirror: Mirror = False,
    normalisation: Normalisation = None,
    cache: Cache = None,
    as_json: AsJson = False,
) -> None:
    """Encode DATA once, as a release that may leave. Pairing and weights stay in your state folder, and the release is
    entered in your ledger before it is made (`mixveil ledger`).

    [bold]--mu[/] asks for a certified release: noise from public facts only. [bold]--tau[/] asks for Theorem 2's
    directional SNR: noise from the private data's own moments, not certified; with [bold]--screen[/], rows that show
    too much all the same are dropped.
    """
    _common.look_at_projection(projection)
    from mixveil.encoders import calibration as calibrations
    from mixveil.releases.records import check_output, write_release
    from mixveil.releases.traces import trace_path

    check_output(out_dir, party)
    target = _target(mu, tau, calibration)
    screens = _screening.chosen(screen, mu=mu, label_epsilon=label_epsilon, backbone=backbone, projection=projection)
    lpips = _screening.distance(screens, data_dir)
    scheme = _configured(encoder, {"alpha": alpha, "noise": noise, "k": k})
    if not scheme.needs_facts and (clip is not None or public is not None):
        raise ArgumentError(f"--clip and --public are for noise, and the encoder {encoder} adds none")
    if target is None and clip is not None:
        raise ArgumentError("--clip is for --mu and --tau: nothing else clips records")
    extractor = _extractor(backbone, stage, mirror, projection, target, normalisation, given=(clip, public))
    stream = _common.stream_for(seed)
    images, known = _common.open_both(
        data, public, data_dir=data_dir, size=size, grey=grey, depth=depth, unit=unit, classes=classes
    )
    rows: Images | Projected | Features = images
    others: Images | Features | None = known
    measured: list[Displacement] = []
    assets: dict[str, str] = {}
    told: list[str] = []
    owners = _spending.owners_of(images)
    if projection is not None:
        promised = mu is not None or label_epsilon is not None
        rows, digest = _common.open_projected(
            images, projection, data_dir, cache, certified=promised, seeded=seed is not None
        )
        clip, assets = rows.projection.clip, {"projection": digest}
        if rows.projection.classes and rows.classes != rows.projection.classes:
            raise MismatchError("these data do not have the classes of the statistics, in the same order")
        told = _spending.earlier_statistics(rows.projection, party)
    if extractor is not None:
        loaded = _common.load_extractor(extractor, data_dir)
        if calibration == "displacement" and tau is not None:
            moved = images if known is None else known
            measured = displacements(moved, loaded, [tau], alpha, normalisation, stream.fork("displacement"))
        rows, assets = _common.features_of(images, loaded, cache), {"features": loaded.digest}
        others = None if known is None else _common.features_of(known, loaded, cache)
    if mu is None:  # with μ they are refused
        told += _common.shared_images(images, known)
    warnings = rows.warnings() + told + _spending.copies(owners) + _spending.shown_labels(owners, label_epsilon)
    ready, guarantees, more = calibrations.calibrate(
        scheme,
        target,
        rows,
        public=others,
        clip=clip,
        displacement=as_fact(measured, private=known is None),
        stream=stream.fork("facts"),
        watch=_common.progress,
    )
    warnings += more
    if not as_json:  # before anything is entered or written
        for text in warnings:
            _common.warn(text)
    with _spending.counted(), _common.progress("encoding", len(rows)) as step:
        written = write_release(
            out_dir,
            rows,
            ready,
            guarantees,
            party=party,
            stream=stream.fork("release"),
            assets=assets,
            extractor=extractor,
            label_epsilon=label_epsilon,
            screen=screens,
            lpips=lpips,
            recipient=to,
            budget=budget,
            label_budget=label_budget,
            owners=owners,
            progress=step,
        )
    trace = trace_path(written.id)
    if as_json:
        whole = {"release": str(out_dir), **summary(written), "trace": str(trace), "warnings": warnings}
        shown = dataclasses.asdict(measured[0]) if measured else None
        screening = _screening.summary(written)
        print_json({**whole, "displacement": shown, "screening": screening, "spent": _spending.summary(owners)})
        return
    show(out_dir, written)
    _screening.show(written)
    for far in measured:
        out.print(
            f"For your eyes only: image noise of radius {far.image_radius:.4g} moved features by {far.radius:.4g} on "
            f"average ({far.images:,} images, {far.clamped:.1%} of pixel values clamped); their mean norm is "
            f"{far.feature_norm:.4g}.",
            soft_wrap=True,
        )
    out.print(_spending.sentence(owners), soft_wrap=True)
    out.print(f"What an audit needs stays with you: {escape(str(trace))}", soft_wrap=True)


def _extractor(
    backbone: str | None,
    stage: str | None,
    mirror: bool,
    projection: Path | None,
    target: Target | None,
    normalisation: Literal["imagenet", "table7"] | None,
    *,
    given: tuple[float | None, str | None],
) -> Extractor | None:
    """Which features are encoded, if any; refused is what does not go together. given: --clip and --public."""
    from mixveil.core.types import Mu, Tau
    from mixveil.encoders.calibration import UNBOUNDED

    if projection is not None and given != (None, None):
        raise ArgumentError("--projection brings its own public clip norm: leave --clip and --public out")
    if projection is not None and backbone is not None:
        raise ArgumentError("--projection brings its own network: leave --backbone out")
    extractor = _common.chosen_extractor(backbone, stage, mirror)
    moved = isinstance(target, Tau) and target.calibration == "displacement"
    if moved and extractor is None:
        raise ArgumentError("--calibration displacement is of features: name a network with --backbone")
    if normalisation is not None and not moved:
        raise ArgumentError(f"--normalisation {normalisation} is for --calibration displacement")
    if extractor is not None and isinstance(target, Mu) and given == (None, None):
        raise MissingFactError(UNBOUNDED)  # before features are computed
    return extractor


def _target(
    mu: float | None,
    tau: float | None,
    calibration: Literal["spectral", "theorem", "energy", "displacement"] | None,
) -> Target | None:
    from mixveil.core.types import Mu, Tau

    if mu is not None and tau is not None:
        raise ArgumentError("--mu (certified) or --tau (Theorem 2): one of the two")
    if calibration is not None and tau is None:
        raise ArgumentError(f"--calibration {calibration} says how --tau is met, and there is no --tau")
    if tau is not None:
        return Tau(tau, calibration or "spectral")
    return None if mu is None else Mu(mu)


def _configured(name: str, given: dict[str, object]) -> Scheme[Encoder]:
    """The encoder of that name with the settings that were given; one that it does not have is refused."""
    from mixveil.encoders.catalogue import encoder

    kind: Any = encoder(name)
    fields = {field.name for field in dataclasses.fields(kind)}
    settings = {option: value for option, value in given.items() if value is not None}
    if unknown := settings.keys() - fields:
        raise ArgumentError(f"the encoder {name} has no --{', --'.join(sorted(unknown))}")
    made: Scheme[Encoder] = kind(**settings)
    return made
