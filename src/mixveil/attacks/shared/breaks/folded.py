"""Records from rows whose signs are hidden: |b| = |M a + e|, where M says which records are in which rows and with
which weights, and e is all else that was mixed in (Carlini et al. 2021).

Carlini et al. look for the nearer of both signs by Adam. Here e is Gaussian, and the most likely records are found by
expectation and maximisation: given records, a value's expected sign is tanh(|b| · (M a) / variance), to which what a
demasking network says of the sign is added; given expected signs, records are the solution of a sparse linear system.
Where no signs are hidden, one step of it is ridge regression, the best linear estimate.

Where little is mixed in besides, rows alone say what signs are, but a solution may hold them all in wrong places. Then
solutions from random records are tried too, and the best is taken, value by value. Rows do not say which of a solution
and its negative is right: what images are like does (`sign_field`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from mixveil.attacks.shared import training
from mixveil.attacks.shared.breaks.sign_field import MOST_VALUES, PixelPrior, chosen_signs
from mixveil.core.randomness import Stream

_ROUNDS = 20
_FLOOR, _ERROR = 0.01, 1e-4  # of the mean square of what is left of weights, and of one: no row is without error
_LEAST = 1e-12
_TINY, _DOUBTFUL = 1e-6, 1e-2  # of a value's mean square: an error's at least, and where records are in doubt
_EXACT, _TRIES = 0.8, 8  # of rows' energy, that records must explain for other solutions to be tried; how many are


@dataclass(frozen=True)
class FoldedRows:
    """Rows, and what is known of them, in the values in which records enter a mixture.

    Attributes:
        size: (m, d) the rows: without signs where these are hidden.
        logits: (m, d) of a positive sign for every value; None where no signs are hidden.
        sources: (m, s) the records of each row; −1 for none.
        weights: (m, s) theirs.
        noise: (m,) the variance of an encoder's noise in one value.
        rest: (d,) the mean of what else is mixed in, which has what is left of the weights.
        prior: What records are like.
    """

    size: Tensor
    logits: Tensor | None
    sources: Tensor
    weights: Tensor
    noise: Tensor
    rest: Tensor
    prior: PixelPrior


def solved(rows: FoldedRows, records: int, stream: Stream) -> Tensor:
    """(n, d) float64: the records."""
    system = System(rows, records)
    return (system.found(stream)[0].double() + system.mean).cpu()


class System:
    """Rows = M (mean + records) + rest + errors; the errors of row i and value p have the variance factor_p · spread_i.

    Attributes:
        size, logits, prior: As in `FoldedRows`.
        mean: (d,) of records: solutions are without it.
        spread: (m,)
        first: (d,) factors to begin with.
    """

    def __init__(self, rows: FoldedRows, records: int) -> None:
        device = training.fastest()
        there = rows.sources >= 0
        row = torch.arange(len(there))[:, None].expand_as(there)
        index, weights = torch.stack([row[there], rows.sources[there]]), rows.weights[there].float()
        shape = (len(there), records)
        self._mixing = torch.sparse_coo_tensor(index, weights, shape, check_invariants=True).coalesce().to(device)
        held = torch.where(there, rows.weights, 0).double().sum(1).to(device)
        left = (1 - held).clamp(min=0)
        self.prior, self.mean = rows.prior, rows.prior.mean.double().to(device)
        self._known = (held[:, None] * self.mean + left[:, None] * rows.rest.double().to(device)).float()
        self._variance = float(rows.prior.variance.mean())
        error = left.square() + _FLOOR * left.square().mean() + _ERROR
        self.spread = (rows.noise.double().to(device) + self._variance * error).float()
        dense = self._mixing.to_dense().double()
        self._energy, self._basis = torch.linalg.eigh(dense.T @ (dense / self.spread.double()[:, None]))
        self.size = rows.size.float().to(device)
        self.logits = None if rows.logits is None else rows.logits.float().to(device)
        self._scale = float(self.size.square().mean() / self.spread.mean()) + _LEAST
        self.first = 0.5 * self.size.square().mean(0) / self.spread.mean() + _TINY * self._scale

    def found(self, stream: Stream) -> tuple[Tensor, Tensor]:
        """(n, d) the most likely records, less their mean, and (d,) the factors of the errors' variance."""
        first = found, factor = self.settled(self.begun(), self.first, self.logits)
        if self.logits is None or self.size.shape[1] > MOST_VALUES or not self.nearly_exact(torch.ones_like(factor)):
            return first
        for number in range(_TRIES):
            other, least = self.settled(self.random(stream.fork(f"try {number}")), self.first, None)
            better = least < factor
            found, factor = torch.where(better, other, found), torch.where(better, least, factor)
        if not self.nearly_exact(factor):  # rows do not hold what they are said to
            return first
        whole = found + self.mean.float()
        return chosen_signs(whole, self.prior, stream.fork("signs")) * whole - self.mean.float(), factor

    def nearly_exact(self, factor: Tensor) -> bool:
        """Whether what rows are said to hold explains most of them, up to errors with these factors (d,)."""
        if self.logits is None:
            told = (self.size - self._known).square().mean()
        else:
            told = (self.size.square() - self._known.square()).mean()
        left = (factor * self.spread.mean()).mean() / told.clamp(min=_LEAST)
        return float(left) < 1 - _EXACT

    def likely(self, mixtures: Tensor, rows: Tensor, factor: Tensor) -> Tensor:
        """(k, t) the logarithm of how likely each of some rows (k,) is of mixtures (k, t, d), up to a number a row."""
        size, spread = self.size[rows, None], self.spread[rows].view(-1, 1, 1)
        variance = factor.clamp(min=_DOUBTFUL * self._scale) * spread
        near = -(size.square() + mixtures.square()) / (2 * variance)
        if self.logits is None:
            return (near + size * mixtures / variance).sum(2)
        word = self.logits[rows, None] / 2
        told = size * mixtures / variance
        return (near + torch.logaddexp(told + word, -told - word)).sum(2)

    def begun(self) -> Tensor:
        """(n, d) records, less their mean, of rows whose signs are as the network says."""
        expected = self.size if self.logits is None else self.size * torch.tanh(self.logits / 2)
        return self._maximised(expected, self.first)

    def random(self, stream: Stream) -> Tensor:
        drawn = stream.normal(self._mixing.shape[1], self.size.shape[1]) * math.sqrt(self._variance)
        return drawn.float().to(self.size.device)

    def settled(self, found: Tensor, factor: Tensor, logits: Tensor | None) -> tuple[Tensor, Tensor]:
        """The records that expectation and maximisation come to, and (d,) the factors of the errors' variance."""
        for _ in range(_ROUNDS):
            expected = self._expected(self.mixtures(found), factor, logits)
            found = self._maximised(expected, factor)
            mixture = self.mixtures(found)
            error = self.size.square() - 2 * mixture * self._expected(mixture, factor, logits) + mixture.square()
            factor = (error / self.spread[:, None]).mean(0).clamp(min=_TINY * self._scale)
        return found, factor

    def mixtures(self, found: Tensor) -> Tensor:
        """(m, d) what rows would be without errors, of records (n, d) less their mean."""
        mixed: Tensor = torch.sparse.mm(self._mixing, found)
        return self._known + mixed

    def _expected(self, mixture: Tensor, factor: Tensor, logits: Tensor | None) -> Tensor:
        """(m, d) rows with the signs that are expected of these mixtures."""
        if self.logits is None:
            return self.size
        told = self.size * mixture / (factor * self.spread[:, None])
        return self.size * torch.tanh(told if logits is None else told + logits / 2)

    def _maximised(self, expected: Tensor, factor: Tensor) -> Tensor:
        """(n, d) the most likely records, less their mean, of rows whose signs are as expected."""
        weighed = torch.sparse.mm(self._mixing.T, (expected - self._known) / self.spread[:, None])
        told = (self._basis.T @ weighed.double()) / (self._energy.clamp(min=0)[:, None] + factor / self._variance)
        found: Tensor = self._basis @ told
        return found.float()
