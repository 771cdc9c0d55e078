"""Rounded, noisy mixtures of rows, made on a GPU, each value exactly the rounding of its definition.

    v_ij = Σ_k a_ik·(x_k[i, j] − c) + s_i·N_ij        released: round(v_ij), no larger than the bound

The factors a, the noise s and the centre c are float64 numbers, x are float32 numbers, and N is exactly normal: R·cos θ
or R·sin θ of a pair of uniforms that have as many bits as are needed (`core/keystreams.py`, `layout`).

1. All values in float32, noise made inside the kernel. A value within `budget.single` of a half-integer is doubtful.
2. Doubtful values in float64, with 64 bits of the same uniforms, or 96 near the ends of U. Within `budget.double` a
   value is still open.
3. The few open values on the CPU, with as many bits as it takes (`core/rounded_normals.decide`).

Where float32 would doubt too much, or the bound needs int32, all values start at step 2. Whether a value is doubtful
depends on its distance to a half-integer and on the radius. How many are doubtful is not hidden: docs/exactness.md says
what that means.
"""

from __future__ import annotations

import os
from contextlib import nullcontext
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

import torch
from torch import Tensor

from mixveil.core.errors import ArgumentError, MissingDependencyError
from mixveil.core.keystreams import ROUNDS, key_words, pair_bits
from mixveil.core.rounded_normals import decide
from mixveil.encoders.fused import budget, layout
from mixveil.encoders.fused.function_check import check_functions
from mixveil.encoders.fused.mixture import Keystream, Launch, Mixture
from mixveil.encoders.grid import stored_dtype

ROWS = (1 << 16) - 1
"""Rows of one launch: a grid has no more in its second direction."""

_OPEN_ROOM = 1 << 16  # open values a launch: one in 10¹⁰


def available(device: torch.device) -> bool:
    """Whether the kernels run there: on a GPU, or in Triton's interpreter; never without Triton."""
    if not _interpreted() and (device.type != "cuda" or torch.version.cuda is None):
        return False
    try:
        import triton  # noqa: F401
    except ImportError:
        return False
    return True


def encoded(
    mixture: Mixture,
    keystream: Keystream,
    first_row: int = 0,
    *,
    launch: Launch | None = None,
    room: int | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """(m, d) int16 or int32, on the device of the rows.

    Args:
        first_row: The number of the first row in its release: it selects the part of the keystream.
        room: For how many blocks with doubtful values there is room in a row; more is made where it does not do.
        out: Where to write them, if not into a new tensor.
    """
    if not available(mixture.own.device):
        raise MissingDependencyError("rounding on a GPU needs triton: pip install triton")
    device = mixture.own.device
    out = _empty(mixture) if out is None else out
    size, launch = _Size.of(mixture), launch or default_launch()
    runs = []
    with torch.cuda.device(device) if device.type == "cuda" else nullcontext():  # Triton starts kernels on this one
        check_functions(device, hardware=not _interpreted())
        for start in range(0, len(mixture.own), ROWS):
            part = slice(start, start + ROWS)
            runs.append(_Run(mixture.rows(part), keystream, first_row + start, launch, out[part], size))
            runs[-1].begin(room)
        for run in runs:  # only now, so that the GPU never waits
            run.finish()
    return out


def uses_single(mixture: Mixture) -> bool:
    """Whether values are first computed in float32."""
    return _Size.of(mixture).single is not None


def default_launch() -> Launch:
    return Launch(blocks=1024) if _interpreted() else Launch()


@dataclass(frozen=True)
class _Size:
    """What the budget needs to know of a mixture, and what it says.

    Attributes:
        single: How far float32 can be wrong; None where float64 decides every value.
        double: How far float64 can be wrong.
    """

    single: float | None
    double: float

    @classmethod
    def of(cls, mixture: Mixture) -> _Size:
        if mixture.reach is None:
            return cls(None, budget.double(mixture.most, mixture.reached()))
        single = budget.single(mixture.most, mixture.reach)
        used = mixture.bound < 1 << 15 and single <= budget.LARGEST_SINGLE
        return cls(single if used else None, budget.double(mixture.most, mixture.reach))

    def room(self, blocks: int) -> int:
        """For how many blocks with doubtful values a row of so many blocks should have room: half as much again as come
        up on average."""
        doubted = 2 * (self.single or 0) + (budget.LOW + (1 << 32) - budget.HIGH) / 2**32
        return min(blocks, int(1.5 * blocks * layout.WORDS * doubted) + 32)


class _Run:
    """The launches of some rows."""

    def __init__(
        self, mixture: Mixture, keystream: Keystream, first_row: int, launch: Launch, out: Tensor, size: _Size
    ) -> None:
        from mixveil.encoders.fused import kernels

        self.kernels, self.mixture, self.keystream, self.first_row = kernels, mixture, keystream, first_row
        self.launch, self.out, self.size = launch, out, size
        self.device = mixture.own.device
        self.m, self.d = mixture.own.shape
        self.blocks = layout.blocks_in_row(self.d)
        self.row = torch.tensor([first_row], device=self.device)
        self.open_count = torch.zeros(1, dtype=torch.int32, device=self.device)
        self.open = torch.empty(_OPEN_ROOM, dtype=torch.int64, device=self.device)
        self.counts: Tensor | None = None
        self.listed: Tensor | None = None
        other = mixture.own if mixture.other is None else mixture.other
        self.sources = (mixture.own, other, self.row if mixture.partner is None else mixture.partner)
        a = mixture.factors
        self.pair = (a[:, 0], a[:, 1] if a.shape[1] == 2 else torch.zeros_like(a[:, 0]))
        self.meta: dict[str, Any] = {
            "CHACHA": keystream.generator != "philox",
            "ROUNDS": ROUNDS[keystream.generator],
            "PAIRED": mixture.other is not None,
        }

    def begin(self, room: int | None) -> None:
        """Start both kernels, without waiting for them."""
        if self.size.single is not None:
            self.start_single(room or self.size.room(self.blocks))
        self.start_double()

    def finish(self) -> None:
        """Wait; start again where a list was too short; decide what is open."""
        while self.counts is not None and self.listed is not None:
            most = int(self.counts.max())
            if most <= self.listed.shape[1]:
                break
            self.begin(most)  # the same key and rows: the same list, and whole this time
        self._decide()

    def start_single(self, room: int) -> None:
        """All values in float32, and a list of the doubtful ones."""
        mixture, single = self.mixture, self.size.single or 0.0
        self.counts = torch.zeros(self.m, dtype=torch.int32, device=self.device)
        self.listed = torch.empty(self.m, room, dtype=torch.int64, device=self.device)
        factors = torch.stack([*self.pair, -mixture.centre * mixture.factors.sum(1), mixture.scale], dim=1)
        self.kernels.fused[(-(-self.blocks // self.launch.blocks), self.m)](
            *self.sources, factors.float().to(self.device), self.out, self.counts, self.listed, self.row, room, self.d,
            self.blocks, float(mixture.bound), 0.5 - single, *key_words(self.keystream.key), BLOCK=self.launch.blocks,
            HARDWARE=not _interpreted(), num_warps=self.launch.warps, **self.meta,
        )  # fmt: skip

    def start_double(self) -> None:
        """The listed values in float64, or all of them."""
        import triton.language as tl

        mixture, size, listed = self.mixture, 1024 if _interpreted() else 32, self.listed
        self.open_count.zero_()
        factors = torch.stack([*self.pair, mixture.scale], dim=1).to(self.device)
        limits = [mixture.centre, float(mixture.bound), 0.5 - self.size.double]
        room = 0 if listed is None else listed.shape[1]
        self.kernels.doubled[(-(-(room or self.blocks) // size), self.m)](
            *self.sources, factors, self.out, self.row if self.counts is None else self.counts,
            self.row if listed is None else listed, self.row, room, self.d, self.blocks,
            torch.tensor(limits, dtype=torch.float64, device=self.device), self.open_count, self.open, _OPEN_ROOM,
            *key_words(self.keystream.key), BLOCK=size, LISTED=listed is not None,
            OUT=tl.int16 if self.out.dtype == torch.int16 else tl.int32, num_warps=1, **self.meta,
        )  # fmt: skip

    def _decide(self) -> None:
        """Open values, one by one."""
        count = int(self.open_count)
        if not count:
            return
        if count > _OPEN_ROOM:
            raise ArgumentError(
                f"{count:,} values are open after float64, and there is room for {_OPEN_ROOM:,}: encode on the CPU"
            )
        row, column = self.open[:count] >> 32, self.open[:count] & 0xFFFFFFFF
        mixture, read = self.mixture, [x[which[row], column].tolist() for x, which in self.mixture.sources()]
        factors, scale = mixture.factors.to(row.device)[row].tolist(), mixture.scale.to(row.device)[row].tolist()
        centre, keystream, nearest = Fraction(mixture.centre), self.keystream, []
        for i, (in_row, in_column) in enumerate(zip(row.tolist(), column.tolist(), strict=True)):
            block, pair, second = layout.place(self.first_row + in_row, in_column, self.d)
            bits = pair_bits(keystream.generator, keystream.key, block, (pair, pair + layout.PAIRS))
            terms = (Fraction(a) * (Fraction(x[i]) - centre) for a, x in zip(factors[i], read, strict=True))
            found = decide(sum(terms, Fraction(0)), Fraction(scale[i]), bits, second=second)
            nearest.append(max(-mixture.bound, min(mixture.bound, found)))
        self.out[row, column] = torch.tensor(nearest, dtype=self.out.dtype, device=self.device)


def _empty(mixture: Mixture) -> Tensor:
    return torch.empty(mixture.own.shape, dtype=stored_dtype(mixture.bound), device=mixture.own.device)


@cache
def _interpreted() -> bool:
    return os.environ.get("TRITON_INTERPRET") == "1"
