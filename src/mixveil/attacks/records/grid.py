"""Grid check: normals made from few random bits betray the true pair of sources by their low-order bits.

Box–Muller turns a uniform u into two normals with u = exp(−(z₁² + z₂²)/2). When u has only b bits, that value
lies on the grid 2⁻ᵇ for the true pair of sources and nowhere in particular for any other. Normals from 53 bits
and more, rounded to a public grid, leave no such trace; the check stays here to watch our own noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from mixveil.attacks.shared import pairs as _pairs
from mixveil.attacks.shared.base import PASS, BaseAttack
from mixveil.core.randomness import Stream
from mixveil.core.types import AttackKind, Guess, Sizes, View
from mixveil.core.wording.notes import Note, note

_TELLING = 6.0  # z₁² + z₂² below which rounding is as coarse as the grid, and a pair of normals tells nothing
_FEW_BEYOND, _UNLIKELY = 4, math.log(10)  # normals beyond the reach of a pair that is looked at, and against each
_MARGIN = 1e-2  # of that, for single precision
_LEAST_VALUES = 512  # rows of fewer do not show how their noise was drawn
_PASSES = 3  # over the values of a pair of candidates
_VALUES = 2048  # of each half of a row are looked at: enough to tell, also of wide rows


@dataclass(frozen=True)
class Grid(BaseAttack):
    """Coordinates are paired as generators pair them: neighbours, the two halves of each 16 (as torch does), the two
    halves of a row. bits: of the uniforms; each number is tested for."""

    name: ClassVar[str] = "grid"
    kind: ClassVar[AttackKind] = "pairs"
    needs: ClassVar[frozenset[str]] = frozenset({"candidates"})
    bits: tuple[int, ...] = (24, 25)

    def work(self, sizes: Sizes) -> float:
        """Two weights of a row, and all pairs of candidates."""
        return 2.0 * sizes.rows * sizes.candidates**2 * min(sizes.values, 2 * _VALUES) * _PASSES * PASS

    def cannot(self, view: View) -> Note | None:
        if missing := super().cannot(view):
            return missing
        if view.releases[0].encoder.law == "sphere":
            return note("attack-not-for-sphere-noise")
        few = math.prod(view.releases[0].shape) < _LEAST_VALUES
        return note("attack-needs-values", least=_LEAST_VALUES) if few else None

    def __call__(self, view: View, *, stream: Stream) -> Guess:
        known = _pairs.candidates(view)
        seen = looked_at(known.shape[1])
        known = known[:, seen]
        sigma = view.releases[0].encoder.sigma or 1.0
        n = len(view.releases[0].payload)
        pairs, doubts = torch.full((n, 2), -1), torch.full((n,), math.inf, dtype=torch.float64)
        columns = [layout[0] for layout in layouts(torch.arange(len(seen))[None])]
        for row, whole, _, weights in _pairs.questions(view):
            for own, other in weights:
                first, second = own / (other * sigma) * known, known / sigma
                rest = whole[seen] / (other * sigma) - first
                for number, alone in enumerate(rest):
                    doubt = -_best_evidence(alone, second, columns, self.bits)
                    doubt[number] = math.inf  # no record is paired with itself
                    best = int(doubt.argmin())
                    if doubt[best] < doubts[row]:
                        doubts[row] = doubt[best]
                        pairs[row] = torch.tensor([number, best])
        return Guess(pairs=pairs, doubts=doubts)


def _best_evidence(rest: Tensor, second: Tensor, columns: list[Tensor], bits: tuple[int, ...]) -> Tensor:
    """(c,) of the normals that each of `second` (c, d) leaves of the rest (d,): the evidence in the layout, and of the
    bits, that are likeliest. columns: (2, k) of each layout. Most pairs of normals tell nothing, and which do is seen
    in single precision. No uniform of so few bits makes normals beyond a reach: of a pair of sources that leaves
    several there nothing else is asked."""
    squares = (rest.float() - second.float()).square_()
    reach = 2 * math.log(2) * max(bits) + 1
    found = []
    for layout, (one, other) in zip(layouts(squares), columns, strict=True):
        energies = layout[:, 0] + layout[:, 1]
        beyond = (energies > reach).sum(1)
        possible = beyond <= _FEW_BEYOND
        place, pair = ((energies > _TELLING - _MARGIN) & possible[:, None]).nonzero().T
        left = [rest[column[pair]] - second[place, column[pair]] for column in (one, other)]
        energy = left[0].square() + left[1].square()
        telling = energy > _TELLING
        told = [evidence(energy[telling], place[telling], len(second), number) for number in bits]
        found += [torch.where(possible, one_of, -_UNLIKELY * beyond) for one_of in told]
    return torch.stack(found).amax(0)


def looked_at(d: int) -> Tensor:
    """Which of d values: all, or the first of both halves of a wide row, so that layouts find their pairs."""
    if d <= 2 * _VALUES:
        return torch.arange(d)
    first = torch.arange(_VALUES)
    return torch.cat([first, d // 2 + first])


def evidence(energy: Tensor, place: Tensor, count: int, bits: int) -> Tensor:
    """(count,) log-likelihood ratios of lying on the grid 2⁻ᵇ against lying anywhere, from the energies z₁² + z₂²
    (m,) of normal pairs that tell something, and for which of `count` each counts."""
    steps = torch.exp(-energy / 2) * 2.0**bits
    miss = steps - steps.round()
    # Float32 rounding of the normals, carried over to u, and a generator's own few roundings.
    spread = steps * (energy + 1) * 2.0**-24.5 + 0.02
    near = sum(torch.exp(-((miss + turn) / spread).square() / 2) for turn in (-1, 0, 1)) * (steps > 0.5)
    likely = 0.9 * near / (spread * math.sqrt(2 * math.pi)) + 0.1
    return torch.zeros(count, dtype=torch.float64).index_add_(0, place, likely.log())


def layouts(normals: Tensor) -> list[Tensor]:
    """(m, 2, k) views of (m, d): the ways in which generators lay out their pairs."""
    m, d = normals.shape
    found = [normals[:, : d - d % 2].view(m, -1, 2).transpose(1, 2), normals[:, : d - d % 2].view(m, 2, -1)]
    if d % 16 == 0:
        found.append(normals.view(m, -1, 2, 8).transpose(1, 2).reshape(m, 2, -1))
    return found
