"""Every metric, once: what it compares, which way is worse, and where it is shown. Captions are in `core/wording`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from mixveil.data import similarity


@dataclass(frozen=True)
class Metric:
    """What a guess is measured by.

    Attributes:
        code: Its name in results; its caption is `metric-…`, the title of its curves `chart-…` (`core/wording`).
        worse: Which figures reveal more.
        per: `sample`: one figure a record, of which mean, deviation and worst are kept. `release`: one in all.
        compares: What of a guess is compared with the truth by `function`; None where that takes more than the two.
        function: From truth and guess, (n, …) in [0, 1], to (n,); `centred`: both without the truth's mean first.
        share: A share of records or rows, shown in per cent; `members`: of members, which are records or units.
        main: The one figure of its attacks in short tables; `charted`: a sweep draws it; `brief`: a terminal shows it.
        ceiling: The code of what its ceiling is called, where it can have one.
    """

    code: str
    worse: Literal["higher", "lower"]
    per: Literal["sample", "release"] = "sample"
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

    def measure(self, truth: Tensor, guess: Tensor) -> Tensor:
        """(n,) figures of guesses (n, …)."""
        if self.function is None:
            raise TypeError(f"{self.code} does not compare guesses with the truth one by one")
        if self.centred:
            centre = truth.mean(0)
            truth, guess = truth - centre, guess - centre
        return self.function(truth, guess)


METRICS = (
    Metric("mse", "lower", "sample", "records", similarity.mse, charted=True, ceiling="ceiling-linear"),
    Metric("snr-db", "higher", "sample", "records", similarity.snr_db, centred=True, main=True, charted=True),
    Metric("psnr-db", "higher", "sample", "records", similarity.psnr_db, brief=False),
    Metric("ssim", "higher", "sample", "records", similarity.ssim, needs="images", charted=True),
    Metric("cosine", "higher", "sample", "records", similarity.cosine, centred=True, brief=False),
    Metric("lpips-alex", "lower", needs="lpips", charted=True),
    Metric("lpips-vgg", "lower", needs="lpips", charted=True),
    Metric("row-identified", "higher", "release", share=True, main=True, charted=True),
    Metric("pair-found", "higher", "release", share=True, main=True, charted=True),
    Metric("auc", "higher", "release", members=True),
    Metric(
        "tpr-at-1-fpr", "higher", "release", share=True, members=True, main=True, charted=True, ceiling="ceiling-gdp"
    ),
    Metric("tpr-above-bound", "higher", "release", share=True, members=True),
    Metric("own-class-shown", "higher", "release", share=True),
    Metric("class-counts-shown", "higher", "release", share=True),
    Metric("picture-mse", "lower", "sample", "pictures", similarity.mse),
    Metric("picture-snr-db", "higher", "sample", "pictures", similarity.snr_db, centred=True),
    Metric("picture-ssim", "higher", "sample", "pictures", similarity.ssim),
)
BY_CODE = {metric.code: metric for metric in METRICS}
