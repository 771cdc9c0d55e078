"""From an attack's guess to figures, by the truth."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property

import torch
from torch import Tensor

from mixveil.audit import ceilings
from mixveil.audit.best_guesses import BestGuesses
from mixveil.audit.ceilings import FPR
from mixveil.audit.figures import Figure, Subject, finite
from mixveil.audit.ground_truth import GroundTruth
from mixveil.audit.metrics import counts, detection, signs, sources
from mixveil.audit.metrics.catalogue import BY_CODE, METRICS, Metric
from mixveil.audit.perceptual import Perceptual
from mixveil.audit.thumbnails import small
from mixveil.audit.ties import Ties
from mixveil.core.randomness import SeededStream
from mixveil.core.types import Attack, Guess, Rows
from mixveil.data import similarity

_ROC_CANDIDATES = 1000
_BLOCK_VALUES = 1 << 18  # of records that are measured at a time: they stay in a processor's cache
_MEAN_OF = 5000
_MOST_DB = 100.0  # of a record: 8 bits show no more than 60, and float32 no more than 150


class Measure:
    """Measures guesses against the truth, and keeps what comes of them. perceptual: the LPIPS to measure, of images.

    Attributes:
        figures: Of all attacks so far.
        images: (n, …) uint8 guesses at records by attack: 0 and 255 are the ends of their range. They are shown, large
            pictures smaller than they are, and all that is measured is measured before.
        errors: (n,) the mean squared errors of these guesses at their full size, in units of the range squared.
        pictures: (n, c, h, w) guesses at the images behind features, in [0, 1], by attack.
        best: The record that each of them guesses best.
        curves: ROCs of links or scores, by attack.
    """

    def __init__(self, truth: GroundTruth, perceptual: Perceptual) -> None:
        self.truth, self.perceptual = truth, perceptual
        self.bounds = {bound.of: bound for bound in ceilings.membership_bounds(truth.view.releases)}
        self._ties = Ties.of(truth.own, truth.pixels)
        self.figures: list[Figure] = []
        self.images: dict[str, Tensor] = {}
        self.errors: dict[str, Tensor] = {}
        self.pictures: dict[str, Tensor] = {}
        self.best = BestGuesses(truth)
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
            self.figures.append(counted(attack, "row-identified", hits, self.truth.n, self._ties.chance))
        if guess.scores is not None:
            self.membership(attack, guess.scores[: self.truth.n], guess.scores[self.truth.n :], "record")
        if guess.labels is not None:
            self.figures += self._labels(attack, guess.labels)
        if guess.counts is not None and attack.kind == "labels":  # others may have been told the labels
            shown = self.truth.labels.bincount(minlength=len(self.truth.records.classes))
            hits, chance = round(counts.found(shown, guess.counts)), counts.of_guessing(shown) / self.truth.n
            self.figures.append(counted(attack, "labels-found", hits, self.truth.n, chance))
        if guess.signs is not None and self.truth.signs is not None:
            self._signs(attack, self.truth.signs, guess.signs)
        self.figures += self._sources(attack, guess)
        if guess.pictures is not None and self.truth.pictures is not None and self.truth.view.pictures is not None:
            self.pictures[attack.name] = guess.pictures.clamp(0, 1).float()
            self._pictures(attack, self.truth.pictures, self.pictures[attack.name], self.truth.view.pictures)

    def reconstruction(self, attack: Attack, guess: Tensor, known: float | None = None) -> None:
        """Of guessed records (n, …). known: the share of records that the attacker has already."""
        name = attack.name if known is None else f"{attack.name}-{100 * known:.0f}"
        guess, bound = self.truth.nearer(guess), ceilings.error_bound(self.truth, attack.bound)
        self._keep(name, guess)
        measured = self._compared(guess)
        unclamped = float(self._errors(guess).mean()) if bound is not None else 0.0
        errors, nothing = measured[BY_CODE["mse"]], self._blanks[BY_CODE["mse"]]
        if attack.kind != "prior":
            self.best.add(name, errors, nothing, self.best.dealt(guess))
        for metric in measured:
            figure = self._measured(name, attack, metric, measured)
            if metric.ceiling is not None and bound is not None:
                figure = replace(figure, ceiling=bound.ceiling, beaten=unclamped < bound.least)
            self.figures.append(replace(figure, known=known))
        for look in self.perceptual.looks(self.truth):
            values = look.apart(self.truth.scaled(guess[look.rows]).clamp(0, 1))
            figure = _averaged(name, attack, BY_CODE[look.name], values, look.nothing)
            self.figures.append(replace(figure, known=known, records=len(values)))

    def _keep(self, name: str, guess: Tensor) -> None:
        """Guessed records (n, …) as they are shown, and their errors."""
        images, errors = [], []
        for truth, part in zip(
            torch.split(self.truth.pixels, self._block), torch.split(guess, self._block), strict=True
        ):
            shown = _in_8_bits(self.truth.scaled(part))
            errors.append(similarity.mse(self.truth.scaled(truth), shown.double() / 255))
            images.append(small(shown))
        self.images[name], self.errors[name] = torch.cat(images), torch.cat(errors)

    def _compared(self, guess: Tensor) -> dict[Metric, Tensor]:
        """(n,) figures of guessed records (n, …), by metric: a few records at a time, as they are in double precision
        here."""
        found: dict[Metric, list[Tensor]] = {metric: [] for metric in self._metrics}
        for truth, part in zip(
            torch.split(self.truth.pixels, self._block), torch.split(guess, self._block), strict=True
        ):
            one, other = self.truth.scaled(truth), self.truth.scaled(part).clamp(0, 1)
            for metric, values in found.items():
                values.append(metric.measure(one, other, self._centre))
        return {metric: torch.cat(values) for metric, values in found.items()}

    def _measured(self, name: str, attack: Attack, metric: Metric, measured: dict[Metric, Tensor]) -> Figure:
        """The figure of a metric of (n,) figures by metric. Decibels of all together, where those of one would not
        leave a mean any meaning."""
        values, blank, error = measured[metric], self._blanks[metric], BY_CODE["mse"]
        figure = _averaged(name, attack, metric, values, finite(blank.mean()))
        if not metric.code.endswith("-db") or not (_wild(values) or _wild(blank)):
            return figure
        energy = self._energy if metric.centred else 1.0
        mean, nothing = (_decibels(energy, float(errors[error].mean())) for errors in (measured, self._blanks))
        return replace(figure, mean=mean, std=None, know_nothing=nothing)

    @cached_property
    def _energy(self) -> float:
        """The mean square of how values of the records differ from their mean, in units of the range squared."""
        parts = torch.split(self.truth.pixels, self._block)
        total = sum(float((self.truth.scaled(part) - self._centre).square().sum()) for part in parts)
        return total / self.truth.pixels.numel()

    def _errors(self, guess: Tensor) -> Tensor:
        """(n,) mean squared errors of guesses as they are, beyond the range too."""
        both = zip(torch.split(self.truth.pixels, self._block), torch.split(guess, self._block), strict=True)
        return torch.cat([similarity.mse(self.truth.scaled(one), self.truth.scaled(other)) for one, other in both])

    @cached_property
    def _metrics(self) -> list[Metric]:
        """Those that compare such records. Of records that are all the same nothing is left without their mean."""
        truth = self.truth.pixels
        differ = not bool((truth == truth[:1]).all())
        fit = (metric for metric in METRICS if metric.compares == "records" and (differ or not metric.centred))
        return [metric for metric in fit if metric.needs != "images" or truth.dim() == 4]

    @cached_property
    def _block(self) -> int:
        """How many records are measured at a time."""
        return max(1, _BLOCK_VALUES // max(1, self.truth.pixels[0].numel()))

    @cached_property
    def _centre(self) -> Tensor:
        """(…) the mean of the records, in units of their range."""
        total = sum(self.truth.scaled(part).sum(0) for part in torch.split(self.truth.pixels, self._block))
        return torch.as_tensor(total) / self.truth.n

    @cached_property
    def _blanks(self) -> dict[Metric, Tensor]:
        """(n,) what knowing nothing gets: the same for all attacks."""
        return self._compared(self.truth.know_nothing)

    def _signs(self, attack: Attack, truth: Tensor, guess: Tensor) -> None:
        """Of guessed signs (n, d)."""
        values, nothing = signs.found(truth, guess), signs.by_one_sign(truth)
        figure = _averaged(attack.name, attack, BY_CODE["signs-found"], values, finite(nothing.mean()))
        beside = 1.96 * (figure.std or 0.0) / math.sqrt(len(values))
        interval = None if figure.std is None else (max(0.0, figure.mean - beside), min(1.0, figure.mean + beside))
        self.figures.append(replace(figure, interval=interval))
        self.best.add(attack.name, 1 - values, 1 - nothing, 1 - signs.found(truth[self.best.others], guess))

    def _pictures(self, attack: Attack, truth: Tensor, guess: Tensor, public: Rows) -> None:
        """Of guessed pictures (n, c, h, w) in [0, 1], beside those of guessing the mean of public pictures."""
        mean = public.take(torch.arange(min(_MEAN_OF, len(public)))).x.mean(0).expand_as(truth)
        for metric in METRICS:
            if metric.compares == "pictures":
                values, blank = metric.measure(truth, guess), metric.measure(truth, mean)
                self.figures.append(_averaged(attack.name, attack, metric, values, finite(blank.mean())))
                if metric.code == "picture-mse":
                    self.best.add(attack.name, values, blank, metric.measure(truth[self.best.others], guess))

    def identified(self, attack: Attack, links: Tensor) -> Figure:
        """The better of two readings, by the truth: each candidate's likeliest row, or the likeliest assignment of
        candidates to rows. The row of a copy is right as well; `Ties` has what is right of rows that fit as well."""
        n, chance = self.truth.n, self._ties.chance
        likeliest, one_to_one = self._ties.likeliest(links[:n]), self._right(assigned(links))
        best = max((likeliest, chance), (one_to_one, chance * n / len(links)), key=lambda reading: reading[0])
        return counted(attack, "row-identified", best[0], n, best[1])

    def _right(self, rows: Tensor) -> float:
        """How many records are said to be in their own row, or in that of a copy. rows: (c,) −1 for none."""
        return self._ties.right(rows[: self.truth.n])

    def better(self, attack: Attack, one: Guess, other: Guess) -> bool:
        """Whether a guess is the better one, by the truth: an owner should see the worst of both."""
        if one.images is not None and other.images is not None:
            mine, others = (self._error_within(self.truth.nearer(guess)) for guess in (one.images, other.images))
            return mine < others
        if one.links is not None and other.links is not None:
            return self.identified(attack, one.links).mean > self.identified(attack, other.links).mean
        if one.rows is not None and other.rows is not None:
            return self._right(one.rows.cpu()) > self._right(other.rows.cpu())
        return False

    def _error_within(self, guess: Tensor) -> float:
        """The mean squared error of guesses (n, …) at records, within their range."""
        both = zip(torch.split(self.truth.pixels, self._block), torch.split(guess, self._block), strict=True)
        return float(torch.cat([similarity.mse(one, self.truth.clamped(other)) for one, other in both]).mean())

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
        wide = detection.auc_interval(auc, min(len(members), len(others)))  # groups in the place of one unit are one
        name, kind, ceiling = attack.name, attack.kind, None if bound is None else bound.tpr
        self.figures += [
            Figure(name, kind, "auc", auc, know_nothing=0.5, interval=wide, of=of),
            Figure(name, kind, "tpr-at-1-fpr", tpr, know_nothing=FPR, ceiling=ceiling, interval=interval, of=of),
            *([] if bound is None else ceilings.above_bound(attack, members, others, bound)),
        ]

    def _sources(self, attack: Attack, guess: Guess) -> list[Figure]:
        """Of what rows are made of: their records, their covers, which share a source, whether they are told apart."""
        name, kind, view, figures = attack.name, attack.kind, self.truth.view, []
        if guess.covers is not None and self.truth.covered is not None:
            named = sources.covers(guess.covers, self.truth.covered)
            figures.append(counted(attack, "cover-found", named.hits, self.truth.n, named.chance))
            figures.append(Figure(name, kind, "cover-rank", named.rank, know_nothing=0.5, interval=named.interval))
        if guess.sources is not None and view.traces is not None:
            rows = sources.named(guess.sources, view.traces, self.truth.n)
            figures += [] if rows is None else [counted(attack, "sources-found", rows.hits, rows.rows, rows.chance)]
        pairs = None if guess.alike is None or view.traces is None else sources.shared(guess.alike, view.traces)
        if pairs is not None:
            figures.append(counted(attack, "nearest-shares-source", pairs.nearest, pairs.rows, pairs.chance))
            figures.append(
                Figure(name, kind, "shared-source-auc", pairs.auc, know_nothing=0.5, interval=pairs.interval)
            )
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


def _in_8_bits(scaled: Tensor) -> Tensor:
    """Values of [0, 1] in 256 steps."""
    return (scaled.clamp(0, 1) * 255).round().to(torch.uint8)


def _wild(decibels: Tensor) -> bool:
    """Whether the figure of one record is infinite, or so large that it is made by rounding."""
    return not bool((decibels.abs() < _MOST_DB).all())


def _decibels(energy: float, error: float) -> float:
    """10 log₁₀ of energy over error, as `finite` has it.

    >>> _decibels(1.0, 0.1), _decibels(1.0, 0.0)
    (10.0, 999.0)
    """
    return finite(10 * torch.log10(torch.tensor(energy, dtype=torch.float64) / error))


def _averaged(name: str, attack: Attack, metric: Metric, values: Tensor, nothing: float) -> Figure:
    """The figure of (n,) values; one value has no deviation. nothing: what knowing nothing gets."""
    mean, worst = finite(values.mean()), finite(metric.worst(values))
    std = None if len(values) < 2 else finite(values.std())
    return Figure(name, attack.kind, metric.code, mean, std, worst, nothing)


def counted(attack: Attack, metric: str, hits: float, trials: int, chance: float) -> Figure:
    """The share of hits, with its interval. One among t that an attack cannot tell apart is a hit of 1/t."""
    interval = detection.clopper_pearson(hits, trials)
    return Figure(attack.name, attack.kind, metric, hits / trials, know_nothing=chance, interval=interval)


def assigned(links: Tensor) -> Tensor:
    """(c,) the row of each candidate, −1 for none, so that no two have the same: the likeliest assignment of all. Of
    equally likely ones a random one: the first would favour the truth, whose order candidates and rows have."""
    from scipy.optimize import linear_sum_assignment

    rows, order = torch.full((len(links),), -1), SeededStream(0).permutation(links.shape[1])
    chosen, taken = linear_sum_assignment(links[:, order].numpy(), maximize=True)
    rows[torch.from_numpy(chosen)] = order[torch.from_numpy(taken)]
    return rows
