"""Encodings that attackers make of public images, by a release's own settings: they know what these are made of."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from mixveil.attacks.shared.demasking import Imitation
from mixveil.core.randomness import Stream
from mixveil.core.types import Encoder


class Encodings(NamedTuple):
    """Rows of several encodings of the same images, one encoding after another.

    Attributes:
        rows: (m, c, h, w) float32, as a release would have them.
        sources: (m, s) the images of each row, its own first; covers are not among them.
        weights: (m, s) theirs.
        moves: (m, s, 3) how each was moved before it was mixed.
    """

    rows: Tensor
    sources: Tensor
    weights: Tensor
    moves: Tensor


def encodings(
    encoder: Encoder, known: Imitation, images: Tensor, times: int, stream: Stream, *, still: bool = False
) -> Encodings:
    """Public images (n, c, h, w), encoded so many times. still: no image is moved, whatever the encoder does."""
    count, mixed, made = len(images), known.rows(images, encoder), list[Encodings]()
    index = torch.arange(count)
    for _ in range(times):
        plan = encoder.plan(count, stream=stream.fork("plan"))
        if still and encoder.moved:
            plan = replace(plan, extra={**plan.extra, "moves": torch.zeros_like(plan.extra["moves"])})
        x = encoder.encode(mixed, index, plan, stream=stream.fork("noise")).x
        members = torch.cat([index[:, None], plan.partner], dim=1)
        private = (members < count).all(0)
        moves = encoder.observation(plan).moves(index)
        moves = torch.zeros(*members.shape, 3) if moves is None else moves
        rows = (x if encoder.step is None else x * encoder.step).float()
        made.append(Encodings(rows, members[:, private], plan.weight[:, private].double(), moves[:, private].long()))
    return Encodings(*(torch.cat(part) for part in zip(*made, strict=True)))
