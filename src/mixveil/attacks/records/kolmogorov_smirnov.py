"""Are the rows of different records distributed differently? (Huang et al. 2020, Appendix E.3.)

Seven statistics of a row: the mean and the deviation of its values, its total variation, and the values at four random
places. The paper compares one encoding at a time, a sample of one, with all others, and averages the p-values of 50
such tests (`paper_tables`). A sample of one says next to nothing: its p-value is small only far out in a tail, and the
average is about a half for any record whose rows are not all in one tail, whatever the defence. The attack compares
all rows of a record with all rows of the others, in one test a statistic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from mixveil.attacks.shared import model
from mixveil.attacks.shared.base import CannotAttackError, ImageAttack
from mixveil.core.errors import ArgumentError
from mixveil.core.randomness import Stream
from mixveil.core.types import AttackKind, Guess, View
from mixveil.core.wording.notes import Note, note

PLACES = 4
_DRAWS = 50  # of the paper


@dataclass(frozen=True)
class KolmogorovSmirnov(ImageAttack):
    """Row i of every release being of record i. With 20 rows of a record the test tells, at one in a thousand, a
    distribution whose distance from the others' is 0.43 of what is possible; a constant is always told, as its distance
    is 0.5 at least."""

    name: ClassVar[str] = "kolmogorov-smirnov"
    kind: ClassVar[AttackKind] = "distribution"
    linear: ClassVar[bool] = False
    least_releases: ClassVar[int] = 20

    def cannot(self, view: View) -> Note | None:
        if any(release.label_epsilon is not None for release in view.releases):
            return note("attack-needs-row-order")
        if len(view.releases) < self.least_releases:
            return note("attack-needs-releases", needed=self.least_releases, releases=len(view.releases))
        return super().cannot(view)

    def __call__(self, view: View, *, stream: Stream) -> Guess:
        if len({len(release.payload) for release in view.releases}) != 1:
            raise CannotAttackError(note("attack-needs-equal-rows"))
        shape = view.releases[0].shape
        places = stream.permutation(torch.Size(shape).numel())[:PLACES]
        rows = (model.released(release).view(-1, *shape) for release in view.releases)
        return Guess(apart=p_values(torch.stack([statistics(x, places) for x in rows], dim=1)))


def statistics(x: Tensor, places: Tensor) -> Tensor:
    """(n, 3 + places) of images (n, c, h, w): mean, deviation, total variation, and the values at these places."""
    flat = x.flatten(1).double()
    down, across = ((x.double().diff(dim=way)).abs().flatten(1).sum(1) for way in (2, 3))
    return torch.cat([torch.stack([flat.mean(1), flat.std(1), down + across], dim=1), flat[:, places]], dim=1)


def p_values(told: Tensor) -> Tensor:
    """(n, s) of the two-sample test of each record's own figures against those of all others. told: (n, T, s).

    F, the share of figures up to a value, is N/(N − T) times as far from the others' as from that of all N figures
    together: one sorting serves all records. p-values as `scipy.stats.ks_2samp` has them with method="asymp"."""
    from scipy.stats import kstwo

    n, times, _ = told.shape
    if n < 2:
        raise ArgumentError(f"rows of one record are compared with those of others, got {n} record")
    total, found = n * times, []
    for figures in told.unbind(2):
        own, everything = figures.sort(1).values.contiguous(), figures.flatten().sort().values
        here, below = torch.searchsorted(own, own, right=True), torch.searchsorted(own, own)
        all_here, all_below = (torch.searchsorted(everything, own, right=side).double() for side in (True, False))
        apart = torch.maximum(
            (here.double() / times - all_here / total).abs(), (below.double() / times - all_below / total).abs()
        )
        found.append(apart.amax(1) * total / (total - times))
    size = round(times * (total - times) / total)
    return torch.from_numpy(kstwo.sf(torch.stack(found, dim=1).clamp(max=1).numpy(), size)).clamp(0, 1)


class PaperTables(NamedTuple):
    """p_all, p_other: (images, statistics) average p-values of single encodings against all encodings, their own
    image's among them, and against those of other images."""

    p_all: Tensor
    p_other: Tensor


def paper_tables(told: Tensor, *, stream: Stream, draws: int = _DRAWS) -> PaperTables:
    """The paper's table, from statistics (images, encodings, s): each of so many encodings of an image alone."""
    images, encodings, count = told.shape
    if images < 2 or not 1 <= draws <= encodings:
        raise ArgumentError(f"{draws} draws need as many encodings of two images, got {encodings} of {images}")
    chosen = torch.stack([stream.permutation(encodings)[:draws] for _ in range(images)])
    alone = told.gather(1, chosen[:, :, None].expand(-1, -1, count))
    p_all, p_other = torch.empty(images, count), torch.empty(images, count)
    for image in range(images):
        others = torch.cat([told[:image], told[image + 1 :]]).flatten(0, 1)
        p_all[image] = p_of_one(alone[image], told.flatten(0, 1)).mean(0)
        p_other[image] = p_of_one(alone[image], others).mean(0)
    return PaperTables(p_all, p_other)


def p_of_one(alone: Tensor, sample: Tensor) -> Tensor:
    """(m, s) exact p-values of single figures (m, s), each against a sample (N, s). All N + 1 places of a new figure
    among N are as likely, and its distance is the larger share of the sample on one side of it."""
    size, found = len(sample), []
    for one, others in zip(alone.T.contiguous(), sample.T.contiguous(), strict=True):
        others = others.sort().values
        below, up_to = (torch.searchsorted(others, one, right=right) for right in (False, True))
        side = torch.maximum(below, size - up_to)
        found.append((2 * (size - side + 1) / (size + 1)).clamp(max=1))
    return torch.stack(found, dim=1)
