"""Private images from rows of pairs behind hidden signs (Chen et al. 2020, "On InstaHide, phase retrieval, and sparse
matrix factorization"), where the values of images are independent normal draws.

The attacker holds rows and, where public images are mixed in, those. 1. The public images of a row: the leading
direction of the mean of x²(p pᵀ − I) (`shared.public_part`). 2. Which rows share private images, from sizes and squares
(`shared.row_gram`). 3. Six rows of all pairs of four images, and from there the images of all rows (`shared.floral`,
`shared.line_graph`). 4. The signs of these six rows, one place of the images at a time, and from there all images
(`shared.sign_patterns`); then weights and images by turns, up to rounding (`shared.pair_recovery`).

Where signs are hidden and no public image is mixed in, rows do not change if all images change their sign at one place:
images are told up to one sign a place, common to all, which is chosen so that their mean is not negative. Of masked
rows of one image each, no sign is told. Where signs are not hidden (mixup), least squares serve for steps 1 and 4;
under noise images are what least squares make of all rows, drawn to their mean as far as the noise asks. An image that
its rows leave open is given as the mean.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from mixveil.attacks.shared import model
from mixveil.attacks.shared.base import BaseAttack, CannotAttackError
from mixveil.attacks.shared.gaussian.determined import determined
from mixveil.attacks.shared.gaussian.line_graph import Gram, agreement, told_apart, told_by_owner, told_images
from mixveil.attacks.shared.gaussian.mixture_rows import MixtureRows
from mixveil.attacks.shared.gaussian.normal_values import not_normal
from mixveil.attacks.shared.gaussian.pair_recovery import label_weights, solution
from mixveil.attacks.shared.gaussian.row_gram import Measure
from mixveil.attacks.shared.gaussian.single_rows import grouped, least_squares
from mixveil.attacks.shared.gaussian.sparse_solve import Selection
from mixveil.attacks.shared.pool import Pool, out_of_order, private_sources
from mixveil.core.randomness import Stream
from mixveil.core.types import AttackKind, Encoder, Guess, View
from mixveil.core.wording.notes import Note, note
from mixveil.data.row_views import Subset

_PAIRS = 2
_MOST_ROWS = 2000
_MOST_VALUES = 1 << 27  # of all rows
_LOOKED_AT, _LOOKED_VALUES = 500, 1 << 23  # rows, and values, of a release that show whether the others tell enough
_VALUES_A_COVER = 20  # fewer do not show which covers a row holds
_EXPLAINED = 1e-5  # of a row's length may be left; float32 leaves a hundredth of it
_LEAST_EXPLAINED, _LEAST_TOLD = 0.5, 0.5  # of the rows, and of the images
_SURE, _LEAST_AGREEING = 0.98, 0.6  # of the pairs of rows that touch, or share an image as it found
_NO_WEIGHT = 1e-5
_SEEN = 5.0  # deviations: images vary more than the noise, from here on


@dataclass(frozen=True)
class Chen(BaseAttack):
    """From the rows of all releases, and the public images in them."""

    name: ClassVar[str] = "chen"
    kind: ClassVar[AttackKind] = "reconstruction"
    linear: ClassVar[bool] = False
    least_releases: ClassVar[int] = 6  # of fewer, too few rows share images (measured)

    def cannot(self, view: View) -> Note | None:
        return super().cannot(view) or out_of_order(view) or _beyond_reach(view)

    def __call__(self, view: View, *, stream: Stream) -> Guess:
        if (why := self.cannot(view)) is not None:
            raise CannotAttackError(why)
        pool, encoder = Pool.of(view), view.releases[0].encoder
        if pool.private < _PAIRS:
            images, sources = _of_single_rows(pool, encoder)
        else:
            rows = MixtureRows.of(view, pool)
            noisy = encoder.law != "none" and not encoder.masked
            images, sources = _under_noise(rows, pool, encoder) if noisy else _without_noise(rows, pool)
        return Guess(images=encoder.restore(images).view(-1, *pool.shape), sources=sources)


def _beyond_reach(view: View) -> Note | None:
    """Why the rows are not of the kind that this attack solves; None if they may be."""
    encoder = view.releases[0].encoder
    if any(release.encoder != encoder for release in view.releases):
        return note("attack-needs-one-encoder")
    count, values = sum(len(release.payload) for release in view.releases), torch.Size(view.releases[0].shape).numel()
    most = min(_MOST_ROWS, _MOST_VALUES // values)
    if count > most:
        return note("attack-needs-fewer-rows", most=most, rows=count)
    private = private_sources(encoder)
    if private > _PAIRS:
        return note("attack-needs-pairs")
    if private == _PAIRS and (why := not_normal(view.releases[0])) is not None:
        return why
    if not encoder.covers:
        return _too_few_values(view) if private == _PAIRS else None
    if view.covers is None or len(view.covers) != encoder.covers:
        return note("attack-needs", fields="covers")
    if encoder.covers * _VALUES_A_COVER > values:
        return note("attack-needs-fewer-covers", most=values // _VALUES_A_COVER, covers=encoder.covers)
    return None


def _too_few_values(view: View) -> Note | None:
    """Why rows do not show which of them share an image; None if they may. From some of the rows alone."""
    some = max(2, min(_LOOKED_AT, _LOOKED_VALUES // torch.Size(view.releases[0].shape).numel()))
    parts = [Subset(release.payload, model.spaced(len(release.payload), some)) for release in view.releases]
    releases = tuple(replace(release, payload=part) for release, part in zip(view.releases, parts, strict=True))
    view = replace(view, releases=releases)
    try:
        rows = MixtureRows.of(view, Pool.of(view))
    except CannotAttackError as error:
        return error.why
    return _unclear(rows, Measure.of(rows))


def _unclear(rows: MixtureRows, measure: Measure) -> Note | None:
    """The same, by a measure of what they share."""
    values, needed = rows.x.shape[1], measure.needed(rows.pair[:, 1])
    return note("attack-needs-more-values", values=values, needed=needed) if needed > values else None


def _of_single_rows(pool: Pool, encoder: Encoder) -> tuple[Tensor, Tensor]:
    """(n, d) the images of rows of one image each, and (m, 1) the image of each row."""
    x = pool.x.abs() if encoder.masked else pool.x
    noise = encoder.deviation(torch.ones(len(x), 1)).double().square()
    variance = (x.var(1, unbiased=False) - noise).mean()
    if bool((noise > 0).any()) and not float(variance) > _SEEN * float(noise.mean()) * (2 / x.numel()) ** 0.5:
        raise CannotAttackError(note("attack-drowned", noise=float(noise.mean().sqrt())))
    image = grouped(x, float(noise.mean())) if pool.own is None else pool.own
    count = int(image.max()) + 1
    found = least_squares(x, one_hot(image, count).double(), noise / variance)
    rest = x.mean(0).expand(max(0, pool.records - count), -1)
    return torch.cat([found, rest])[: pool.records], torch.where(image < pool.records, image, -1)[:, None]


def _told(rows: MixtureRows, pool: Pool) -> Tensor:
    """(m, n) the weights of images that the products of rows show; none in rows that show too little."""
    measure = Measure.of(rows)
    if (why := _unclear(rows, measure)) is not None:
        raise CannotAttackError(why)
    gram, clear = measure.gram(rows.pair), measure.clarity(rows.pair[:, 1]) > 1
    weight = None if pool.own is None else told_by_owner(gram, clear, pool.own, pool.records)
    if weight is None or _agreeing(gram, clear, weight) < _SURE:
        other = told_apart(gram, clear, pool.records)
        if weight is None or (other is not None and _agreeing(gram, clear, other) > _agreeing(gram, clear, weight)):
            weight = other
    if weight is None:
        raise CannotAttackError(note("attack-needs-floral"))
    _check_told(told_images(weight), pool.records)
    if (agreeing := _agreeing(gram, clear, weight)) < _LEAST_AGREEING:
        raise CannotAttackError(note("attack-rows-unexplained", explained=agreeing))
    if pool.own is not None:
        weight = weight[:, owners(weight.topk(_PAIRS, dim=1).indices, pool.own, pool.records).argsort()]
    return weight


def _agreeing(gram: Gram, clear: Tensor, weight: Tensor) -> float:
    """Of the pairs of clear rows that touch, or share an image by their weights (m, n): how many do both."""
    return agreement(gram.part(clear).touch, weight[clear])


def _without_noise(rows: MixtureRows, pool: Pool) -> tuple[Tensor, Tensor]:
    """(n, d) images, and (m, 2) the images of each row, −1 in rows that they do not explain."""
    found = solution(rows, _told(rows, pool), pool.y)
    if found is None:
        raise CannotAttackError(note("attack-needs-floral"))
    explained = found.left < _EXPLAINED
    if (share := float(explained.double().mean())) < _LEAST_EXPLAINED:
        raise CannotAttackError(note("attack-rows-unexplained", explained=share))
    held = found.selection.of(explained)
    told = determined(held, label_weights(pool.y[explained], held, pool.records)[1], pool.records, rows.masked)
    _check_told(int(told.sum()), pool.records)
    images = torch.where(told[:, None], found.images, 0.0 if rows.masked else rows.x.mean()) * rows.scale
    if rows.masked and not len(rows.covers):
        images = images * torch.where(images.mean(0) < 0, -1.0, 1.0)
    sources = torch.where(explained[:, None], _named(found.selection), -1)
    if pool.own is None:
        return images, sources
    record = owners(sources, pool.own, pool.records)
    return images[record.argsort()], torch.where(sources < 0, sources, record[sources.clamp(min=0)])


def _check_told(told: int, records: int) -> None:
    if told < _LEAST_TOLD * records:
        raise CannotAttackError(note("attack-needs-connected", told=told, records=records))


def _under_noise(rows: MixtureRows, pool: Pool, encoder: Encoder) -> tuple[Tensor, Tensor]:
    """The same from rows under noise: weights as labels or products show them, and least squares."""
    weight = _told(rows, pool)
    told = weight.sum(1) > 0
    two = weight[told].topk(_PAIRS, dim=1)
    source, share, noise = two.indices, two.values, rows.noise[told]
    if pool.own is not None:
        other = source[:, :1] != pool.own[told, None]
        source, share = torch.where(other, source.flip(1), source), torch.where(other, share.flip(1), share)
    held = Selection(source, share, rows.cover[told], rows.share[told])
    shown, fixed = label_weights(pool.y[told], held, pool.records)
    held = replace(held, weight=torch.where(fixed[:, None], shown, share))
    if pool.own is not None:  # the first weight is the own image's, and the noise is that of the other
        noise = encoder.deviation(held.weight).square() / rows.scale**2
    images = least_squares(rows.x[told], held.dense(pool.records), noise) * rows.scale
    sources = torch.full((len(told), _PAIRS), -1)
    sources[told] = source
    return images, sources


def _named(selection: Selection) -> Tensor:
    """(m, 2) the images of rows; one of them twice, where the other has no weight."""
    alone = selection.weight < _NO_WEIGHT
    return torch.where(alone, selection.source.flip(1), selection.source)


def owners(sources: Tensor, own: Tensor, records: int) -> Tensor:
    """(n,) the record that each image is: so that as many rows as can be hold the record whose row they are, (m,) own.
    sources: (m, 2) images, −1 where it is not known."""
    from scipy.optimize import linear_sum_assignment

    count = torch.zeros(records, records)
    for image in sources.T:
        known = image >= 0
        count.index_put_((image[known], own[known]), torch.ones(int(known.sum())), accumulate=True)
    return torch.from_numpy(linear_sum_assignment(-count.numpy())[1])
