"""The rows of a record become one image: reweighed, fused by a network, and denoised by another (Luo et al. 2022).

Each row is divided by the weight of the record in it. A network takes every row to half its resolution, where images
that do not lie quite on one another still meet; what it finds in all rows is fused, by the largest value of up to ten
rows and by the mean of more, and taken back to the full size. A second network makes an image of that and of the
weighed mean of all rows. Both learn from the rows of public images, by 0.3 · L1 − 0.7 · SSIM as published.

Luo et al. fuse rows as they lie. Here the moves of the rows are known from comparing them (`prototypes`), and undone
first; and rows come demasked, beside their absolute values.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from mixveil.attacks.shared import nets
from mixveil.data import similarity
from mixveil.data.moves import moved_back

HEAVIEST = 24
"""Rows of a record that are fused: those that hold most of it."""

_FEW = 10  # rows: of so many the largest value counts, of more the mean
_LIGHT = 0.05  # the least weight that rows are divided by
_RIDGE = 0.2  # the variance of what else a row holds, and of wrong signs, in one of a record's
_BLOCK = 1000


class RecordRows(NamedTuple):
    """The rows of every record.

    Attributes:
        mean: (n, c, h, w) the weighed mean of all of them.
        rows: (n, r, 2c + 2, h, w) the heaviest: demasked and in size, both over the weight (0.05 at least) and over
            √(1 + errors); where a row reaches after it was moved back; and the weight.
        there: (n, r) whether a record has so many rows.
    """

    mean: Tensor
    rows: Tensor
    there: Tensor


class Rows(NamedTuple):
    """Rows to fuse, in units of the deviation of a record's value.

    Attributes:
        demasked, size: (m, c, h, w), without what all rows have in common.
        errors: (m,) the variance of an encoder's noise in one value.
        sources, weights: (m, s) the records of each.
        moves: (m, s, 3) how these were moved.
    """

    demasked: Tensor
    size: Tensor
    errors: Tensor
    sources: Tensor
    weights: Tensor
    moves: Tensor


def gathered(rows: Rows, records: int) -> RecordRows:
    """The rows of every record, moved back and reweighed."""
    channels, height, width = rows.demasked.shape[1:]
    held = torch.zeros(len(rows.sources), records + 1)
    held.scatter_add_(1, rows.sources.masked_fill(rows.sources < 0, records), rows.weights.float())
    held = held[:, :records]
    place = (rows.sources[:, :, None] == torch.arange(records)).int().argmax(1)  # (m, n): the column of a record
    errors = _RIDGE + rows.errors.float()
    total, weight = torch.zeros(records, channels, height, width), (held.square() / errors[:, None]).sum(0)
    for part in torch.split((held > 0).nonzero(), _BLOCK):
        row, record = part.T
        back = moved_back(rows.demasked[row], rows.moves[row, place[row, record]], 0.0)
        total.index_add_(0, record, back.float() * (held[row, record] / errors[row]).view(-1, 1, 1, 1))
    mean = total / (weight + 1).view(-1, 1, 1, 1)
    heavy = held.topk(max(1, min(HEAVIEST, int((held > 0).sum(0).max()))), dim=0)
    row, share = heavy.indices.T, heavy.values.T
    record = torch.arange(records)[:, None].expand_as(row)
    move = rows.moves[row, place[row, record]].flatten(0, 1)
    over = share.clamp(min=_LIGHT).flatten().view(-1, 1, 1, 1)
    deviation = (1 + rows.errors.float()).sqrt()[row.flatten()].view(-1, 1, 1, 1)
    both = torch.cat([rows.demasked[row.flatten()], rows.size[row.flatten()]], dim=1).float() / (over * deviation)
    one = torch.ones(len(over), 1, height, width)
    whole = torch.cat([moved_back(torch.cat([both, one], dim=1), move, 0.0), one * over], dim=1)
    return RecordRows(mean, whole.view(*row.shape, *whole.shape[1:]), share > 0)


class Fuser(nn.Module):
    """Both networks: of records' rows, what is fused and the image in the end, each (n, c, h, w)."""

    def __init__(self, channels: int, base: int) -> None:
        super().__init__()
        self.relaxed = nn.Sequential(
            nn.Conv2d(2 * channels + 2, base, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(base, 2 * base, 3, stride=2, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(2 * base, 2 * base, 3, padding=1),
        )
        self.raised = nn.Sequential(
            nn.ConvTranspose2d(2 * base, base, 2, 2), nn.ReLU(inplace=True), nn.Conv2d(base, channels, 3, padding=1)
        )
        self.denoised = nets.UNet(2 * channels, channels, base)

    def begin(self) -> None:
        """What is made in the beginning is the weighed mean of all rows."""
        with torch.no_grad():
            for last in (self.raised[-1], self.denoised.out):
                for parameter in last.parameters():
                    parameter.zero_()

    def forward(self, given: RecordRows) -> tuple[Tensor, Tensor]:
        count, rows = given.there.shape
        height, width = given.mean.shape[2:]
        told = self.relaxed(given.rows.flatten(0, 1)).unflatten(0, (count, rows))
        there = given.there.view(count, rows, 1, 1, 1)
        if rows <= _FEW:
            fused = told.masked_fill(~there, -torch.inf).amax(1).clamp(min=-1e4)
        else:
            fused = (told * there).sum(1) / there.sum(1).clamp(min=1)
        image = given.mean + self.raised(fused)[..., :height, :width]
        return image, image + self.denoised(torch.cat([given.mean, image], dim=1))


def loss(guess: Tensor, truth: Tensor) -> Tensor:
    """0.3 · L1 − 0.7 · SSIM of images (n, c, h, w) in [0, 1]."""
    return 0.3 * (guess - truth).abs().mean() - 0.7 * similarity.ssim(truth, guess).mean().float()
