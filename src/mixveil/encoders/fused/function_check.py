"""Whether a GPU's functions are as near as `budget` takes them to be: `core.function_check` for the kernels.

Noise asks here first, once a process and device: radius, sine and cosine of the kernels, in float32 and in float64,
against numpy's float64, which `core.function_check` compares with mpmath.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray

from mixveil.core import function_check
from mixveil.core.errors import StreamError
from mixveil.core.function_check import places
from mixveil.encoders.fused import budget

Doubles = NDArray[np.float64]

_PLACES = 1 << 12
_HALF = 1 << 31


@cache
def check_functions(device: torch.device, *, hardware: bool) -> None:
    """Refuse a GPU whose functions are off by more than the proof allows. hardware: not in Triton's interpreter."""
    function_check.check_functions()
    for name, share in shares(device, hardware=hardware).items():
        if not share <= 1:  # nan too
            raise StreamError(
                f"{name} on this GPU is off by {share:.3g} times what exact noise allows: leave device out, and the "
                f"CPU draws the noise"
            )


def shares(device: torch.device, *, hardware: bool) -> dict[str, float]:
    """The largest errors, as shares of what is allowed, at words that are evenly spread and near both ends."""
    from mixveil.encoders.fused.kernels import parts

    spread = places(_PLACES)
    u = np.concatenate([spread, 2.0 ** (-12 * spread), 1 - 2.0 ** (-10 * spread)])
    k = (u * 2.0**32).astype(np.int64).clip(budget.LOW, budget.HIGH - 1)
    turn, more, more_turn, last = (
        (np.roll(places(len(u)), by) * 2.0**32).astype(np.int64) for by in (0, 1000, 2000, 3000)
    )
    rare = np.arange(len(u)) % 8 == 0  # U as near to 0 or 1 as float64 takes it
    k[rare] = np.where(turn[rare] % 2 == 0, 0, (1 << 32) - 1)
    more[rare] = (budget.DOUBLE_EDGE * 2.0 ** (11.99 * spread[: int(rare.sum())])).astype(np.int64)
    more[rare] ^= k[rare]
    words = torch.from_numpy(np.stack([k, turn, more, more_turn, last])).to(device)
    single = torch.empty(3, len(u), dtype=torch.float32, device=device)
    double = torch.empty(3, len(u), dtype=torch.float64, device=device)
    block = 1024
    parts[(len(u) // block,)](words, single, double, len(u), HARDWARE=hardware, BLOCK=block, num_warps=4)
    radius, angle = _true(k, turn, more, more_turn, last)
    # float32 has the first words alone, and `budget` counts what follows them
    above = np.where(k >= _HALF, budget.ABOVE_HALF, budget.BELOW_HALF)
    found, exact = single.cpu().double().numpy(), double.cpu().numpy()
    true = (np.cos(angle), np.sin(angle))
    return {
        "radius in float32": _largest((found[0] - radius)[~rare], (above / radius + budget.PER_RADIUS * radius)[~rare]),
        "cosine in float32": _largest(found[1] - true[0], budget.angle_error()),
        "sine in float32": _largest(found[2] - true[1], budget.angle_error()),
        "noise by cosine in float64": _largest(
            exact[0] * exact[1] - radius * true[0], budget.DOUBLE_PER_RADIUS * radius
        ),
        "noise by sine in float64": _largest(exact[0] * exact[2] - radius * true[1], budget.DOUBLE_PER_RADIUS * radius),
    }


def _true(*words: NDArray[np.int64]) -> tuple[Doubles, Doubles]:
    """R and θ of the middle of cells of 2⁻⁹⁶ and 2⁻⁶⁴."""
    k, turn, more, more_turn, last = (word.astype(np.float64) for word in words)
    low = (k + (more + (last + 0.5) * 2.0**-32) * 2.0**-32) * 2.0**-32
    rest = (2.0**32 - 1 - more) + (2.0**32 - 1 - last + 0.5) * 2.0**-32
    high = ((2.0**32 - 1 - k) + rest * 2.0**-32) * 2.0**-32  # 1 − U, with all its bits
    log = np.where(k >= _HALF, np.log1p(-high), np.log(low))
    signed = np.where(turn >= _HALF, turn - 2.0**32, turn)
    return np.sqrt(-2 * log), (signed + (more_turn + 0.5) * 2.0**-32) * (2.0**-32 * 2 * np.pi)


def _largest(error: Doubles, allowed: Doubles | float) -> float:
    return float((np.abs(error) / allowed).max())
