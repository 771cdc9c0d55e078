"""Averages of rows that hold the same image, as InstaHide's authors tried them (§5.3, Figure 7).

What rows that share an image hold beside it averages to the mean image, so that their average shows it. Masked rows are
demasked first. An average holds the image by some weight only: what to multiply it by is learnt from averages of public
images, which the attacker releases in the same way. `average` and `lmmse` do better where rows are linear: these two
are here because they need no linear rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from mixveil.attacks.shared import model
from mixveil.attacks.shared.alike import Comparison
from mixveil.attacks.shared.demasking import Demasking, Imitation, seen
from mixveil.core.errors import ArgumentError
from mixveil.core.randomness import Stream
from mixveil.core.types import AttackKind, Guess, Trace, View
from mixveil.core.wording.notes import Note, note

_TRIED = 4096  # public encodings, in all releases
_LEAST_TRIED = 64  # public images
_MOST_TRIED = 512
_SIMILAR = 5  # InstaHide's m

Rows = Sequence[Tensor]
"""Of each release (n, …), without its mask."""


class _Averaging(Demasking):
    """What both attacks share."""

    def guessed(self, view: View, averages: Callable[[Rows, Sequence[Trace]], Tensor], stream: Stream) -> Tensor:
        """(n, …) the records. averages: of rows, with their traces, for each record."""
        known = Imitation(view)
        networks = self.networks(view, known)
        rows = [seen(model.released(r).view(-1, *r.shape), r.encoder, networks) for r in view.releases]
        some = min(len(known.held), max(_LEAST_TRIED, min(_MOST_TRIED, _TRIED // len(rows))))
        images, made, plans = known.held[model.spaced(len(known.held), some)], [], []
        for number, release in enumerate(view.releases):
            encoder, draws = release.encoder, stream.fork(f"release {number}")
            plan = encoder.plan(some, stream=draws.fork("plan"))
            mixed = known.rows(images, encoder)
            x = encoder.encode(mixed, torch.arange(some), plan, stream=draws.fork("noise")).x.double()
            made.append(seen(x if encoder.step is None else x * encoder.step, encoder, networks))
            plans.append(plan)
        mean = torch.cat([known.learnt, known.held]).double().mean(0)
        return _scaled(averages(rows, view.traces or ()), averages(made, plans), images.double(), mean)


@dataclass(frozen=True)
class AverageKnown(_Averaging):
    """The stronger attack: it knows which rows hold a record, its own rows and those in which it is a partner, and
    averages them, all alike as its authors do. Weighed by the weights an average says more: on digits, ten releases of
    four images a row, the error was a third less from Mixup's rows, and 4 % less from InstaHide's."""

    name: ClassVar[str] = "average-known"
    kind: ClassVar[AttackKind] = "reconstruction"
    needs: ClassVar[frozenset[str]] = frozenset({"traces", "public"})

    def __call__(self, view: View, *, stream: Stream) -> Guess:
        if view.traces is None or len(view.traces) != len(view.releases):
            raise ArgumentError("this attack needs the traces of all releases")
        return Guess(images=self.guessed(view, _by_record, stream))


@dataclass(frozen=True)
class AverageSimilar(_Averaging):
    """The weaker attack: it averages each row of the first release with the five rows of all releases that are most
    similar to it by SSIM."""

    name: ClassVar[str] = "average-similar"
    kind: ClassVar[AttackKind] = "reconstruction"
    needs: ClassVar[frozenset[str]] = frozenset({"public"})
    least_releases: ClassVar[int] = _SIMILAR + 1

    def cannot(self, view: View) -> Note | None:
        if any(release.label_epsilon is not None for release in view.releases):
            return note("attack-needs-row-order")
        return super().cannot(view)

    def __call__(self, view: View, *, stream: Stream) -> Guess:
        compare = Comparison.of(view)
        return Guess(images=self.guessed(view, lambda rows, traces: _by_looks(rows, compare), stream))


def _by_record(releases: Rows, traces: Sequence[Trace]) -> Tensor:
    """(n, …) the mean of all rows that hold each record."""
    total = torch.stack(list(releases)).sum(0)
    count = torch.full((len(total),), float(len(releases)), dtype=torch.float64)
    for rows, trace in zip(releases, traces, strict=True):
        for partner in trace.partner.T:
            inside = partner < len(total)  # others have no row of their own, or are covers
            total.index_add_(0, partner[inside], rows[inside])
            count.index_add_(0, partner[inside], count.new_ones(int(inside.sum())))
    return total / count.view(-1, 1, 1, 1)


def _by_looks(releases: Rows, compare: Comparison) -> Tensor:
    """(n, …) the mean of each row of the first release and those most similar to it."""
    rows, n = torch.cat(list(releases)), len(releases[0])
    most = min(_SIMILAR, len(rows) - 1)
    found = []
    for number, alike in compare.in_parts(releases[0], rows):
        alike[torch.arange(len(number)), number] = -torch.inf
        nearest = torch.cat([number[:, None], alike.topk(most, dim=1).indices], dim=1)
        found.append(torch.stack([rows[index].mean(0) for index in nearest]))
    return torch.cat(found)[:n]


def _scaled(averages: Tensor, tried: Tensor, truth: Tensor, mean: Tensor) -> Tensor:
    """Averages as guesses at records: their distance from the mean average, times what is best on public images, from
    the mean of all these. tried: averages of some public images; truth: these themselves, whose mean is not quite that
    of all: the mean average is as far off, by what an image adds to its average."""
    average, image = tried - tried.mean(0), truth - truth.mean(0)
    common = float((average * image).sum())
    gain = max(0.0, common / max(float(average.square().sum()), 1e-300))
    share = common / max(float(image.square().sum()), 1e-300)
    return mean + gain * (averages - tried.mean(0) - share * (mean - truth.mean(0)))
