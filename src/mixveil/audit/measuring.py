"""From an attack's guess to figures, by the truth."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from mixveil.audit import ceilings, self_test
from mixveil.audit.ceilings import FPR
from mixveil.audit.figures import Figure, Subject, finite
from mixveil.audit.ground_truth import GroundTruth
from mixveil.audit.metrics import detection
from mixveil.audit.metrics.catalogue import METRICS
from mixveil.core.types import Attack, Guess
from mixveil.data import similarity
from mixveil.features.lpips import Lpips

_ROC_CANDIDATES = 1000
_MEAN_OF = 5000


class Measured(NamedTuple):
    """What comes of one guess.

    Attributes:
        figures: All of them.
        images: (n, …) the guess at records, within their range.
        pictures: (n, c, h, w) the guess at the images behind features, in [0, 1].
        curve: The ROC of links or scores.
    """

    figures: list[Figure]
    images: Tensor | None = None
    pictures: Tensor | None = None
    curve: detection.Roc | None = None


class Measure:
    """Measures guesses against the truth. perceptual: the LPIPS to measure, of images, on at most `perceived`
    records."""

    def __init__(self, truth: GroundTruth, perceptual: Sequence[Lpips], perceived: int) -> None:
        self.truth = truth
        looks = truth.pixels.dim() == 4 and truth.pixels.shape[1] in (1, 3)
        self.perceptual = tuple(perceptual) if looks else ()
        self.perceived = torch.linspace(0, truth.n - 1, min(truth.n, perceived)).long()
        self.bounds = {bound.of: bound for bound in ceilings.membership_bounds(truth.view.releases)}
        self._equal = self_test.same(truth.pixels)

    def __call__(self, attack: Attack, guess: Guess) -> Measured:
        """All that a guess says."""
        figures: list[Figure] = []
        images = pictures = curve = None
        if guess.images is not None:
            images = self.truth.clamped(guess.images)
            figures += self.reconstruction(attack, guess.images)
        if guess.links is not None:
            figures.append(self.identified(attack, guess.links))
            curve = self._link_curve(guess.links)
        if guess.scores is not None:
            members, others = guess.scores[: self.truth.n], guess.scores[self.truth.n :]
            figures += self.membership(attack, members, others, "record")
            curve = detection.roc(members, others)
        if guess.labels is not None:
            figures += self._labels(attack, guess.labels)
        if guess.pictures is not None and self.truth.pictures is not None and self.truth.view.pictures is not None:
            pictures = guess.pictures.clamp(0, 1).float()
            figures += self._pictures(attack, self.truth.pictures, pictures)
        return Measured(figures, images, pictures, curve)

    def reconstruction(self, attack: Attack, guess: Tensor, known: float | None = None) -> list[Figure]:
        """Of guessed records (n, …). known: the share of records that the attacker has already."""
        name = attack.name if known is None else f"{attack.name}-{100 * known:.0f}"
        truth, raw, nothing = (self.truth.scaled(x) for x in (self.truth.pixels, guess, self.truth.know_nothing))
        guess, bound = raw.clamp(0, 1), ceilings.error_bound(self.truth, attack.bound)
        figures = []
        for metric in METRICS:
            if metric.compares != "records" or (metric.needs == "images" and truth.dim() != 4):
                continue
            values, blank = metric.measure(truth, guess), metric.measure(truth, nothing)
            bounded = bound if metric.ceiling is not None else None
            figures.append(
                Figure(
                    attack=name,
                    kind=attack.kind,
                    metric=metric.code,
                    mean=finite(values.mean()),
                    std=finite(values.std()),
                    worst=finite(metric.worst(values)),
                    know_nothing=finite(blank.mean()),
                    ceiling=None if bounded is None else bounded.ceiling,
                    beaten=bounded is not None and float(metric.measure(truth, raw).mean()) < bounded.least,
                    known=known,
                )
            )
        return figures + self._perceived(attack, name, truth, guess, known)

    @cached_property
    def _unseen(self) -> dict[str, float]:
        """LPIPS of knowing nothing, by network: the same for all attacks."""
        truth, nothing = (self.truth.scaled(x)[self.perceived] for x in (self.truth.pixels, self.truth.know_nothing))
        return {lpips.name: finite(lpips(truth, nothing).mean()) for lpips in self.perceptual}

    def _perceived(self, attack: Attack, name: str, truth: Tensor, guess: Tensor, known: float | None) -> list[Figure]:
        """LPIPS of some records, the smaller the more alike."""
        figures = []
        for lpips in self.perceptual:
            values = lpips(truth[self.perceived], guess[self.perceived])
            mean, std, worst = finite(values.mean()), finite(values.std()), finite(values.amin())
            nothing = self._unseen[lpips.name]
            figures.append(Figure(name, attack.kind, lpips.name, mean, std, worst, nothing, known=known))
        return figures

    def _pictures(self, attack: Attack, truth: Tensor, guess: Tensor) -> list[Figure]:
        """Of guessed pictures (n, c, h, w) in [0, 1], beside those of guessing the mean of public pictures."""
        public = self.truth.view.pictures
        if public is None:
            return []
        mean = public.take(torch.arange(min(_MEAN_OF, len(public)))).x.mean(0).expand_as(truth)
        figures = []
        for metric in METRICS:
            if metric.compares == "pictures":
                values, blank = metric.measure(truth, guess), metric.measure(truth, mean)
                worst, nothing = finite(metric.worst(values)), finite(blank.mean())
                mean_, std = finite(values.mean()), finite(values.std())
                figures.append(Figure(attack.name, attack.kind, metric.code, mean_, std, worst, nothing))
        return figures

    def identified(self, attack: Attack, links: Tensor) -> Figure:
        """The better of two readings, by the truth: each candidate's likeliest row, or the likeliest assignment of
        candidates to rows. A row of an equal record is right as well."""
        n, equal = self.truth.n, self._equal
        readings = []
        for rows, chance in ((links.argmax(1), 1 / n), (assigned(links), 1 / len(links))):
            rows = rows[:n]
            hits = int(((rows >= 0) & equal[rows.clamp(min=0)].eq(equal)).sum())
            interval = detection.clopper_pearson(hits, n)
            readings.append(
                Figure(attack.name, attack.kind, "row-identified", hits / n, know_nothing=chance, interval=interval)
            )
        return max(readings, key=lambda figure: figure.mean)

    def better(self, attack: Attack, one: Guess, other: Guess) -> bool:
        """Whether a guess is the better one, by the truth: an owner should see the worst of both."""
        if one.images is not None and other.images is not None:
            errors = [
                float(similarity.mse(self.truth.pixels, self.truth.clamped(guess)).mean())
                for guess in (one.images, other.images)
            ]
            return errors[0] < errors[1]
        if one.links is not None and other.links is not None:
            return self.identified(attack, one.links).mean > self.identified(attack, other.links).mean
        return False

    def _link_curve(self, links: Tensor) -> detection.Roc:
        """Of records and their own rows, against records and all other rows."""
        some = links[: min(self.truth.n, _ROC_CANDIDATES)]
        own = torch.zeros(some.shape, dtype=torch.bool).fill_diagonal_(True)
        return detection.roc(some[own], some[~own])

    def membership(self, attack: Attack, members: Tensor, others: Tensor, of: Subject) -> list[Figure]:
        """Of the scores of members and of strangers."""
        tpr = detection.tpr_at_fpr(members, others, FPR)
        interval = detection.clopper_pearson(round(tpr * len(members)), len(members))
        bound, auc = self.bounds.get(of), detection.auc(members, others)
        name, kind, ceiling = attack.name, attack.kind, None if bound is None else bound.tpr
        return [
            Figure(name, kind, "auc", auc, know_nothing=0.5, of=of),
            Figure(name, kind, "tpr-at-1-fpr", tpr, know_nothing=FPR, ceiling=ceiling, interval=interval, of=of),
            *([] if bound is None else ceilings.above_bound(attack, members, others, bound)),
        ]

    def _labels(self, attack: Attack, guessed: Tensor) -> list[Figure]:
        """Each record is in two rows, so every class is shown exactly twice as often as it occurs."""
        labels, classes = self.truth.labels, len(self.truth.records.classes)
        right = float(((guessed == labels[:, None]).any(1)).double().mean())
        counts = labels.bincount(minlength=classes)
        likely = float(counts.sort(descending=True).values[:2].sum()) / self.truth.n
        figures = [Figure(attack.name, attack.kind, "own-class-shown", right, know_nothing=likely)]
        if len(self.truth.records) == self.truth.n:
            shown = guessed.flatten().bincount(minlength=classes) / 2
            exact = float(shown.eq(counts).double().mean())
            figures.append(Figure(attack.name, attack.kind, "class-counts-shown", exact))
        return figures


def assigned(links: Tensor) -> Tensor:
    """(c,) the row of each candidate, −1 for none, so that no two have the same: the likeliest assignment of all."""
    from scipy.optimize import linear_sum_assignment

    rows = torch.full((len(links),), -1)
    chosen, taken = linear_sum_assignment(links.numpy(), maximize=True)
    rows[torch.from_numpy(chosen)] = torch.from_numpy(taken)
    return rows
