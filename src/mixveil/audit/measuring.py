"""From an attack's guess to figures, by the truth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import torch
from torch import Tensor

from mixveil.audit import ceilings, self_test
from mixveil.audit.ceilings import FPR
from mixveil.audit.figures import Figure, Subject, finite
from mixveil.audit.ground_truth import GroundTruth
from mixveil.audit.metrics import counts, detection, signs, sources
from mixveil.audit.metrics.catalogue import BY_CODE, METRICS, Metric
from mixveil.core.types import Attack, Guess, Rows
from mixveil.data import similarity
from mixveil.features.lpips import Lpips

_ROC_CANDIDATES = 1000
_MEAN_OF = 5000


class Measure:
    """Measures guesses against the truth, and keeps what comes of them. perceptual: the LPIPS to measure, of images, on
    at most `perceived` records.

    Attributes:
        figures: Of all attacks so far.
        images: (n, …) guesses at records, within their range, by attack.
        pictures: (n, c, h, w) guesses at the images behind features, in [0, 1], by attack.
        curves: ROCs of links or scores, by attack.
    """

    def __init__(self, truth: GroundTruth, perceptual: Sequence[Lpips], perceived: int) -> None:
        self.truth = truth
        looks = truth.pixels.dim() == 4 and truth.pixels.shape[1] in (1, 3)
        self.perceptual = tuple(perceptual) if looks else ()
        self.perceived = torch.linspace(0, truth.n - 1, min(truth.n, perceived)).long()
        self.bounds = {bound.of: bound for bound in ceilings.membership_bounds(truth.view.releases)}
        self._equal = self_test.same(truth.pixels)
        self.figures: list[Figure] = []
        self.images: dict[str, Tensor] = {}
        self.pictures: dict[str, Tensor] = {}
        self.curves: dict[str, detection.Roc] = {}

    def __call__(self, attack: Attack, guess: Guess) -> None:
        """All that a guess says."""
        if guess.images is not None:
            self.reconstruction(attack, guess.images)
        if guess.links is not None:
            self.figures.append(self.identified(attack, guess.links))
            self.curves[attack.name] = self._link_curve(guess.links)
        if guess.rows is not None:
            hits = self._right(guess.rows.cpu())
            self.figures.append(counted(attack, "row-identified", hits, self.truth.n, 1 / self.truth.n))
        if guess.scores is not None:
            self.membership(attack, guess.scores[: self.truth.n], guess.scores[self.truth.n :], "record")
        if guess.labels is not None:
            self.figures += self._labels(attack, guess.labels)
        if guess.counts is not None and attack.kind == "labels":  # others may have been told the labels
            shown = self.truth.labels.bincount(minlength=len(self.truth.records.classes))
            hits, chance = round(counts.found(shown, guess.counts)), counts.of_guessing(shown) / self.truth.n
            self.figures.append(counted(attack, "labels-found", hits, self.truth.n, chance))
        if guess.signs is not None and self.truth.signs is not None:
            values, nothing = signs.found(self.truth.signs, guess.signs), signs.of_one_sign(self.truth.signs)
            self.figures.append(_averaged(attack.name, attack, BY_CODE["signs-found"], values, nothing))
        self.figures += self._sources(attack, guess)
        if guess.pictures is not None and self.truth.pictures is not None and self.truth.view.pictures is not None:
            self.pictures[attack.name] = guess.pictures.clamp(0, 1).float()
            self._pictures(attack, self.truth.pictures, self.pictures[attack.name], self.truth.view.pictures)

    def reconstruction(self, attack: Attack, guess: Tensor, known: float | None = None) -> None:
        """Of guessed records (n, …). known: the share of records that the attacker has already."""
        name = attack.name if known is None else f"{attack.name}-{100 * known:.0f}"
        guess = self.truth.nearer(guess)
        self.images[name] = self.truth.clamped(guess)
        truth, raw, nothing = (self.truth.scaled(x) for x in (self.truth.pixels, guess, self.truth.know_nothing))
        guess, bound = raw.clamp(0, 1), ceilings.error_bound(self.truth, attack.bound)
        for metric in METRICS:
            if metric.compares != "records" or (metric.needs == "images" and truth.dim() != 4):
                continue
            if metric.centred and bool((truth == truth[:1]).all()):  # of one record nothing is left without its mean
                continue
            values, blank = metric.measure(truth, guess), finite(metric.measure(truth, nothing).mean())
            bounded = bound if metric.ceiling is not None else None
            beaten = bounded is not None and float(metric.measure(truth, raw).mean()) < bounded.least
            figure = _averaged(name, attack, metric, values, blank)
            ceiling = None if bounded is None else bounded.ceiling
            self.figures.append(replace(figure, ceiling=ceiling, beaten=beaten, known=known))
        for lpips in self.perceptual:
            values = lpips(truth[self.perceived], guess[self.perceived])
            figure = _averaged(name, attack, BY_CODE[lpips.name], values, self._unseen[lpips.name])
            self.figures.append(replace(figure, known=known))

    @cached_property
    def _unseen(self) -> dict[str, float]:
        """LPIPS of knowing nothing, by network: the same for all attacks."""
        truth, nothing = (self.truth.scaled(x)[self.perceived] for x in (self.truth.pixels, self.truth.know_nothing))
        return {lpips.name: finite(lpips(truth, nothing).mean()) for lpips in self.perceptual}

    def _pictures(self, attack: Attack, truth: Tensor, guess: Tensor, public: Rows) -> None:
        """Of guessed pictures (n, c, h, w) in [0, 1], beside those of guessing the mean of public pictures."""
        mean = public.take(torch.arange(min(_MEAN_OF, len(public)))).x.mean(0).expand_as(truth)
        for metric in METRICS:
            if metric.compares == "pictures":
                values, blank = metric.measure(truth, guess), finite(metric.measure(truth, mean).mean())
                self.figures.append(_averaged(attack.name, attack, metric, values, blank))

    def identified(self, attack: Attack, links: Tensor) -> Figure:
        """The better of two readings, by the truth: each candidate's likeliest row, or the likeliest assignment of
        candidates to rows. A row of an equal record is right as well."""
        n, best = self.truth.n, (-1, 0.0)
        for rows, chance in ((links.argmax(1), 1 / n), (assigned(links), 1 / len(links))):
            best = max(best, (self._right(rows), chance), key=lambda reading: reading[0])
        return counted(attack, "row-identified", best[0], n, best[1])

    def _right(self, rows: Tensor) -> int:
        """How many records are said to be in their own row, or in one of an equal record. rows: (c,) −1 for none."""
        rows, equal = rows[: self.truth.n], self._equal
        return int(((rows >= 0) & equal[rows.clamp(min=0)].eq(equal)).sum())

    def better(self, attack: Attack, one: Guess, other: Guess) -> bool:
        """Whether a guess is the better one, by the truth: an owner should see the worst of both."""
        if one.images is not None and other.images is not None:
            guesses = (self.truth.clamped(self.truth.nearer(guess)) for guess in (one.images, other.images))
            mine, others = (float(similarity.mse(self.truth.pixels, guess).mean()) for guess in guesses)
            return mine < others
        if one.links is not None and other.links is not None:
            return self.identified(attack, one.links).mean > self.identified(attack, other.links).mean
        if one.rows is not None and other.rows is not None:
            return self._right(one.rows.cpu()) > self._right(other.rows.cpu())
        return False

    def _link_curve(self, links: Tensor) -> detection.Roc:
        """Of records and their own rows, against records and all other rows."""
        some = links[: min(self.truth.n, _ROC_CANDIDATES)]
        own = torch.zeros(some.shape, dtype=torch.bool).fill_diagonal_(True)
        return detection.roc(some[own], some[~own])

    def membership(self, attack: Attack, members: Tensor, others: Tensor, of: Subject) -> None:
        """Of the scores of members and of strangers."""
        self.curves[attack.name] = detection.roc(members, others)
        tpr = detection.tpr_at_fpr(members, others, FPR)
        interval = detection.clopper_pearson(round(tpr * len(members)), len(members))
        bound, auc = self.bounds.get(of), detection.auc(members, others)
        name, kind, ceiling = attack.name, attack.kind, None if bound is None else bound.tpr
        self.figures += [
            Figure(name, kind, "auc", auc, know_nothing=0.5, of=of),
            Figure(name, kind, "tpr-at-1-fpr", tpr, know_nothing=FPR, ceiling=ceiling, interval=interval, of=of),
            *([] if bound is None else ceilings.above_bound(attack, members, others, bound)),
        ]

    def _sources(self, attack: Attack, guess: Guess) -> list[Figure]:
        """Of what rows are made of: their records, their covers, which share a source, whether they are told apart."""
        name, kind, view, figures = attack.name, attack.kind, self.truth.view, []
        if guess.covers is not None and self.truth.covered is not None:
            named = sources.covers(guess.covers, self.truth.covered)
            figures.append(counted(attack, "cover-found", named.hits, self.truth.n, named.chance))
            figures.append(Figure(name, kind, "cover-rank", named.rank, know_nothing=0.5))
        if guess.sources is not None and view.traces is not None:
            rows = sources.named(guess.sources, view.traces, self.truth.n)
            figures += [] if rows is None else [counted(attack, "sources-found", rows.hits, rows.rows, rows.chance)]
        pairs = None if guess.alike is None or view.traces is None else sources.shared(guess.alike, view.traces)
        if pairs is not None:
            figures.append(counted(attack, "nearest-shares-source", pairs.nearest, pairs.rows, pairs.chance))
            figures.append(Figure(name, kind, "shared-source-auc", pairs.auc, know_nothing=0.5))
        if guess.apart is not None:
            figures.append(
                counted(attack, "told-apart", sources.told_apart(guess.apart), len(guess.apart), sources.LEVEL)
            )
        return figures

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


def _averaged(name: str, attack: Attack, metric: Metric, values: Tensor, nothing: float) -> Figure:
    """The figure of (n,) values; one value has no deviation. nothing: what knowing nothing gets."""
    mean, worst = finite(values.mean()), finite(metric.worst(values))
    std = None if len(values) < 2 else finite(values.std())
    return Figure(name, attack.kind, metric.code, mean, std, worst, nothing)


def counted(attack: Attack, metric: str, hits: int, trials: int, chance: float) -> Figure:
    """The share of hits, with its interval."""
    interval = detection.clopper_pearson(hits, trials)
    return Figure(attack.name, attack.kind, metric, hits / trials, know_nothing=chance, interval=interval)


def assigned(links: Tensor) -> Tensor:
    """(c,) the row of each candidate, −1 for none, so that no two have the same: the likeliest assignment of all."""
    from scipy.optimize import linear_sum_assignment

    rows = torch.full((len(links),), -1)
    chosen, taken = linear_sum_assignment(links.numpy(), maximize=True)
    rows[torch.from_numpy(chosen)] = torch.from_numpy(taken)
    return rows
