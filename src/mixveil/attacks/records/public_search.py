"""Which public images are in a row? One inner product with each tells (Huang et al. 2020, Section 2.2, Theorem B.3).

    ⟨x̃, z⟩ ≈ λ‖z‖²  if z is in the row with the weight λ;  ≈ 0 if it is not

There is no need to try combinations: N products a row find all of its covers. As for rows (`inner_product`), this is
done where rows vary alike. What was found is taken out of the row with its weight, by least squares, and the search
goes on in the rest. What is left then is the private part.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from mixveil.attacks.shared import model
from mixveil.attacks.shared.covers import Blocks, CoverAttack, changed, entering, mean, scores
from mixveil.attacks.shared.whitening import whitening
from mixveil.core.randomness import Stream
from mixveil.core.types import Guess, View

_DRAWS = 400  # of the weights' law
_STANDS_OUT = 5.0  # deviations of a row's scores: below, a cover is not taken out


@dataclass(frozen=True)
class PublicSearch(CoverAttack):
    """How far each cover stands out of each row, those that stand out further being taken out first; and what is left
    of a row as a guess at its own record. Where signs are hidden nothing is left to guess from."""

    name: ClassVar[str] = "public-search"

    def __call__(self, view: View, *, stream: Stream) -> Guess:
        release, blocks = view.releases[0], entering(view)
        law = release.encoder.plan(_DRAWS, stream=stream.fork("law"))
        rows, usual = model.released(release), mean(blocks)
        flat = rows - rows.mean(0)
        space = whitening(flat, release.shape)
        private = law.partner[0] < _DRAWS
        white = changed(blocks, lambda z: space.white(z - usual))
        found = _pursued(space.white(flat).float(), white, int((~private).sum()))
        if release.encoder.masked:
            return Guess(covers=found.scores)
        own = law.weight[:, torch.cat([torch.ones(1, dtype=torch.bool), private])].double()
        labels = release.payload.take(torch.arange(len(rows))).y.double()
        images = _own(rows, found, blocks, own / own.sum(1, keepdim=True), labels.sum(1, keepdim=True))
        return Guess(covers=found.scores, images=release.encoder.restore(images).view(-1, *release.shape))


class Found(NamedTuple):
    """scores: (n, p); cover: (n, q) those that were taken out, −1 for none; weight: (n, q) theirs."""

    scores: Tensor
    cover: Tensor
    weight: Tensor


def _pursued(rows: Tensor, blocks: Blocks, most: int) -> Found:
    """Take the cover that stands out furthest out of every row (n, d), at most so often."""
    cover, kept = torch.full((len(rows), most), -1), torch.zeros(len(rows), most)
    told, weight = scores(rows, blocks), torch.zeros(len(rows), most)
    for step in range(most):
        best = told.max(1)
        far = best.values > _STANDS_OUT * told.square().mean(1).sqrt()
        cover[:, step], kept[:, step] = torch.where(far, best.indices, -1), best.values
        vectors = _picked(cover, blocks, rows)
        weight = _fitted(rows, vectors)
        told = scores(rows - torch.einsum("nq,nqd->nd", weight, vectors), blocks)
    row, place = (cover >= 0).nonzero().T
    told[row, cover[row, place]] = kept[row, place]
    return Found(told, cover, weight)


def _picked(cover: Tensor, blocks: Blocks, like: Tensor) -> Tensor:
    """(n, q, d) the covers of these numbers (n, q), nought for −1."""
    found, start = torch.zeros(*cover.shape, like.shape[1], dtype=torch.float32), 0
    for block in blocks():
        here = (cover >= start) & (cover < start + len(block))
        found[here] = block[cover[here] - start]
        start += len(block)
    return found


def _fitted(rows: Tensor, vectors: Tensor) -> Tensor:
    """(n, q) the weights by which vectors (n, q, d) come nearest to rows (n, d); nought for vectors of nought."""
    gram = torch.einsum("nqd,npd->nqp", vectors, vectors).double()
    gram.diagonal(dim1=1, dim2=2).add_((gram.diagonal(dim1=1, dim2=2) == 0).double())
    gram.diagonal(dim1=1, dim2=2).mul_(1 + 1e-6)  # a cover that was taken out twice
    inner = torch.einsum("nqd,nd->nq", vectors, rows).double()
    weight: Tensor = torch.linalg.solve(gram, inner)
    return weight.float()


def _own(rows: Tensor, found: Found, blocks: Blocks, law: Tensor, private: Tensor) -> Tensor:
    """(n, d) the records that rows (n, d) are of: what is left without their covers, less the mean record, scaled to
    the best linear guess at one of the private images. law: (m, s) how private images share what is private of a row;
    private: (n, 1) how much that is, as labels show it. Covers that were not found count as noise."""
    weight = found.weight.double()
    left = rows - torch.einsum("nq,nqd->nd", weight, _picked(found.cover, blocks, rows).double())
    share = 1 - weight.sum(1, keepdim=True)
    mean = left.sum(0) / share.sum()
    missed = (found.cover < 0).sum(1, keepdim=True).clamp(min=1)
    spread = private.square() * law.square().sum(1).mean() + (share - private).square() / missed
    return mean + private * law[:, 0].mean() / spread * (left - share * mean)
