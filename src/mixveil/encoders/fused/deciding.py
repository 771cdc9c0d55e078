"""The few values that float64 leaves open, by interval arithmetic with as many bits as it takes."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from mpmath.ctx_iv import MPIntervalContext
from mpmath.libmp import round_floor, to_int

from mixveil.core.errors import StreamError

_FIRST, _MOST = 128, 1 << 14  # bits


def decide(mean: Fraction, scale: Fraction, bits: Callable[[int], tuple[int, int]], second: bool) -> int:
    """The whole number nearest to mean + scale·N. N is the cosine of a pair of normals, or the sine (`second`); bits(n)
    are the first n bits of the pair's two uniforms, as whole numbers below 2ⁿ.

    The precision and the number of bits are doubled until one whole number is left.
    """
    n = _FIRST
    iv = MPIntervalContext()
    while n <= _MOST:
        iv.prec = 2 * n
        radius, angle = (iv.mpf([k, k + 1]) / (1 << n) for k in bits(n))
        if radius.a > 0:
            turned = 2 * iv.pi * angle
            normal = iv.sqrt(-2 * iv.log(radius)) * (iv.sin(turned) if second else iv.cos(turned))
            exact = [iv.mpf(number.numerator) / number.denominator for number in (mean, scale)]
            value = exact[0] + exact[1] * normal + iv.mpf(1) / 2
            lower, upper = (to_int(end, round_floor) for end in value._mpi_)
            if lower == upper:
                return int(lower)
        n *= 2
    raise StreamError(f"{_MOST:,} bits do not decide a rounding: this keystream is not random")
