"""Runs the attacks of an audit and measures them. It alone sees the truth."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from mixveil import checks, noise_check
from mixveil.attacks import attacks as known_attacks
from mixveil.encoders.identity import Identity
from mixveil.keys import Stream
from mixveil.metrics import detection, image
from mixveil.theory import bayes, gdp, snr
from mixveil.theory.moments import Moments, moments
from mixveil.truth import standardised_noise
from mixveil.types import Attack, Batch, Dataset, Guess, Release, Rows, View

FPR = 0.01
PROFILES = {"quick": (20, 60), "full": (100, 200)}
"""How many rows the attacks on pairs are asked about, and among how many candidates."""


@dataclass(frozen=True)
class Row:
    """One figure of one attack. worst: of the record for which it is most revealing; ceiling: the most that theory
    permits any attacker of this kind, and whether it was beaten; interval: 95 %, for shares, as if candidates
    were independent: they share the rows, so it is too narrow."""

    attack: str
    metric: str
    mean: float
    std: float | None
    worst: float | None
    know_nothing: float | None
    ceiling: float | None
    interval: tuple[float, float] | None = None
    beaten: bool = False


@dataclass(frozen=True)
class Ran:
    """How an attack fared: `ran`, `skipped` for want of something, or `broken`: it fails even without a defence."""

    attack: str
    threat: str
    status: str
    why: str = ""


@dataclass(frozen=True)
class Promise:
    """A guarantee as stated, and what was found of it on the records themselves; broken: it is not kept."""

    release: str
    name: str
    nominal: float
    realised: float | None
    found: float | None
    broken: bool = False


@dataclass(frozen=True)
class Part:
    """Some rows of a larger set, or a release made in memory."""

    rows: Rows
    index: Tensor

    def __len__(self) -> int:
        return len(self.index)

    def take(self, index: Tensor) -> Batch:
        return self.rows.take(self.index[checks.rows_within(index, len(self))])


class Judge:
    """Runs attacks and measures them. It alone knows the truth."""

    def __init__(
        self, view: View, truth: Dataset, pixels: Tensor, others: int, stream: Stream, profile: str = "quick"
    ) -> None:
        self.view, self.truth, self.pixels, self.others, self.stream = view, truth, pixels, others, stream
        self.pair_rows, self.pair_candidates = PROFILES[profile]
        self.images: dict[str, Tensor] = {}
        self.curves: dict[str, detection.Roc] = {}
        encoder = view.releases[0].encoder
        prepared = Part(_Prepared(truth, encoder.prepare), torch.arange(len(truth)))
        self.moments: Moments = moments(prepared, stream=stream.fork("moments"))
        self.nothing = self._know_nothing()
        prepared_norms = torch.linalg.vector_norm(encoder.prepare(pixels), dim=1)
        free_norms = torch.linalg.vector_norm(pixels.flatten(1).double() - encoder.restore(torch.zeros(1)), dim=1)
        self.clipped = bool((prepared_norms < free_norms * (1 - 1e-9)).any())

    def _know_nothing(self) -> Tensor:
        """The better of two guesses that use no row: the mean that an attacker has, and the middle of the range."""
        mean = known_attacks()["prior"]()(self.view, stream=self.stream.fork("prior")).images
        middle = torch.full_like(self.pixels, (self.truth.low + self.truth.high) / 2, dtype=torch.float64)
        if mean is None:
            return middle
        mean = mean.clamp(self.truth.low, self.truth.high)
        errors = [float(image.mse(self.pixels, guess).mean()) for guess in (mean, middle)]
        return mean if errors[0] <= errors[1] else middle

    def run(self, name: str, attack: Attack, rows: list[Row]) -> Ran:
        missing = [field for field in sorted(attack.needs) if getattr(self.view, field) is None]
        if missing:
            return Ran(name, attack.threat, "skipped", f"it needs {', '.join(missing)}, and there is none")
        if why := self._unusable(name):
            return Ran(name, attack.threat, "skipped", why)
        if attack.needs == {"candidates"}:  # it names pairs
            asked = self._askable()
            if not len(asked):
                return Ran(name, attack.threat, "skipped", "no row is a pair of two classes whose trace is known")
            rows.append(self._pairs(name, attack, asked))
            return Ran(name, attack.threat, "ran")
        if why := self._fails_without_defence(name, attack):
            return Ran(name, attack.threat, "broken", why)
        guess = attack(self.view, stream=self.stream.fork(name))
        rows += self._measured(name, guess)
        return Ran(name, attack.threat, "ran")

    def _unusable(self, name: str) -> str:
        if name == "membership" and self.others < 100:
            return "it needs at least 100 images that are not in the release (public data)"
        if name == "grid" and getattr(self.view.releases[0].encoder, "noise", "") == "sphere":
            return "noise on a sphere is not what it looks for; radius does"
        if name == "lowpass" and len(self.truth.shape) != 3:
            return "it needs images"
        return ""

    def _fails_without_defence(self, name: str, attack: Attack) -> str:
        """Run it on a release without any defence; what it cannot do there it cannot show here."""
        encoder, n = Identity(), min(len(self.truth), 300)
        part = Part(self.truth, torch.arange(n))
        trace = encoder.plan(n, stream=self.stream)
        batch = encoder.encode(part, torch.arange(n), trace, stream=self.stream)
        release = replace(self.view.releases[0], payload=_Bare(batch), encoder=encoder, guarantees=(), certified=False)
        bare = View((release,), (trace,), self.view.public, self.pixels[:n])
        guess = attack(bare, stream=self.stream.fork("bare"))
        if guess.images is not None and name != "prior":
            error = float(image.mse(self.pixels[:n], guess.images).mean())
            nothing = float(
                image.mse(self.pixels[:n], self.pixels[:n].double().mean(0).expand_as(self.pixels[:n])).mean()
            )
            if not error < 0.5 * nothing:
                return f"without any defence it leaves an error of {error:.3g}, knowing nothing {nothing:.3g}"
        if guess.links is not None:
            found = float(guess.links.argmax(1).eq(torch.arange(n)).double().mean())
            if found < 0.5:
                return f"without any defence it finds {found:.0%} of the rows"
        return ""

    def _measured(self, name: str, guess: Guess) -> list[Row]:
        found: list[Row] = []
        if guess.images is not None:
            self.images[name] = guess.images.clamp(self.truth.low, self.truth.high)
            found += self._reconstruction(name, guess.images)
        if guess.links is not None:
            found.append(self._share(name, "row identified", identified(guess.links)[: len(self.truth)]))
        if guess.scores is not None:
            found += self._membership(name, guess.scores)
        if guess.labels is not None:
            found += self._labels(name, guess.labels)
        return found

    def _reconstruction(self, name: str, guess: Tensor) -> list[Row]:
        span = self.truth.high - self.truth.low
        truth, raw, nothing = ((x.double() - self.truth.low) / span for x in (self.pixels, guess, self.nothing))
        guess, centre = raw.clamp(0, 1), truth.mean(0)
        ceiling = self._least_error(name)
        beaten = ceiling is not None and float(image.mse(truth, raw).mean()) < 0.95 * ceiling / span**2
        rows = []
        for metric, measure, best in (
            ("mse", image.mse, torch.amin),
            ("snr_db", lambda a, b: image.snr_db(a - centre, b - centre), torch.amax),
            ("psnr_db", image.psnr_db, torch.amax),
            ("ssim", image.ssim, torch.amax),
            ("cosine", lambda a, b: image.cosine(a - centre, b - centre), torch.amax),
        ):
            if metric == "ssim" and truth.dim() != 4:
                continue
            values, blank = measure(truth, guess), measure(truth, nothing)
            rows.append(
                Row(
                    attack=name,
                    metric=metric,
                    mean=_finite(values.mean()),
                    std=_finite(values.std()),
                    worst=_finite(best(values, 0)),
                    know_nothing=_finite(blank.mean()),
                    ceiling=ceiling / span**2 if metric == "mse" and ceiling is not None else None,
                    beaten=metric == "mse" and beaten,
                )
            )
        return rows

    def _least_error(self, name: str) -> float | None:
        """The Bayes risk of the best linear attacker on these records, for the attacks that it bounds. Where records
        were clipped it speaks of clipped records, and bounds nothing that is measured here."""
        if self.clipped or self.view.traces is None or len(self.view.releases) != 1 or self.moments.covariance is None:
            return None
        encoder, trace = self.view.releases[0].encoder, self.view.traces[0]
        if not encoder.sigma or trace.partner.shape[1] != 1:
            return None
        spectrum = self.moments.eigenvalues
        if name == "lmmse-row":
            return self.moments.average(bayes.single_row_risk(spectrum, trace.weight, encoder.sigma))
        if name in ("lmmse", "lowpass"):
            risk = bayes.whole_release_risk(spectrum, trace.partner[:, 0], trace.weight, encoder.sigma)
            return self.moments.average(risk)
        return None

    def _share(self, name: str, metric: str, guessed: Tensor) -> Row:
        n = len(self.truth)
        hits = int(guessed.eq(torch.arange(n)).sum())
        return Row(name, metric, hits / n, None, None, 1 / n, None, detection.clopper_pearson(hits, n))

    def _membership(self, name: str, scores: Tensor) -> list[Row]:
        members, others = scores[: len(self.truth)], scores[len(self.truth) :]
        self.curves[name] = detection.roc(members, others)
        tpr = detection.tpr_at_fpr(members, others, FPR)
        interval = detection.clopper_pearson(round(tpr * len(members)), len(members))
        mu = gdp.compose([release_mu(release) for release in self.view.releases])
        ceiling = gdp.member_tpr(mu, FPR) if math.isfinite(mu) else None
        return [
            Row(name, "auc", detection.auc(members, others), None, None, 0.5, None),
            Row(
                name,
                f"tpr at {FPR:.0%} fpr",
                tpr,
                None,
                None,
                FPR,
                ceiling,
                interval,
                self._refuted(members, others, mu),
            ),
        ]

    def _refuted(self, members: Tensor, others: Tensor, mu: float) -> bool:
        """Whether some threshold flags more members than μ permits at its false alarms, both beyond their 99.9 %
        intervals."""
        if not math.isfinite(mu):
            return False
        for share in (0.01, 0.03, 0.1, 0.3, 0.5):
            threshold = others.sort(descending=True).values[int(share * len(others))]
            hits, alarms = int((members > threshold).sum()), int((others > threshold).sum())
            low = detection.clopper_pearson(hits, len(members), 0.999)[0]
            high = detection.clopper_pearson(alarms, len(others), 0.999)[1]
            if high < 1 and low > gdp.member_tpr(mu, high):
                return True
        return False

    def _askable(self) -> Tensor:
        """Rows of two records of different classes: their labels show the weights, which the attacks on pairs need."""
        if self.view.traces is None or self.view.traces[0].partner.shape[1] != 1:
            return torch.empty(0, dtype=torch.int64)
        labels = self.truth.take(torch.arange(len(self.truth))).y.argmax(1)
        return (labels != labels[self.view.traces[0].partner[:, 0]]).nonzero()[: self.pair_rows, 0]

    def _pairs(self, name: str, attack: Attack, rows: Tensor) -> Row:
        """All pairs of candidates are too many to try for every row: ask about a few rows, with their sources hidden
        among a few dozen candidates."""
        partner = self.view.traces[0].partner[:, 0] if self.view.traces else torch.arange(len(self.truth))
        sources = torch.cat([rows, partner[rows], torch.arange(len(self.truth))]).tolist()
        chosen = list(dict.fromkeys(sources))[: max(self.pair_candidates, 2 * len(rows))]
        place = {source: number for number, source in enumerate(chosen)}
        release = replace(self.view.releases[0], payload=Part(self.view.releases[0].payload, rows))
        guess = attack(View((release,), candidates=self.pixels[chosen]), stream=self.stream.fork(name))
        truth = torch.tensor([[place[row], place[int(partner[row])]] for row in rows.tolist()])
        hits = 0 if guess.pairs is None else int(guess.pairs.eq(truth).all(1).sum())
        chance = 1 / (len(chosen) * (len(chosen) - 1))
        interval = detection.clopper_pearson(hits, len(rows))
        return Row(name, "pair found", hits / len(rows), None, None, chance, None, interval)

    def _labels(self, name: str, guessed: Tensor) -> list[Row]:
        """Each record is in two rows, so every class is shown exactly twice as often as it occurs."""
        labels = self.truth.take(torch.arange(len(self.truth))).y.argmax(1)
        right = float(((guessed == labels[:, None]).any(1)).double().mean())
        counts, classes = labels.bincount(minlength=len(self.truth.classes)), len(self.truth.classes)
        shown = guessed.flatten().bincount(minlength=classes) / 2
        return [
            Row(name, "own class among the two shown", right, None, None, float(counts.max()) / len(labels), None),
            Row(name, "class counts shown exactly", float(shown.eq(counts).double().mean()), None, None, None, None),
        ]

    def promises(self) -> list[Promise]:
        """What the releases state, beside what was found; and the noise, which only the owner can measure."""
        found = []
        for t, release in enumerate(self.view.releases):
            alpha, sigma = getattr(release.encoder, "alpha", None), release.encoder.sigma
            for guarantee in release.guarantees:
                measured, broken = None, False
                if guarantee.name == "directional_snr" and alpha and sigma:
                    measured = snr.directional_snr(self.moments.lambda_max, sigma, alpha)
                    broken = measured > 2 * guarantee.nominal
                found.append(
                    Promise(release.id, guarantee.name, guarantee.nominal, guarantee.realised, measured, broken)
                )
            if sigma and self.view.traces is not None:
                normals = standardised_noise(release, self.view.traces[t], self.truth)
                measured = float(normals.square().mean().sqrt())
                slack = 6 / math.sqrt(2 * normals.numel()) + 1e-5
                found.append(Promise(release.id, "noise", sigma, None, measured * sigma, abs(measured - 1) > slack))
        return found

    def noise_faults(self) -> list[str]:
        """What is wrong with the noise of the releases, in words."""
        said: list[str] = []
        kept: list[Tensor] = []
        for t, release in enumerate(self.view.releases):
            if self.view.traces is None or not release.encoder.sigma:
                continue
            normals = standardised_noise(release, self.view.traces[t], self.truth)
            sphere = getattr(release.encoder, "noise", "") == "sphere"
            said += [f"release {release.id[:8]}: {fault}" for fault in noise_check.faults(normals, sphere=sphere)]
            for earlier in kept:
                if abs(float((earlier * normals).mean())) * math.sqrt(normals.numel()) > 8:
                    said.append(
                        f"release {release.id[:8]} shares its noise with another: together they show the records"
                    )
            kept.append(normals)
        return said


def identified(links: Tensor) -> Tensor:
    """(c,) the row of each candidate, −1 for none. More candidates than rows are assigned so that each row gets one:
    the likeliest assignment of all, where scipy is there to find it."""
    c, n = links.shape
    if c <= n:
        return links.argmax(1)
    try:
        from scipy.optimize import linear_sum_assignment
    except ImportError:
        return links.argmax(1)
    rows = torch.full((c,), -1)
    chosen, assigned = linear_sum_assignment(links.numpy(), maximize=True)
    rows[torch.from_numpy(chosen)] = torch.from_numpy(assigned)
    return rows


def release_mu(release: Release) -> float:
    """The μ that a release states; infinite where it states none."""
    return next((g.nominal for g in release.guarantees if g.name == "gdp"), math.inf)


@dataclass(frozen=True)
class _Prepared:
    rows: Rows
    prepare: Callable[[Tensor], Tensor]

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, index: Tensor) -> Batch:
        batch = self.rows.take(index)
        return Batch(self.prepare(batch.x), batch.y)


@dataclass(frozen=True)
class _Bare:
    batch: Batch

    def __len__(self) -> int:
        return len(self.batch.y)

    def take(self, index: Tensor) -> Batch:
        return Batch(self.batch.x[index], self.batch.y[index])


def _finite(value: Tensor) -> float:
    """For JSON: a perfect guess has an infinite SNR, shown as 999 dB."""
    return float(value.nan_to_num(nan=0.0, posinf=999.0, neginf=-999.0))
