"""Runs the attacks of an audit and measures them. It alone sees the truth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from mixveil.attacks.catalogue import attacks as known_attacks
from mixveil.attacks.shared.training import Workshop
from mixveil.audit import images_behind_features, known_records, self_test
from mixveil.audit.figures import Promised, Ran, Row, Whose, finite
from mixveil.audit.groups import GROUPS, UnitView, groups
from mixveil.audit.metrics import detection
from mixveil.audit.truth import covered_in_pairs
from mixveil.core.errors import ArgumentError, TrainingError
from mixveil.core.randomness import Stream
from mixveil.core.types import Attack, Dataset, Guess, Release, View
from mixveil.data import similarity
from mixveil.data.row_views import Subset
from mixveil.features.lpips import Lpips
from mixveil.theory import bayes, gdp
from mixveil.theory.moments import Moments

FPR = 0.01
_PAIRS = {"candidates", "candidate_labels"}
_ROC_CANDIDATES = 1000
_MEAN_OF = 5000
_GRID_VALUES = 512
_TRIED = 150  # steps of a training that only shows whether there is one
_LINEAR = {"lmmse", "lmmse-row", "lowpass", "lowpass-row", *known_records.SHARES}


NOT_IMAGES = "it needs images"
NOT_FEATURES = "it needs a release of features, and the images behind them and behind public ones"
"""Why an attack is not meant for such releases at all."""

NO_UNITS = "the release promises nothing to units of several rows"

_OF_IMAGES = {"lowpass", "lowpass-row", "linear", "unet", "unet-strong"}


class Judge:
    """Runs attacks and measures them against the records. view: with candidates, the records first and then `others`,
    which are in no release; pairs: how many rows the attacks on pairs are asked about, and among how many
    candidates; perceptual: the LPIPS to measure, on at most `perceived` records; units: what the attack on whole units
    sees, or why there is nothing to see."""

    def __init__(
        self,
        view: View,
        records: Dataset,
        found: Moments,
        others: int,
        stream: Stream,
        pairs: tuple[int, int],
        perceptual: Sequence[Lpips] = (),
        perceived: int = 0,
        units: UnitView | str = NO_UNITS,
    ) -> None:
        self.n = len(view.releases[0].payload)
        self.truth = Subset(records, torch.arange(self.n))
        batch = self.truth.take(torch.arange(self.n))
        self.pixels, self.labels = batch.x, batch.y.argmax(1)
        self.view, self.records, self.moments, self.others, self.stream = view, records, found, others, stream
        self.unaided = replace(view, public=None)
        self.pair_rows, self.pair_candidates = pairs
        looks = self.pixels.dim() == 4 and self.pixels.shape[1] in (1, 3)
        self.perceptual = tuple(perceptual) if looks else ()
        self.perceived = torch.linspace(0, self.n - 1, min(self.n, perceived)).long()
        self.unseen: dict[str, float] = {}
        self.of = self.n  # rows of the whole release, of which these are a part
        self.images: dict[str, Tensor] = {}
        self.portraits: dict[str, Tensor] = {}
        self.curves: dict[str, detection.Roc] = {}
        self.same = self_test.same(self.pixels)
        self.nothing = self._know_nothing()
        self.units = units
        self.promised = {promise.of: promise for promise in promised(view.releases)}
        self.clipped = any(_clips(release, self.pixels) for release in view.releases)

    def _know_nothing(self) -> Tensor:
        """The better of two guesses that use no row: the mean that an attacker has, and the middle of the range."""
        middle = torch.full_like(self.pixels, (self.truth.low + self.truth.high) / 2, dtype=torch.float64)
        try:
            mean = known_attacks()["prior"]()(self.view, stream=self.stream.fork("prior")).images
        except ArgumentError:  # what the attacker knows does not vary
            return middle
        if mean is None:
            return middle
        mean = mean.clamp(self.truth.low, self.truth.high)
        errors = [float(similarity.mse(self.pixels, guess).mean()) for guess in (mean, middle)]
        return mean if errors[0] <= errors[1] else middle

    def run(self, name: str, attack: Attack, rows: list[Row]) -> Ran:
        try:
            return self._run(name, attack, rows)
        except ArgumentError as error:
            return Ran(name, attack.threat, "skipped", str(error))
        except TrainingError as error:
            return Ran(name, attack.threat, "broken", str(error))

    def cannot(self, name: str, attack: Attack) -> str:
        """Why the attack cannot be run on these releases; nothing if it can."""
        if "units" in attack.needs:
            return self.units if isinstance(self.units, str) else self.units.unusable()
        missing = [field for field in sorted(attack.needs - {"known"}) if getattr(self.view, field) is None]
        if "pictures" in missing and "original" not in self.portraits:
            return NOT_FEATURES
        return f"it needs {', '.join(missing)}, and there is none" if missing else self._unusable(name, attack)

    def _run(self, name: str, attack: Attack, rows: list[Row]) -> Ran:
        if why := self.cannot(name, attack):
            return Ran(name, attack.threat, "skipped", why)
        if "units" in attack.needs and isinstance(self.units, UnitView):
            return self._on_units(name, attack, self.units, rows)
        if why := self._broken(name, attack):
            return Ran(name, attack.threat, "broken", why)
        if attack.needs <= _PAIRS and "candidates" in attack.needs:
            rows.append(self._pairs(name, attack))
            return Ran(name, attack.threat, "ran")
        if name == "membership" and (why := self._told_by_looks(attack)):
            return Ran(name, attack.threat, "skipped", why)
        if "known" in attack.needs:
            rows += self._known(name)
            return Ran(name, attack.threat, "ran")
        guess = attack(self.view, stream=self.stream.fork(name))
        if not all(bool(x.isfinite().all()) for x in (guess.images, guess.pictures) if x is not None):
            return Ran(name, attack.threat, "broken", "what it says is no number")
        why = ""
        learns = "traces" in attack.needs or name == "average"
        if self.view.public is not None and learns and "public" not in attack.needs:
            alone = attack(self.unaided, stream=self.stream.fork(name))
            if self._better(alone, guess):
                guess, why = alone, "what records are like it learned from the release: better than from public data"
        rows += self._measured(name, guess)
        return Ran(name, attack.threat, "ran", why)

    def _on_units(self, name: str, attack: Attack, seen: UnitView, rows: list[Row]) -> Ran:
        """Are whole units told from strangers in their places?"""
        if why := self_test.fails_on_bare_units(attack, seen, self.stream.fork("bare")):
            return Ran(name, attack.threat, "broken", why)
        if why := self._units_told_by_looks(attack, seen):
            return Ran(name, attack.threat, "skipped", why)
        asked = groups(seen.whose, len(seen.whose), seen.strangers, self.stream.fork("groups"), GROUPS)
        scores = attack(replace(seen.view, units=asked.units), stream=self.stream.fork(name)).scores
        if scores is None or not bool(scores.isfinite().all()):
            return Ran(name, attack.threat, "broken", "what it says is no number")
        rows += self._membership(name, scores[: asked.members], scores[asked.members :], "unit")
        return Ran(name, attack.threat, "ran")

    def _known(self, name: str) -> list[Row]:
        """With a tenth, half and nine tenths of the records known, each guessed while it is not; by the best of up to
        three priors: from public data, from the release, and from the known records themselves."""
        guesses = known_records.guessed(self.view, self.pixels, self.stream.fork(name))
        others = [] if self.view.public is None else [False]
        others += [True] if self.pixels[0].numel() <= known_records.TAUGHT_VALUES else []
        for taught in others:
            found = known_records.guessed(self.unaided, self.pixels, self.stream.fork(name), taught=taught)
            better = {share: self._better(Guess(found[share]), Guess(guesses[share])) for share in guesses}
            guesses = {share: found[share] if better[share] else guess for share, guess in guesses.items()}
        return [row for share, guess in guesses.items() for row in self._measured(share, Guess(guess))]

    def _unusable(self, name: str, attack: Attack) -> str:
        if name == "membership" and self.others < 100:
            return "it needs at least 100 images that are not in the release (public data)"
        if name in _OF_IMAGES and len(self.truth.shape) != 3:
            return NOT_IMAGES
        if name == "decoder":
            return self._undecodable()
        if name == "average" and any(release.label_epsilon is not None for release in self.view.releases):
            return "rows are in another order in every release, which this attacker does not know"
        if name == "grid" and self.view.releases[0].encoder.law == "sphere":
            return "noise on a sphere is not what it looks for; radius does"
        if name == "grid" and math.prod(self.truth.shape) < _GRID_VALUES:
            return f"rows of fewer than {_GRID_VALUES} values do not show it how their noise was drawn"
        if attack.needs <= _PAIRS and "candidates" in attack.needs and not len(self._askable()):
            return "no row is a pair of two classes whose trace is known"
        return ""

    def _undecodable(self) -> str:
        if "original" not in self.portraits or self.view.pictures is None:
            return NOT_FEATURES
        own, public = self.portraits["original"].shape[1:], self.view.pictures.take(torch.arange(1)).x.shape[1:]
        if own != public:
            return f"private images are {tuple(own)} and public ones {tuple(public)}: give --size or --grey"
        return ""

    def _broken(self, name: str, attack: Attack) -> str:
        """Why it shows nothing here: it fails even where there is no defence."""
        stream = self.stream.fork("bare")
        if name in ("prior", "labels"):
            return ""
        if attack.needs <= _PAIRS and "candidates" in attack.needs:
            return self_test.fails_on_bare_pairs(attack, self.view, self.truth, stream)
        others = self.pixels[:0] if self.view.candidates is None else self.view.candidates[self.n :]
        if hasattr(attack, "workshop"):
            brief: Any = attack
            watch = brief.workshop.watch
            attack = replace(brief, workshop=Workshop(most=_TRIED, watch=lambda text: watch(f"trying {text}")))
        return self_test.fails_on_bare_records(
            attack, self.view, self.truth, others, stream, self.portraits.get("original")
        )

    def _better(self, one: Guess, other: Guess) -> bool:
        """Whether a guess is the better one, by the truth: an owner should see the worst of both."""
        if one.images is not None and other.images is not None:
            errors = [
                float(similarity.mse(self.pixels, self._clamped(guess)).mean()) for guess in (one.images, other.images)
            ]
            return errors[0] < errors[1]
        if one.links is not None and other.links is not None:
            return self._identified(one.links).mean > self._identified(other.links).mean
        return False

    def _told_by_looks(self, attack: Attack) -> str:
        """Whether the attack tells the records from the strangers on a release that holds neither: then what it finds
        on the real one says nothing of membership."""
        if self.view.public is None or self.view.traces is None:
            return ""
        control = self._control(self.view, min(self.n, len(self.view.public)))
        scores = attack(control, stream=self.stream.fork("control")).scores
        return "" if scores is None else _look_different(scores[: self.n], scores[self.n :], self.others)

    def _units_told_by_looks(self, attack: Attack, seen: UnitView) -> str:
        """The same of units and of strangers in their places."""
        if seen.view.public is None:
            return ""
        rows = min(len(seen.whose), len(seen.view.public))
        asked = groups(seen.whose[:rows], len(seen.whose), seen.strangers, self.stream.fork("groups"))
        control = replace(self._control(seen.view, rows), units=asked.units)
        scores = attack(control, stream=self.stream.fork("control")).scores
        if scores is None:
            return ""
        return _look_different(scores[: asked.members], scores[asked.members :], asked.members)

    def _control(self, view: View, rows: int) -> View:
        """The same view of a release that holds public rows alone."""
        first = view.releases[0]
        part = Subset(view.public or self.truth, torch.arange(rows))
        release, plan = self_test.released(first, first.encoder, part, self.stream.fork("control"))
        return replace(view, releases=(release,), traces=(plan,))

    def _clamped(self, images: Tensor) -> Tensor:
        return images.clamp(self.truth.low, self.truth.high)

    def _measured(self, name: str, guess: Guess) -> list[Row]:
        found: list[Row] = []
        if guess.images is not None:
            self.images[name] = self._clamped(guess.images)
            found += self._reconstruction(name, guess.images)
        if guess.links is not None:
            found.append(self._identified(guess.links, name))
            self.curves[name] = self._link_curve(guess.links)
        if guess.scores is not None:
            found += self._membership(name, guess.scores[: self.n], guess.scores[self.n :], "record")
        if guess.labels is not None:
            found += self._labels(name, guess.labels)
        if guess.pictures is not None and self.view.pictures is not None and "original" in self.portraits:
            self.portraits[name] = guess.pictures.clamp(0, 1).float()
            some = torch.arange(min(_MEAN_OF, len(self.view.pictures)))
            nothing = self.view.pictures.take(some).x.mean(0)
            found += images_behind_features.compared(name, self.portraits["original"], self.portraits[name], nothing)
        return found

    def _reconstruction(self, name: str, guess: Tensor) -> list[Row]:
        span = self.truth.high - self.truth.low
        truth, raw, nothing = ((x.double() - self.truth.low) / span for x in (self.pixels, guess, self.nothing))
        guess, centre = raw.clamp(0, 1), truth.mean(0)
        risk, ceiling, beaten = self._least_error(name), None, False
        if risk is not None:
            ceiling = self.moments.average(risk) / span**2
            slack, share = _slack(risk, self.moments.eigenvalues), 1.0
            if self.of > self.n:  # the ceiling is of all records
                slack, share = slack + _chance(self.pixels), min(1.0, _energy(self.pixels) / self.moments.energy)
            least = (1 - slack) * share * ceiling
            beaten = float(similarity.mse(truth, raw).mean()) < least
        rows = []
        for metric, measure, best in (
            ("mse", similarity.mse, torch.amin),
            ("snr_db", lambda a, b: similarity.snr_db(a - centre, b - centre), torch.amax),
            ("psnr_db", similarity.psnr_db, torch.amax),
            ("ssim", similarity.ssim, torch.amax),
            ("cosine", lambda a, b: similarity.cosine(a - centre, b - centre), torch.amax),
        ):
            if metric == "ssim" and truth.dim() != 4:
                continue
            values, blank = measure(truth, guess), measure(truth, nothing)
            rows.append(
                Row(
                    attack=name,
                    metric=metric,
                    mean=finite(values.mean()),
                    std=finite(values.std()),
                    worst=finite(best(values, 0)),
                    know_nothing=finite(blank.mean()),
                    ceiling=ceiling if metric == "mse" else None,
                    beaten=metric == "mse" and beaten,
                )
            )
        return rows + self._perceived(name, truth, guess, nothing)

    def _perceived(self, name: str, truth: Tensor, guess: Tensor, nothing: Tensor) -> list[Row]:
        """LPIPS of some records, the smaller the more alike. Knowing nothing is measured once for all attacks."""
        truth, guess, nothing = (x[self.perceived] for x in (truth, guess, nothing))
        rows = []
        for lpips in self.perceptual:
            if lpips.name not in self.unseen:
                self.unseen[lpips.name] = finite(lpips(truth, nothing).mean())
            values = lpips(truth, guess)
            mean, std, worst = finite(values.mean()), finite(values.std()), finite(values.amin())
            rows.append(Row(name, lpips.name, mean, std, worst, self.unseen[lpips.name], None))
        return rows

    def _least_error(self, name: str) -> Tensor | None:
        """(n, k) the Bayes risk of the best linear attacker on these records, for attacks that it bounds; for several
        releases, a part, or known records: of who knows all other records. Where records were clipped it speaks of
        clipped records, and bounds nothing that is measured here; nor does it where rows were dropped, for those that
        are left were chosen."""
        traces, spectrum = self.view.traces, self.moments.eigenvalues
        if any(release.screened is not None for release in self.view.releases):
            return None
        if name not in _LINEAR or self.clipped or traces is None or self.moments.covariance is None:
            return None
        if not all(covered_in_pairs(r, t) for r, t in zip(self.view.releases, traces, strict=True)):
            return None
        sigmas = [release.encoder.sigma for release in self.view.releases]
        trace, sigma = traces[0], sigmas[0]
        if len(traces) == 1 and name == "lmmse-row":
            return bayes.single_row_risk(spectrum, trace.weight, sigma)
        if len(traces) == 1 and name not in known_records.SHARES and len(self.records) == self.n:
            return bayes.whole_release_risk(spectrum, trace.partner[:, 0], trace.weight, sigma)
        shown = [bayes.precisions(t.partner[:, 0], t.weight, s) for t, s in zip(traces, sigmas, strict=True)]
        return bayes.known_risk(spectrum, torch.stack(shown).sum(0))

    def _identified(self, links: Tensor, name: str = "") -> Row:
        """The better of two readings, by the truth: each candidate's likeliest row, or the likeliest assignment of
        candidates to rows. A row of an equal record is right as well."""
        n, group = self.n, self.same
        found = []
        for rows, chance in ((links.argmax(1), 1 / n), (assigned(links), 1 / len(links))):
            rows = rows[:n]
            hits = int(((rows >= 0) & group[rows.clamp(min=0)].eq(group)).sum())
            interval = detection.clopper_pearson(hits, n)
            found.append(Row(name, "row identified", hits / n, None, None, chance, None, interval))
        return max(found, key=lambda row: row.mean)

    def _link_curve(self, links: Tensor) -> detection.Roc:
        """Of records and their own rows, against records and all other rows."""
        some = links[: min(self.n, _ROC_CANDIDATES)]
        own = torch.zeros(some.shape, dtype=torch.bool).fill_diagonal_(True)
        return detection.roc(some[own], some[~own])

    def _membership(self, name: str, members: Tensor, others: Tensor, of: Whose) -> list[Row]:
        self.curves[name] = detection.roc(members, others)
        tpr = detection.tpr_at_fpr(members, others, FPR)
        interval = detection.clopper_pearson(round(tpr * len(members)), len(members))
        promise = self.promised.get(of)
        ceiling = None if promise is None else promise.tpr
        return [
            Row(name, "auc", detection.auc(members, others), None, None, 0.5, None, of=of),
            Row(name, f"tpr at {FPR:.0%} fpr", tpr, None, None, FPR, ceiling, interval, of=of),
            *([] if promise is None else _refuting(name, members, others, promise)),
        ]

    def _askable(self) -> Tensor:
        """Rows of two records of different classes: their labels show the weights, which the attacks on pairs need.
        Both records must be among those that can be candidates."""
        if self.view.traces is None or self.view.traces[0].partner.shape[1] != 1:
            return torch.empty(0, dtype=torch.int64)
        partner = self.view.traces[0].partner[:, 0]
        inside = partner < self.n
        apart = self.labels != self.labels[partner.clamp(max=self.n - 1)]
        return (inside & apart).nonzero()[: self.pair_rows, 0]

    def _pairs(self, name: str, attack: Attack) -> Row:
        """All pairs of candidates are too many to try for every row: ask about a few rows, with their sources hidden
        among a few dozen candidates."""
        rows = self._askable()
        partner = self.view.traces[0].partner[:, 0] if self.view.traces else torch.arange(self.n)
        sources = torch.cat([rows, partner[rows], torch.arange(self.n)]).tolist()
        chosen = list(dict.fromkeys(sources))[: max(self.pair_candidates, 2 * len(rows))]
        place = {source: number for number, source in enumerate(chosen)}
        release = replace(self.view.releases[0], payload=Subset(self.view.releases[0].payload, rows))
        asked = View((release,), candidates=self.pixels[chosen], candidate_labels=self.labels[chosen])
        guess = attack(asked, stream=self.stream.fork(name))
        truth = torch.tensor([[place[row], place[int(partner[row])]] for row in rows.tolist()])
        hits = 0 if guess.pairs is None else int(guess.pairs.sort(1).values.eq(truth.sort(1).values).all(1).sum())
        chance = 2 / (len(chosen) * (len(chosen) - 1))
        if "candidate_labels" in attack.needs:  # only pairs of the right classes are left to guess from
            counts = self.labels[chosen].bincount(minlength=len(self.truth.classes)).double()
            chance = float((1 / counts[self.labels[rows]] / counts[self.labels[partner[rows]]]).mean())
        interval = detection.clopper_pearson(hits, len(rows))
        return Row(name, "pair found", hits / len(rows), None, None, chance, None, interval)

    def _labels(self, name: str, guessed: Tensor) -> list[Row]:
        """Each record is in two rows, so every class is shown exactly twice as often as it occurs."""
        right = float(((guessed == self.labels[:, None]).any(1)).double().mean())
        counts, classes = self.labels.bincount(minlength=len(self.truth.classes)), len(self.truth.classes)
        likely = float(counts.sort(descending=True).values[:2].sum()) / self.n
        found = [Row(name, "own class among the two shown", right, None, None, likely, None)]
        if len(self.records) == self.n:
            shown = guessed.flatten().bincount(minlength=classes) / 2
            exact = float(shown.eq(counts).double().mean())
            found.append(Row(name, "class counts shown exactly", exact, None, None, None, None))
        return found


def _refuting(name: str, members: Tensor, others: Tensor, promise: Promised) -> list[Row]:
    """The first threshold that flags more members than μ permits at its false alarms, both beyond their 99.9 %
    intervals; none, if all is as stated. Several groups of strangers in the place of one unit share its rows: together
    they count as one."""
    trials = len(others) if promise.of == "record" else min(len(members), len(others))
    for share in (0.01, 0.03, 0.1, 0.3, 0.5):
        threshold = others.sort(descending=True).values[int(share * len(others))]
        hits, alarms = int((members > threshold).sum()), float((others > threshold).double().mean())
        interval = detection.clopper_pearson(hits, len(members), 0.999)
        high = detection.clopper_pearson(math.ceil(alarms * trials - 1e-9), trials, 0.999)[1]
        if high < 1 and interval[0] > (bound := gdp.member_tpr(promise.mu, high)):
            metric = f"tpr at {high:.1%} fpr or less"
            return [Row(name, metric, hits / len(members), None, None, high, bound, interval, True, promise.of)]
    return []


def _look_different(members: Tensor, others: Tensor, trials: int) -> str:
    """Whether scores of both differ where neither is in the release. trials: how many independent ones `others` are
    worth."""
    found = detection.auc(members, others)
    chance = math.sqrt((1 / len(members) + 1 / trials) / 12)
    if abs(found - 0.5) < max(0.05, 5 * chance):
        return ""
    return f"records and strangers look different: on a release that holds neither their AUC is {found:.2f}"


def assigned(links: Tensor) -> Tensor:
    """(c,) the row of each candidate, −1 for none, so that no two have the same: the likeliest assignment of all, where
    scipy is there to find it."""
    try:
        from scipy.optimize import linear_sum_assignment
    except ImportError:
        return links.argmax(1)
    rows = torch.full((len(links),), -1)
    chosen, found = linear_sum_assignment(links.numpy(), maximize=True)
    rows[torch.from_numpy(chosen)] = torch.from_numpy(found)
    return rows


def _slack(risk: Tensor, variance: Tensor) -> float:
    """How far below the risk (n, k) a mean error falls by chance, as a share of it: of few values, by much. With the
    records given, an error r of a variance λ has a squared one of variance 2r²(1 − (r/λ)²), by its noise."""
    kept = risk / variance.double().clamp(min=1e-300)
    spread = 2 * float((risk.square() * (1 - kept.square())).sum())
    return max(0.05, 4 * math.sqrt(max(0.0, spread)) / max(float(risk.sum()), 1e-300))


def _energies(records: Tensor) -> Tensor:
    return (records - records.mean(0)).flatten(1).double().square().sum(1)


def _energy(records: Tensor) -> float:
    return float(_energies(records).mean())


def _chance(records: Tensor) -> float:
    """How far the energy of a part of the records may be from that of all by chance, as a share of it. A few bright
    records can hold most of the energy and all be outside the part, which then shows nothing of their spread: what
    the part itself lacks is taken off apart from this."""
    energies = _energies(records)
    return 4 * float(energies.std()) / max(float(energies.mean()), 1e-300) / math.sqrt(len(energies))


def _clips(release: Release, pixels: Tensor) -> bool:
    """Whether any of these records was made shorter on its way in."""
    entered = torch.linalg.vector_norm(release.encoder.prepare(pixels), dim=1)
    whole = torch.linalg.vector_norm(pixels.flatten(1).double() - release.encoder.restore(torch.zeros(1)), dim=1)
    return bool((entered < whole * (1 - 1e-9)).any())


def unit_rows(releases: Sequence[Release]) -> int:
    """The most rows of a unit that any of the releases promises something to; one, where it is to records alone."""
    return max(release.encoder.unit_rows for release in releases)


def stated_mu(release: Release) -> float:
    """The μ that a release states, for a unit where it has units; infinite where it states none."""
    return next((guarantee.claim for guarantee in release.guarantees if guarantee.name == "gdp"), math.inf)


def record_mu(release: Release) -> float:
    """The μ of one record, by what a release states of units."""
    return stated_mu(release) / math.sqrt(release.encoder.unit_rows)


def unit_mu(release: Release, rows: int) -> float:
    """The μ of a unit of so many rows: as stated; or, where a release was made for records alone, by what its settings
    cost that many rows, which may be paired with one another."""
    if release.encoder.unit_rows > 1:
        return stated_mu(release)
    cost, stated = release.encoder.cost(), stated_mu(release)
    if cost is None or not math.isfinite(stated):
        return math.inf
    return stated * cost.mu_if_paired / cost.mu * math.pow(rows, cost.group_exponent)


def promised(releases: Sequence[Release]) -> tuple[Promised, ...]:
    """What all releases together promise of membership: to units first, where any of them has units of several rows,
    and to records; nothing, where one of them promises nothing."""
    rows = unit_rows(releases)
    whom: list[tuple[Whose, float]] = [("record", gdp.compose(map(record_mu, releases)))]
    if rows > 1:
        whom.insert(0, ("unit", gdp.compose(unit_mu(release, rows) for release in releases)))
    return tuple(Promised(of, mu, FPR, gdp.member_tpr(mu, FPR)) for of, mu in whom if math.isfinite(mu))
