"""Drop the rows of a release that show too much of what they are made of, before anything is written.

Which rows are missing then depends on the private records: that is no post-processing, and voids a certificate.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast, get_args

import torch
from torch import Tensor

from mixveil.core import checks, strict_json
from mixveil.core.errors import ArgumentError, PrivateFactError
from mixveil.core.types import Dataset, Encoder, Trace
from mixveil.data import similarity

Metric = Literal["lpips", "ssim", "snr"]
Measure = Callable[[Tensor, Tensor], Tensor]
"""Truth and guess, images (n, c, h, w) in [0, 1], to (n,) figures."""

NOT_CERTIFIED = (
    "mu cannot be certified with a screen: the rows that it drops depend on the private records, so that it is no "
    "post-processing of the noise"
)
NOT_PROTECTED = "label_epsilon cannot be promised with a screen: the rows that it drops tell of the records' classes"
MASKED = "random signs hide rows from such a comparison, not from an attacker, who takes absolute values"
NOT_PICTURES = "a screen compares pictures: it is for pixels, not for features or projections"


@dataclass(frozen=True)
class Screen:
    """Drops a row whose picture is nearer to one of its sources than the threshold: LPIPS below it, SSIM or SNR (in dB,
    of pixels in [0, 1], the mean not taken away) above it."""

    metric: Metric
    threshold: float

    def __post_init__(self) -> None:
        if self.metric not in get_args(Metric):
            raise ArgumentError(f"the metric must be one of {', '.join(get_args(Metric))}, got {self.metric!r}")
        if self.metric == "lpips":
            checks.finite_positive("the threshold of lpips", self.threshold)
        elif self.metric == "ssim" and not -1 < self.threshold < 1:
            raise ArgumentError(f"the threshold of ssim must be in (-1, 1), got {self.threshold}")
        elif not math.isfinite(self.threshold):
            raise ArgumentError(f"the threshold of {self.metric} must be finite, got {self.threshold}")

    @classmethod
    def parse(cls, text: str) -> Screen:
        """From `METRIC:THRESHOLD`.

        >>> str(Screen.parse("lpips:0.7"))
        'lpips:0.7'
        """
        metric, _, threshold = text.partition(":")
        try:
            value = float(threshold)
        except ValueError:
            raise ArgumentError(f"a screen is METRIC:THRESHOLD, such as lpips:0.7, got {text!r:.60}") from None
        return cls(cast("Metric", metric), value)

    def distance(self, folder: Path | None) -> Measure | None:
        """LPIPS by VGG16, where this screen needs it. folder: of its weights."""
        if self.metric != "lpips":
            return None
        from mixveil.features.lpips import load

        return load("vgg", folder)

    def check_promises(self, certified: bool, label_epsilon: float | None) -> None:
        """Refuse to drop rows where that would make a promise false."""
        if certified:
            promise, instead = "mu", "Use tau, or leave out screen"
        elif label_epsilon is not None:
            promise, instead = "label_epsilon", "Leave out one of them"
        else:
            return
        raise PrivateFactError(
            f"screen = {self} cannot be used with {promise}: which rows it drops depends on the private records. "
            f"{instead}"
        )

    def __str__(self) -> str:
        return f"{self.metric}:{self.threshold!r}".removesuffix(".0")

    def keeps(self, values: Tensor) -> Tensor:
        """(m,) whether rows with these figures may stay; a row whose figure is not a number may not."""
        return values >= self.threshold if self.metric == "lpips" else values <= self.threshold


@dataclass(frozen=True)
class Screened:
    """What a release says of its screen, and the number of records that rows were made of."""

    screen: Screen
    records: int

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        return {"metric": self.screen.metric, "threshold": self.screen.threshold, "records": self.records}

    @classmethod
    def read(cls, item: Any) -> Screened:
        """From JSON that others wrote."""
        stated = strict_json.mapping("screened", item)
        strict_json.only("screened", stated, {"metric", "threshold", "records"})
        metric = cast("Metric", strict_json.text("screened.metric", stated["metric"]))
        screen = Screen(metric, strict_json.number("screened.threshold", stated["threshold"]))
        return cls(screen, strict_json.count("screened.records", stated["records"]))


class Screening:
    """Screens the rows of one release as they are made. kept: (n,) whether each row is kept; true until it is compared.

    lpips: the distance, where the screen needs it (`features.lpips.load`)."""

    def __init__(self, screen: Screen, rows: Dataset, encoder: Encoder, lpips: Measure | None = None) -> None:
        checks.enough_rows(len(rows))
        if len(rows.shape) != 3 or not math.isfinite(rows.high - rows.low):
            raise ArgumentError(NOT_PICTURES)
        if encoder.masked:
            raise ArgumentError(f"screen = {screen}: {MASKED}")
        known: dict[Metric, Measure | None] = {"lpips": lpips, "ssim": similarity.ssim, "snr": similarity.snr_db}
        measure = known[screen.metric]
        if measure is None:
            raise ArgumentError(f"screen = {screen} needs the distance lpips, and none was given")
        self.screen, self.rows, self.encoder, self.measure = screen, rows, encoder, measure
        self.kept = torch.ones(len(rows), dtype=torch.bool)
        two = self._scaled(rows.take(torch.arange(2)).x)
        if (shape := measure(two, two).shape) != (2,):  # what it cannot do must show before anything is entered
            raise ArgumentError(f"{screen.metric} of two images must be two figures, got the shape {tuple(shape)}")

    def look(self, index: Tensor, trace: Trace, x: Tensor) -> Tensor:
        """(m,) whether these rows may stay, which `kept` remembers. x: (m, …) as they would be stored. Each is compared
        with all of its sources, its own record and its partners."""
        step = 1.0 if self.encoder.step is None else self.encoder.step
        seen = self.encoder.restore(x.flatten(1).double() * step).view(x.shape)
        picture = self._scaled(seen).clamp_(0, 1)
        may = torch.ones(len(index), dtype=torch.bool)
        for source in (index, *trace.partner[index].T):
            if int(source.max()) >= len(self.rows):  # public images
                continue
            may &= self.screen.keeps(self.measure(self._scaled(self.rows.take(source).x), picture))
        self.kept[index] = may
        return may

    def _scaled(self, x: Tensor) -> Tensor:
        return (x.double() - self.rows.low) / (self.rows.high - self.rows.low)
