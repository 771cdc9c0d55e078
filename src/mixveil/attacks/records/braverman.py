"""Which public images are in a row whose signs are hidden? By fourth moments (Braverman; Huang et al. 2020, Section 9).

    v_s = ⟨x̃², s²⟩ − ‖x̃‖²‖s‖²/d:  larger for an image s that is in the row, if values are like independent Gaussians

Natural images are not like that, but an attacker need not stop there. The squares of all rows show how squares vary and
hang together; where they vary alike (`shared.whitening`), the inner product of x̃² with s² is a test of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from mixveil.attacks.shared import model
from mixveil.attacks.shared.covers import Blocks, CoverAttack, changed, entering, mean, scores
from mixveil.attacks.shared.whitening import squares, whitening
from mixveil.core.randomness import Stream
from mixveil.core.types import Guess, Release, View


@dataclass(frozen=True)
class Braverman(CoverAttack):
    """The score as it was proposed. Values are centred; where signs are not hidden, by the means of rows and covers."""

    name: ClassVar[str] = "braverman"

    def __call__(self, view: View, *, stream: Stream) -> Guess:
        release, blocks = view.releases[0], entering(view)
        rows = model.released(release).float()
        energy = (rows if release.encoder.masked else rows - rows.mean(0)).square()
        expected = energy.sum(1, keepdim=True) / energy.shape[1]
        found = [energy @ block.T - expected * block.sum(1) for block in _squared(blocks, release)()]
        return Guess(covers=torch.cat(found, dim=1))


@dataclass(frozen=True)
class BravermanWhitened(CoverAttack):
    """The same where squares vary alike, and over each cover's length there."""

    name: ClassVar[str] = "braverman-whitened"

    def __call__(self, view: View, *, stream: Stream) -> Guess:
        release, blocks = view.releases[0], _squared(entering(view), view.releases[0])
        rows, usual = squares(release, model.released(release)), mean(blocks)
        space = whitening(rows, release.shape)
        return Guess(covers=scores(space.white(rows).float(), changed(blocks, lambda s: space.white(s - usual))))


def _squared(blocks: Blocks, release: Release) -> Blocks:
    middle = torch.zeros(1) if release.encoder.masked else mean(blocks)
    return changed(blocks, lambda s: (s - middle).square())
