"""Images from rows of pairs, once it is known which rows hold which images, and about how much of each.

Weights are made exact on some of the values, as these are many times more than weights; all values then follow. A row
of which it was not known what it holds is compared with the images that others gave.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from mixveil.attacks.shared.gaussian import sign_patterns
from mixveil.attacks.shared.gaussian.line_graph import summing_to
from mixveil.attacks.shared.gaussian.mixture_rows import MixtureRows
from mixveil.attacks.shared.gaussian.public_part import coordinates
from mixveil.attacks.shared.gaussian.sparse_solve import Selection, solved

_VALUES = 4096
_ROUNDS = 6
_EXACT = 1e-6  # of a row's length: what float32 leaves
_FITTING = 3.0  # times what a typical row leaves, and at least
_WRONG = 0.02  # of its length, is what a row leaves that holds another image
_GOOD = 2.0  # times what a typical value leaves


@dataclass(frozen=True)
class Solution:
    """images: (n, d); selection: of all rows; left: (m,) what of each row's length they do not explain."""

    images: Tensor
    selection: Selection
    left: Tensor


def solution(rows: MixtureRows, weight: Tensor, y: Tensor) -> Solution | None:
    """Images, and what each row is made of. weight: (m, n) two a row, or none where a row is not told; y: (m, classes)
    labels. None where signs are hidden, and no four images have rows of all their pairs."""
    some = replace(rows, x=rows.x[:, :_VALUES], covers=rows.covers[:, :_VALUES])
    most = weight.topk(2, dim=1)
    selection, told = Selection(most.indices, most.values, rows.cover, rows.share), weight.sum(1) > 0
    for _ in range(_ROUNDS):
        images = images_of(some, selection, told, weight.shape[1])
        if images is None:
            return None
        good = _good_values(some, selection.of(told), told, images)
        seen = replace(some, x=some.x[:, good], covers=some.covers[:, good])
        selection, left = _compared(seen, images[:, good], selection, told)
        exact = bool((left[told] < _EXACT).all())
        told = left <= max(_FITTING * float(left[told].median()), _WRONG)
        if exact:
            break
        selection = _solved(seen, images[:, good], selection, told, y)
    images = images_of(rows, selection, told, weight.shape[1])
    return None if images is None else Solution(images, selection, misfit(rows, selection, images))


def images_of(rows: MixtureRows, selection: Selection, told: Tensor, count: int) -> Tensor | None:
    """(count, d) images from those rows that are told, (m,) booleans."""
    held = selection.of(told)
    weight, part, x = held.dense(count), held.part(rows.covers), rows.x[told]
    if not rows.masked:
        images: Tensor = torch.linalg.pinv(weight) @ (x - part)
        return images
    floral = sign_patterns.strongest_floral(weight)
    return None if floral is None else sign_patterns.recovered(x, part, weight, *floral)


def misfit(rows: MixtureRows, selection: Selection, images: Tensor) -> Tensor:
    """(m,) what of each row's length images and covers do not explain."""
    made = selection.dense(len(images)) @ images + selection.part(rows.covers)
    apart = (made.abs() if rows.masked else made) - rows.x
    return (apart.square().sum(1) / rows.x.square().sum(1).clamp(min=1e-300)).sqrt()


def label_weights(y: Tensor, selection: Selection, count: int) -> tuple[Tensor, Tensor]:
    """(m, 2) the weights of each row as its label shows them, and (m,) whether it does: where both images have classes
    of their own. An image's class is that which most of its rows have."""
    held = selection.dense(count) > 0
    kind = (held.T.to(y.dtype) @ (y > 0).to(y.dtype)).argmax(1)[selection.source]
    shown = y.gather(1, kind)
    complete = (shown.sum(1) - selection.weight.sum(1)).abs() < 1e-5
    return shown, (kind[:, 0] != kind[:, 1]) & complete & ((y > 0).sum(1) == 2)


def _good_values(rows: MixtureRows, held: Selection, told: Tensor, images: Tensor) -> Tensor:
    """(d,) the values at which images fit most rows: elsewhere some signs are wrong."""
    if not rows.masked:
        return torch.ones(rows.x.shape[1], dtype=torch.bool)
    left = sign_patterns.misfit(rows.x[told], held.part(rows.covers), held.dense(len(images)), images)
    return left <= _GOOD * left.median()


def _compared(rows: MixtureRows, images: Tensor, selection: Selection, told: Tensor) -> tuple[Selection, Tensor]:
    """What each row holds of all images and covers, the two images and the covers of which it has most; and (m,) what
    they leave of it."""
    known = torch.cat([images, rows.covers])
    signed = rows.x
    if rows.masked:
        made = selection.dense(len(images)) @ images + selection.part(rows.covers)
        signed = rows.x * torch.where(made < 0, -1.0, 1.0)
    held = signed @ known.T @ torch.linalg.pinv(known @ known.T)
    if rows.masked and not bool(told.all()):
        held[~told] = coordinates(rows.x[~told], known)
    private, public = held[:, : len(images)].clamp(min=0), held[:, len(images) :]
    two, cover = private.topk(2, dim=1), public.topk(selection.cover.shape[1], dim=1)
    weight = summing_to(two.values + 1e-300, rows.total)
    chosen = Selection(two.indices, weight, cover.indices, cover.values)
    return chosen, misfit(rows, chosen, images)


def _solved(rows: MixtureRows, images: Tensor, selection: Selection, told: Tensor, y: Tensor) -> Selection:
    """The weights of the rows that are told, exactly if their signs and sources are right; others keep theirs."""
    held = selection.of(told)
    x = rows.x[told]
    if rows.masked:
        x = sign_patterns.signed(x, held.part(rows.covers), held.dense(len(images)), images)
    both = torch.cat([x, rows.covers])
    shown, fixed = label_weights(y[told], held, len(images))
    start = replace(held, weight=torch.where(fixed[:, None], shown, held.weight))
    found = solved(both @ both.T / both.shape[1], start, len(images), fixed)
    weight, share = selection.weight.clone(), selection.share.clone()
    weight[told], share[told] = found.weight, found.share
    return replace(selection, weight=weight, share=share)
