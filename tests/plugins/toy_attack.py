"""An attack that the package does not know: it looks through random signs, as InstaHide draws them.

Signs do not change absolute values, and |w₁z_i + w₂z_j| goes with |z_i|: a candidate's own row is the one whose
absolute values correlate best with the candidate's. It takes neither the pairing nor the weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from mixveil.attacks.shared.base import BaseAttack
from mixveil.attacks.shared.model import released
from mixveil.core.errors import ArgumentError
from mixveil.core.randomness import Stream
from mixveil.core.types import AttackKind, Guess, View
from mixveil.core.wording.sentences import add

add({"threat-absolute-values": "They hold the original image, and compare absolute values: signs do not hide those."})


@dataclass(frozen=True)
class AbsoluteValues(BaseAttack):
    """Which row is a candidate's own? By the correlation of absolute values, summed over releases.

    Register it by `ATTACKS.register(AbsoluteValues)` (`mixveil.attacks.catalogue`)."""

    name: ClassVar[str] = "absolute-values"
    kind: ClassVar[AttackKind] = "linkage"
    needs: ClassVar[frozenset[str]] = frozenset({"candidates"})
    linear: ClassVar[bool] = False

    def __call__(self, view: View, *, stream: Stream) -> Guess:
        if view.candidates is None:
            raise ArgumentError("this attack needs candidates")
        links = torch.zeros(1, dtype=torch.float64)
        for release in view.releases:
            links = links + _sizes(release.encoder.prepare(view.candidates)) @ _sizes(released(release)).T
        return Guess(links=links)


def _sizes(x: Tensor) -> Tensor:
    """(n, d) absolute values, centred and of length one."""
    size = x.abs() - x.abs().mean(1, keepdim=True)
    return torch.nn.functional.normalize(size)
