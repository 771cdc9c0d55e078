"""How well attacks name what rows are made of: their records, their covers, the rows that share a source, the rows of a
record."""

from __future__ import annotations

import math
from collections import Counter
from typing import NamedTuple

import torch
from torch import Tensor

from mixveil.audit.metrics import detection
from mixveil.core.randomness import SeededStream
from mixveil.core.types import Trace

LEVEL = 0.01
"""Records whose rows look no different are taken to differ by chance no more often than this."""

_PAIRS = 2_000_000  # that are compared; of more rows, some with all others
_SHUFFLES = 20  # of a guess, for what chance gives
_WIDE = 1.96  # deviations on both sides of 95 %


class Links(NamedTuple):
    """Shares of rows. whole: exactly the records of the row are named; some: one of them at least."""

    whole: float
    some: float


def linked(guess: Tensor, truth: Tensor, records: int, *, renamed: bool) -> tuple[Links, Links]:
    """Of guesses (m, s) at the records of every row, (m, k); −1 is no record in both. Beside it: the same guess with
    its rows shuffled, the mean of twenty. renamed: the guess numbers records as it likes; its numbers are taken for
    those records with which most of them are right, one-to-one."""
    named, there, stream = distinct(guess), distinct(truth), SeededStream(0)
    shuffled = [
        _links(named[stream.permutation(len(named))], there, records, renamed=renamed) for _ in range(_SHUFFLES)
    ]
    chance = Links(*(sum(part) / _SHUFFLES for part in zip(*shuffled, strict=True)))
    return _links(named, there, records, renamed=renamed), chance


class Named(NamedTuple):
    """hits: of `rows` rows, those of which exactly the records are named; chance: the most that a guess gets which
    knows no more than the order of rows: its rows shuffled, the row's own record alone, or one more by chance."""

    hits: int
    rows: int
    chance: float


def named(guess: Tensor, traces: tuple[Trace, ...], records: int) -> Named | None:
    """Of guesses (m, s) at the records of the rows of all releases, where row i of each is of record i. Covers, and
    records without a row, have no number to be named by. None where no row is of several records."""
    held = _sources(traces)
    held = distinct(held.masked_fill(held >= records, -1))
    alone = float(((held >= 0).sum(1) == 1).double().mean())
    if alone == 1:
        return None
    found, chance = linked(guess, held, records, renamed=False)
    return Named(round(found.whole * len(held)), len(held), max(chance.whole, alone, 1 / records))


def matched(close: Tensor) -> Tensor:
    """(n,) the column of each row of (n, n), one-to-one, so that their sum is the largest."""
    from scipy.optimize import linear_sum_assignment

    return torch.from_numpy(linear_sum_assignment(close.numpy(), maximize=True)[1])


def distinct(sources: Tensor) -> Tensor:
    """The same rows, sorted, each number once: −1 in the place of a repeated one."""
    ranked = sources.sort(1).values
    repeated = torch.zeros_like(ranked, dtype=torch.bool)
    repeated[:, 1:] = ranked[:, 1:] == ranked[:, :-1]
    return ranked.masked_fill(repeated, -1)


def _links(named: Tensor, there: Tensor, n: int, *, renamed: bool) -> Links:
    """named: (m, s) distinct numbers of a guess; there: (m, k) distinct records."""
    known = _meant(named, there, n)[named] if renamed else named
    known = known.masked_fill(named < 0, -2)
    right = (known[:, :, None] == there[:, None, :]).sum((1, 2))
    whole = (right == (there >= 0).sum(1)) & (right == (named >= 0).sum(1))
    return Links(float(whole.double().mean()), float((right > 0).double().mean()))


def _meant(named: Tensor, there: Tensor, n: int) -> Tensor:
    """(n,) the record that each number of a guess is taken for."""
    counts = torch.zeros(n * n, dtype=torch.int64)
    for one in named.T:
        for other in there.T:
            both = (one >= 0) & (other >= 0)
            counts += torch.bincount(one[both] * n + other[both], minlength=n * n)
    return matched(counts.view(n, n))


class Covers(NamedTuple):
    """hits: rows of which a cover is among the ⌊√p⌋ that score highest; chance: the expected share of such rows where
    scores say nothing; rank: the median place of a row's covers among all p, as a share of p; interval: its 95 %."""

    hits: int
    chance: float
    rank: float
    interval: tuple[float, float]


def covers(scores: Tensor, covered: Tensor) -> Covers:
    """From scores (n, p) and the covers (n, q) that rows hold. Equal scores share their places."""
    count = scores.shape[1]
    most, own = math.isqrt(count), scores.gather(1, covered)
    above = torch.stack([(scores > one[:, None]).sum(1) for one in own.T], dim=1)
    equal = torch.stack([(scores == one[:, None]).sum(1) for one in own.T], dim=1) - 1
    place = above + equal / 2
    different = [len(set(row)) for row in covered.tolist()]
    chances = {q: 1 - math.comb(count - q, most) / math.comb(count, most) for q in set(different)}
    hits = int((place < most).any(1).sum())
    chance = sum(chances[q] for q in different) / len(different)
    beside = min(0.5, _WIDE / 2 / math.sqrt(len(place)))  # of a median: by how many places lie below it
    low, rank, high = (place / count).quantile(place.new_tensor([0.5 - beside, 0.5, 0.5 + beside])).tolist()
    return Covers(hits, chance, rank, (low, high))


class Shared(NamedTuple):
    """auc: of pairs that share a source against pairs that do not; interval: its 95 %, where a row counts no more than
    once; nearest: how many of `rows` rows have a most alike row that shares a source with them, where of equally alike
    ones any may be taken; chance: how likely another row does."""

    auc: float
    interval: tuple[float, float]
    nearest: float
    rows: int
    chance: float


def shared(alike: Tensor, traces: tuple[Trace, ...]) -> Shared | None:
    """From scores (m, m) of the rows of the first releases; None where no two rows share a source, or all do."""
    held = _sources(traces)[: len(alike)]
    asked = torch.linspace(0, len(alike) - 1, max(1, min(len(alike), _PAIRS // len(alike)))).round().long()
    both = _together(held[asked], held)
    other = torch.ones_like(both)
    other[torch.arange(len(asked)), asked] = False
    yes, no = both & other, ~both & other
    if not bool(yes.any()) or not bool(no.any()):
        return None
    scores = alike[asked]
    others = scores.masked_fill(~other, -torch.inf)
    first = (others == others.amax(1, keepdim=True)) & other
    nearest = math.fsum(((first & yes).sum(1).double() / first.sum(1).clamp(min=1)).tolist())
    chance = float(yes.sum(1).double().mean()) / (len(alike) - 1)
    auc, trials = detection.auc(scores[yes], scores[no]), max(1, min(int(yes.sum()) // 2, len(asked)))
    return Shared(auc, detection.auc_interval(auc, trials), nearest, len(asked), chance)


def some_share(traces: tuple[Trace, ...]) -> bool:
    """Whether any two rows share a source."""
    held = _sources(traces)
    return any(count > 1 for count in Counter(source for row in held.tolist() for source in set(row)).values())


def _sources(traces: tuple[Trace, ...]) -> Tensor:
    """(m, k) the sources of each row of all releases."""
    found = [torch.cat([torch.arange(len(t.partner))[:, None], t.partner], dim=1) for t in traces]
    widest = max(held.shape[1] for held in found)
    padded = [torch.cat([held, held[:, :1].expand(-1, widest - held.shape[1])], dim=1) for held in found]
    return torch.cat(padded)


def _together(some: Tensor, every: Tensor) -> Tensor:
    """(a, m) whether rows with these sources, (a, k) and (m, k), share one."""
    found = torch.zeros(len(some), len(every), dtype=torch.bool)
    for one in some.T:
        for other in every.T:
            found |= one[:, None] == other
    return found


def told_apart(p: Tensor) -> int:
    """How many records have a p-value, of (n, s), that is small among s of them (Bonferroni)."""
    return int((p.amin(1) * p.shape[1] < LEVEL).sum())
