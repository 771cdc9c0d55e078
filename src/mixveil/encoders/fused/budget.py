"""How far a computed value can be from the true one, term by term: values nearer to a half-integer are doubtful.

The true value is v = Σ_k a_k (x_k − c) + s·N, where N = R·cos θ or R·sin θ, R = √(−2 ln U), θ = 2π·T, and U and T are
uniforms whose first 32 bits are the words of the keystream. "Reach" is a bound of Σ_k |a_k|·(|x_k| + |c|) over all
values, "scale" one of s. Both are public, so that which values are doubtful tells nothing but v and U.

**float32** (`single`). ε = 2⁻²⁴ bounds a rounding. Only words k with `LOW` ≤ k < `HIGH` are used, so that
R is between R₀ = 0.044 and R₁ = 4.08; the others are doubtful.
- u = (k + ½)·2⁻³², one conversion and one fused product: 2ε. The bits that follow k: a relative 2⁻³² where U > ½,
  and 1/(2·LOW) = 2⁻²¹ elsewhere. Both enter ln U as they are.
- `lg2.approx.ftz.f32`: 2⁻²² absolute for u in (½, 2), 2⁻²² relative elsewhere (PTX ISA). In |ln U| = R²/2 that is at
  most 2⁻²²·ln 2 + 2⁻²²·R²/2. The product with −2 ln 2, and that constant: 2ε relative.
- An error δ of |ln U| is one of δ/R in R, up to a factor 1 + 2⁻¹⁰, as δ/R₀² < 2⁻¹¹.
- `sqrt.approx.ftz.f32`: 2⁻²³ relative (PTX ISA).
- T: the conversion of a signed word, the product with 2π/2³² and that constant: 3ε relative to |θ| ≤ π. Bits that
  follow the word: 2π·2⁻³².
- `sin.approx.ftz.f32`, `cos.approx.ftz.f32`: 2⁻²⁰·⁵ absolute on [−π, π] (PTX ISA).
- s as float32 and the product s·R: 2ε relative. The last multiply-add: ε of the sum, and ε of the product if a compiler
  does not fuse them.
- The mixture: a₁, a₂ and −c·(a₁ + a₂) as float32, then two multiply-adds, each of them two roundings if it is not
  fused, and ε of the sum with the noise: 6ε·reach.
- ½ less the bound, as float32, and what underflows: ε.
All this as a function of R is A/R + B·R, with one A where U > ½, which is R < R½ = 1.18, and another elsewhere. Both
are convex: the maximum is at R₀, R½ or R₁. Products of two errors are below a 64th of it.
`benchmarks/gpu_noise.py` computes the radius for all 2³² words, and cosine and sine for all 2³² words, on the GPU, and
compares them with float64.

**float64** (`double`). η = 2⁻⁵³. U has 96 bits where it is below 2⁻¹⁶ or as near to 1, else 64; T has 64. U must be in
[2⁻⁴⁴, 1 − 2⁻⁴⁴], so that R is between 2⁻²¹·⁵ and 7.82.
- The bits that follow: where U ≥ 2⁻¹⁶, 2⁻⁶⁴/U in ln U, thus 2⁻⁴⁸/4.7 in R at most; below, 2⁻⁹⁶/U ≤ 2⁻⁵², over 4.7.
  Near 1 it is 2⁻⁶⁴/R ≤ 2⁻⁵⁶ with 64 bits, and 2⁻⁷⁴ with 96. Of T, 2π·2⁻⁶⁵ of R.
- u (or 1 − u, where that is smaller) 2η; log 2 ulp, by log1p's quotient 4 more roundings: together 16η relative in R,
  where the square root halves them. Square root, sine and cosine (2 ulp by NVIDIA's tables), θ (3 roundings of at most
  π): 32η of R. Products: 4η. 64η·R covers them.
- The mixture: 8η·reach, and 2η·(s·R) of the last sum. Differences x − c and a product each, then sums. ½ less
  the bound: η.
"""

from __future__ import annotations

import math

LOW, HIGH = 1 << 20, (1 << 32) - (1 << 22)
"""Words of a radius that float32 can use."""

FEW = 1 << 16
"""Words of a radius below it, or as near to 2³², are rare: float64 takes a third word of their uniforms."""

DOUBLE_EDGE = 1 << 20
"""The smallest of the 2⁶⁴ values of U that float64 can use; the largest is as far from the other end."""

LARGEST_SINGLE = 1 / 16
"""Where the error in float32 may be larger, float64 decides every value."""

LG2_ERROR, SQRT_ERROR, TRIG_ERROR = 2.0**-22, 2.0**-23, 2.0**-20.5

_E32, _E64 = 2.0**-24, 2.0**-53
_SLACK = 1 + 2.0**-6  # of products of two errors

ABOVE_HALF = 2 * _E32 + 2.0**-32 + LG2_ERROR * math.log(2)
BELOW_HALF = 2 * _E32 + 0.5 / LOW + LG2_ERROR * math.log(2)
PER_RADIUS = (LG2_ERROR + 2 * _E32) / 2 + SQRT_ERROR
"""The radius in float32 is wrong by at most A/R + B·R: A where U > ½, A elsewhere, and B."""

DOUBLE_PER_RADIUS = 66 * _E64
"""A normal in float64 is wrong by at most so much of its radius, but for the bits that follow."""

_SHORTEST, _MIDDLE, _LONGEST = (math.sqrt(-2 * math.log(u)) for u in (1 - 2.0**-10, 0.5, LOW * 2.0**-32))
_ENDS = ((_SHORTEST, ABOVE_HALF), (_MIDDLE, ABOVE_HALF), (_MIDDLE, BELOW_HALF), (_LONGEST, BELOW_HALF))


def angle_error() -> float:
    """Of a sine or cosine in float32."""
    return float(3 * _E32 * math.pi + 2 * math.pi * 2.0**-32 + TRIG_ERROR)


def single(scale: float, reach: float) -> float:
    """Of a value computed in float32."""
    noise = max(a / radius + radius * (PER_RADIUS + angle_error() + 4 * _E32) for radius, a in _ENDS)
    return _SLACK * (scale * noise + 6 * _E32 * reach + _E32)


def double(scale: float, reach: float) -> float:
    """Of a value computed in float64."""
    largest = math.sqrt(88 * math.log(2))
    noise = 2.0**-48 / 4.7 + 2.0**-54 + DOUBLE_PER_RADIUS * largest
    return _SLACK * (scale * noise + 10 * _E64 * reach + _E64)
