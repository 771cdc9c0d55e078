"""Every metric, once: what it compares, which way is worse, and where it is shown. Captions are in `core/wording`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from mixveil.audit.metrics import signs
from mixveil.data import similarity


@dataclass(frozen=True)
class Metric:
    """What a guess is measured by.

    Attributes:
        code: Its name in results; its caption is `metric-…`, the title of its curves `chart-…` (`core/wording`).
        worse: Which figures reveal more.
        compares: What of a guess is compared with the truth by `function`; None where that takes more than the two.
        function: From truth and guess, (n, …) in [0, 1], to (n,); `centred`: both without the truth's mean first.
        share: A share of records or rows, shown in per cent; `members`: of members, which are records or units.
        main: The one figure of its attacks in short tables; `charted`: a sweep draws it; `brief`: a terminal shows it.
        ceiling: The code of what its ceiling is called, where it can have one.
    """

    code: str
    worse: Literal["higher", "lower"]
    compares: Literal["records", "pictures"] | None = None
    function: Callable[[Tensor, Tensor], Tensor] | None = None
    centred: bool = False
    needs: Literal["images", "lpips"] | None = None
    share: bool = False
    members: bool = False
    main: bool = False
    charted: bool = False
    brief: bool = True
    ceiling: str | None = None

    def worst(self, values: Tensor) -> Tensor:
        """The most revealing of (n,) figures."""
        return values.amax() if self.worse == "higher" else values.amin()

    def gained(self, mean: float, nothing: float) -> float:
        """How much is gone of what guessing leaves, by a mean figure and that of guessing: of the error, also where
        figures are in decibels; else of the way to 1, by a cosine as the share of the energy that it explains.

        >>> round(BY_CODE["snr-db"].gained(3.0, 0.0), 3), BY_CODE["mse"].gained(1.0, 4.0), BY_CODE["auc"].gained(1, 0.5)
        (0.499, 0.75, 1.0)
        """
        if self.code.endswith("-db"):
            return 1 - 10 ** ((nothing - mean) / 10)
        if self.worse == "lower":
            return 1 - mean / nothing if nothing > 0 else 0.0
        if self.code == "cosine":
            mean, nothing = mean * abs(mean), nothing * abs(nothing)
        return (mean - nothing) / (1 - nothing) if nothing < 1 else 0.0

    def measure(self, truth: Tensor, guess: Tensor, centre: Tensor | None = None) -> Tensor:
        """(n,) figures of guesses (n, …). centre: the mean of the truth, where these are a part of it; None: all."""
        if self.function is None:
            raise TypeError(f"{self.code} does not compare guesses with the truth one by one")
        if self.centred:
            centre = truth.mean(0) if centre is None else centre
            truth, guess = truth - centre, guess - centre
        return self.function(truth, guess)


METRICS = (
    Metric("mse", "lower", "records", similarity.mse, charted=True, ceiling="ceiling-linear"),
    Metric("snr-db", "higher", "records", similarity.snr_db, centred=True, main=True, charted=True),
    Metric("psnr-db", "higher", "records", similarity.psnr_db, brief=False),
    Metric("ssim", "higher", "records", similarity.ssim, needs="images", charted=True),
    Metric("cosine", "higher", "records", similarity.cosine, centred=True, brief=False),
    Metric("lpips-alex", "lower", needs="lpips", charted=True),
    Metric("lpips-vgg", "lower", needs="lpips", charted=True),
    Metric("row-identified", "higher", share=True, main=True, charted=True),
    Metric("pair-found", "higher", share=True, main=True, charted=True),
    Metric("signs-found", "higher", function=signs.found, share=True, main=True, charted=True),
    Metric("sources-found", "higher", share=True, main=True, charted=True),
    Metric("cover-found", "higher", share=True, main=True, charted=True),
    Metric("cover-rank", "lower", brief=False),
    Metric("nearest-shares-source", "higher", share=True, main=True, charted=True),
    Metric("shared-source-auc", "higher", brief=False),
    Metric("told-apart", "higher", share=True, main=True, charted=True),
    Metric("auc", "higher", members=True),
    Metric("tpr-at-1-fpr", "higher", share=True, members=True, main=True, charted=True, ceiling="ceiling-gdp"),
    Metric("tpr-above-bound", "higher", share=True, members=True),
    Metric("labels-found", "higher", share=True, main=True),
    Metric("own-class-shown", "higher", share=True),
    Metric("class-counts-shown", "higher", share=True),
    Metric("picture-mse", "lower", "pictures", similarity.mse),
    Metric("picture-snr-db", "higher", "pictures", similarity.snr_db, centred=True),
    Metric("picture-ssim", "higher", "pictures", similarity.ssim),
)
BY_CODE = {metric.code: metric for metric in METRICS}
