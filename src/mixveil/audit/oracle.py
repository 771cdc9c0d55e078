"""The truth about rows, as the stages of an attack take it instead of finding it: of a challenge, for its owner, and of
releases whose traces are here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from mixveil.attacks.shared.stages import Oracle, Stage
from mixveil.audit.challenge import Challenge
from mixveil.audit.challenge_truth import ChallengeTruth
from mixveil.core.errors import ArgumentError, DataFormatError, MismatchError
from mixveil.core.types import Release, Trace, View


class _Truth(NamedTuple):
    """What `Oracle` holds, of the rows of one release: signs as they are released where none are hidden, and no moves
    (0, 0, 0) where images are not moved."""

    sources: Tensor
    weights: Tensor
    signs: Tensor
    moves: Tensor

    def widened(self, columns: int) -> _Truth:
        """With so many sources a row: −1 where there are fewer."""
        more = columns - self.sources.shape[1]
        sources, weights = pad(self.sources, (0, more), value=-1), pad(self.weights, (0, more))
        return _Truth(sources, weights, self.signs, pad(self.moves, (0, 0, 0, more)))


def of_challenge(challenge: Challenge, truth: ChallengeTruth, stages: Iterable[Stage]) -> Oracle:
    """The truth about all rows of a challenge, for these stages of an attack."""
    return of_truth(challenge.release, truth, stages)


def of_truth(release: Release, truth: ChallengeTruth, stages: Iterable[Stage]) -> Oracle:
    """The same of a challenge in memory, whose rows are this release."""
    trace = Trace(truth.sources[:, 1:], truth.weights, extra=truth.extra)
    try:
        told = _told(release, trace, truth.sources)
    except (LookupError, RuntimeError):
        encoder = release.encoder.name
        raise DataFormatError(f"the truth does not hold what the encoder {encoder} draws for every row") from None
    return _oracle([release], [told], stages)


def of_releases(view: View, stages: Iterable[Stage]) -> Oracle:
    """The truth about all rows of releases with their traces, one release after another. Records are numbered by their
    rows; covers, and records without a row, are none of them."""
    if view.traces is None:
        raise ArgumentError("the truth about rows is in the traces, and this view has none")
    told = []
    for release, trace in zip(view.releases, view.traces, strict=True):
        rows = len(trace.weight)
        if rows != len(release.payload):
            raise MismatchError(f"release {release.id[:8]} has {len(release.payload)} rows, and its trace {rows}")
        held = torch.cat([torch.arange(rows)[:, None], trace.partner], dim=1)
        record = torch.arange(rows) if trace.order is None else trace.order
        told.append(_told(release, trace, torch.where(held < rows, record[held.clamp(max=rows - 1)], -1)))
    return _oracle(view.releases, told, stages)


def _oracle(releases: Sequence[Release], told: Sequence[_Truth], stages: Iterable[Stage]) -> Oracle:
    widest = max(truth.sources.shape[1] for truth in told)
    whole = zip(*(truth.widened(widest) for truth in told), strict=True)
    sources, weights, signs, moves = (torch.cat(parts) for parts in whole)
    masked, moved = (any(getattr(release.encoder, name) for release in releases) for name in ("masked", "moved"))
    return Oracle(frozenset(stages), sources, weights, signs if masked else None, moves if moved else None)


def _told(release: Release, trace: Trace, held: Tensor) -> _Truth:
    """held: (m, k) the records of each row, its own first; −1 where a source is no record."""
    rows, observation = torch.arange(len(held)), release.encoder.observation(trace)
    most = int((held >= 0).sum(1).max())
    kept = (held < 0).long().argsort(dim=1, stable=True)[:, :most]  # records first, in their order
    sources = held.gather(1, kept)
    none = sources < 0
    mask, moves = observation.mask(rows), observation.moves(rows)
    if moves is None:
        moves = torch.zeros(*held.shape, 3, dtype=torch.int16)
    moves = moves.gather(1, kept[:, :, None].expand(-1, -1, 3)).masked_fill(none[:, :, None], 0)
    x = release.payload.take(rows).x.flatten(1)
    signs = torch.where(x < 0, -1, 1).to(torch.int8)  # of a mixture that is zero either will do
    weights = trace.weight.gather(1, kept).masked_fill(none, 0)
    return _Truth(sources, weights, signs if mask is None else signs * mask, moves)
