"""How far image noise moves features, as `calibrate` and `encode` measure and show it."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from mixveil.cli import _common
from mixveil.cli._common import number, out

if TYPE_CHECKING:
    from mixveil.core.randomness import Stream
    from mixveil.core.types import Fact
    from mixveil.data.opening import Images
    from mixveil.encoders.calibration_report import Figures
    from mixveil.features.cache import Loaded
    from mixveil.features.displacement import Displacement

Normalisation = Annotated[
    Literal["imagenet", "table7"] | None,
    typer.Option(
        "--normalisation",
        help="Of the image noise behind `displacement`: imagenet (default), or the paper's table7 for the data set.",
        show_default=False,
    ),
]


def displacements(
    images: Images,
    loaded: Loaded,
    taus: list[float],
    alpha: float | None,
    normalisation: Literal["imagenet", "table7"] | None,
    stream: Stream,
) -> list[Displacement]:
    """How far image noise moves the features of images, for each τ."""
    from mixveil.features import displacement

    with _common.progress("displacement", displacement.work(len(images), len(taus))) as step:
        return displacement.measure(
            images,
            loaded,
            taus,
            alpha=_alpha(alpha),
            normalisation=normalisation or "imagenet",
            stream=stream,
            progress=step,
        )


def as_fact(moved: list[Displacement], *, private: bool) -> Fact | None:
    """The displacement for the τ that was asked for, the last one, with its origin."""
    from mixveil.core.types import Fact

    return Fact(moved[-1].radius, "private" if private else "public") if moved else None


def compared(tau: float, alpha: float | None) -> list[float]:
    """τ = 1 beside the τ that was asked for, where 1 needs any noise at all."""
    from mixveil.theory.snr import amplification

    return [1.0, tau] if tau != 1 and amplification(_alpha(alpha)) > 1 else [tau]


def side_by_side(moved: list[Displacement], found: list[Figures]) -> list[dict[str, float]]:
    """The displacements, each with the directional SNR that the records' features realise under it."""
    from mixveil.theory.snr import directional_snr

    return [
        {
            **asdict(item),
            "realised_snr": directional_snr(shown.lambda_max, item.radius * shown.sigma / shown.radius, shown.alpha),
        }
        for shown in found
        if shown.calibration == "displacement"
        for item in moved
    ]


def show(side: list[dict[str, float]], alpha: float | None) -> None:
    """What the image noise of each τ does to features, and why that is nearly the same."""
    from rich.table import Column, Table

    from mixveil.encoders.calibration import times
    from mixveil.theory.snr import amplification

    table = Table(Column("displacement", no_wrap=True), *(f"τ = {item['tau']:g}" for item in side))
    for name, key in (
        ("image noise radius", "image_radius"),
        ("pixel values clamped", "clamped"),
        ("feature noise radius", "radius"),
        ("mean feature norm", "feature_norm"),
        ("realised sup SNR", "realised_snr"),
    ):
        table.add_row(name, *(f"{item[key]:.1%}" if key == "clamped" else number(item[key]) for item in side))
    out.print(table)
    first, last = side[0], side[-1]
    if len(side) > 1:
        stronger, larger = (last[key] / first[key] for key in ("image_radius", "radius"))
        grown = (
            f"image noise that is {times(stronger)} as strong makes the features' radius {larger:.3g} times as large"
        )
        if last["clamped"] > 0.5 and larger < 0.5 * stronger:
            out.print(
                f"Here {grown}: beyond the clamp a pixel is black or white whatever the noise, so the displacement "
                f"saturates and the radius hardly depends on τ.",
                soft_wrap=True,
            )
        else:
            out.print(f"Here {grown}.", soft_wrap=True)
    out.print(
        f"The features' realised SNR is A λ/(λ + σ²) = {last['realised_snr']:.4g}; without any noise it would be "
        f"A = (α/(1 − α))² = {amplification(_alpha(alpha)):.4g}.",
        soft_wrap=True,
    )


def _alpha(alpha: float | None) -> float:
    from mixveil.encoders.singular import PAPER_ALPHA

    return PAPER_ALPHA if alpha is None else alpha
