"""What units contribute to sums: against slow twins, and how far one unit can move a sum."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st
from safetensors.torch import save
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from mixveil.core.errors import ManifestError
from mixveil.core.randomness import SeededStream
from mixveil.features.projection import HeldRows
from mixveil.releases import contributions
from mixveil.releases.contributions import LARGEST, Head, class_total, residual_total, square_total, unit_count
from tests.sums import BITS, class_sum, given, residual_sum, square_sum

Vector = list[float]
CLASSES, K = 3, 2
VALUES = st.one_of(st.floats(-9, 9), st.sampled_from([0.0, math.nan, math.inf, -math.inf, 1e200, 1e-200]))


class Row(NamedTuple):
    z: Vector
    label: int


ROWS = st.builds(Row, st.lists(VALUES, min_size=K, max_size=K), st.integers(0, CLASSES - 1))
UNITS = st.lists(st.lists(ROWS, min_size=1, max_size=3), min_size=1, max_size=4)
WEIGHTS = st.lists(st.floats(-3, 3), min_size=K * CLASSES + CLASSES + K, max_size=K * CLASSES + CLASSES + K)
CLIPS = st.floats(0.1, 5)


def rows_of(units: Sequence[Sequence[Row]], clip: float, *, named: bool = True) -> HeldRows:
    """Their rows, dealt in turn: those of a unit are not neighbours."""
    whole = [(i, row) for turn in range(9) for i, unit in enumerate(units) for row in unit[turn : turn + 1]]
    z = torch.tensor([row.z for _, row in whole], dtype=torch.float64)
    names = [f"patient {i}" for i, _ in whole] if named else None
    return given(z, torch.tensor([row.label for _, row in whole]), names, clip=clip, classes=CLASSES)


def head_of(values: Vector, scale: float = 1.0) -> Head:
    whole = torch.tensor(values, dtype=torch.float64)
    weight, bias, centre = torch.split(whole, [K * CLASSES, CLASSES, K])
    return Head(scale * weight.view(K, CLASSES), scale * bias, centre)


# The slow twins: one row after the other


def shortened(vector: Vector, clip: float) -> Vector:
    if not all(map(math.isfinite, vector)):
        return [0.0] * len(vector)
    norm = math.sqrt(sum(value * value for value in vector))
    if math.isinf(norm):
        return [0.0] * len(vector)
    return vector if norm <= clip else [value * clip / norm for value in vector]


def added(units: Sequence[list[Vector]], clip: float) -> Vector:
    """The sum of units, each the sum of its rows' contributions, and none longer than clip."""
    whole = [shortened([sum(column) for column in zip(*unit, strict=True)], clip) for unit in units]
    return [sum(column) for column in zip(*whole, strict=True)]


def of_class(row: Row, clip: float) -> Vector:
    z = [*shortened(row.z, clip), clip]
    return [value if c == row.label else 0.0 for c in range(CLASSES) for value in z]


def of_residual(row: Row, clip: float, head: Head) -> Vector:
    moved = [a - float(b) for a, b in zip(shortened(row.z, clip), head.centre, strict=True)]
    z = shortened(moved, clip)
    scores = [sum(z[j] * float(head.weight[j, c]) for j in range(K)) + float(head.bias[c]) for c in range(CLASSES)]
    powers = [math.exp(score - max(scores)) for score in scores]
    wrong = [power / sum(powers) - (c == row.label) for c, power in enumerate(powers)]
    return [w * value for w in wrong for value in [*z, 1.0]]


def of_square(row: Row, clip: float) -> Vector:
    z = shortened(row.z, clip)
    return [a * b for a in z for b in z]


def alone(units: Sequence[Sequence[Row]]) -> list[list[Row]]:
    return [[row] for unit in units for row in unit]


def close(found: Tensor, expected: Vector, atol: float = 1e-6) -> bool:
    return torch.allclose(found.flatten(), torch.tensor(expected, dtype=torch.float64), rtol=0, atol=atol)


@drawn(UNITS, WEIGHTS, CLIPS, CLIPS, st.booleans())
@settings(max_examples=150, deadline=None)
def test_totals_are_those_of_slow_twins(
    units: list[list[Row]], values: Vector, clip: float, own: float, named: bool
) -> None:
    rows, head = rows_of(units, clip, named=named), head_of(values)
    whole = units if named else alone(units)
    of = [[of_class(row, clip) for row in unit] for unit in whole]
    assert close(class_sum(rows, clip), added(of, math.sqrt(2) * clip * (1 + 1e-15)))
    of = [[of_residual(row, clip, head) for row in unit] for unit in whole]
    longest = max(sum(math.hypot(*row) for row in unit) for unit in of)  # a row is rounded in 2⁻¹⁵ of its length
    assert close(residual_sum(rows, head, own), added(of, own), len(whole) * (longest + own) * 2.0**-13)
    of = [[of_square(row, own) for row in unit] for unit in whole]
    assert close(square_sum(rows, K, own), added(of, own**2 * (1 + 1e-15)), len(rows) * own**2 * 2.0**-13)
    assert unit_count(rows) == len(whole)


def exact_totals(z: Tensor, labels: Tensor, units: list[str] | None, head: Head) -> list[Tensor]:
    rows = given(z, labels, units, clip=2.0, classes=CLASSES)
    found = (
        class_total(rows, 2.0, BITS),
        residual_total(rows, head, 0.5, BITS),
        square_total(rows, z.shape[1], 1.5, BITS),
    )
    assert all(total.dtype == torch.int64 for total in found)
    return [*found]


@pytest.mark.parametrize("named", [True, False])
def test_neither_order_nor_blocks_nor_other_rows_change_a_bit(named: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a unit adds follows from its own rows alone: a sum of all is that of each by itself."""
    stream, n, k = SeededStream(1), 1027, 33  # with the last block of a few rows
    z, labels = stream.normal(n, k), torch.arange(n) % CLASSES
    names = [str(i * i % 223) for i in range(n)]
    head = Head(stream.normal(k, CLASSES), stream.normal(CLASSES), 0.1 * stream.normal(k))

    def totals(order: Tensor) -> list[Tensor]:
        units = [names[i] for i in order.tolist()] if named else None
        return exact_totals(z[order], labels[order], units, head)

    def same(others: list[Tensor]) -> bool:
        return all(torch.equal(one, other) for one, other in zip(before, others, strict=True))

    before = totals(torch.arange(n))
    assert all(same(totals(stream.permutation(n))) for _ in range(3))
    for size in (1, 5, 700):
        monkeypatch.setattr(contributions, "_ROWS", size)
        monkeypatch.setattr(contributions, "_VALUES", 9 * size)
        assert same(totals(torch.arange(n)))
    kinds = sorted({*names}) if named else range(n)
    alone = [[i for i in range(n) if names[i] == kind] if named else [kind] for kind in kinds]
    parts = [totals(torch.tensor(index)) for index in alone[:: 1 if named else 7]]
    rest = sorted({*range(n)} - {i for index in alone[:: 1 if named else 7] for i in index})
    parts += [totals(torch.tensor(rest))] if rest else []
    assert same([torch.stack(column).sum(0) for column in zip(*parts, strict=True)])


def test_progress_tells_every_row() -> None:
    seen: list[int] = []
    rows = given(torch.ones(57, K).double(), torch.arange(57) % CLASSES, None, clip=2.0, classes=CLASSES)
    class_total(rows, 2.0, BITS, seen.append)
    assert sum(seen) == 57


class Largest(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The most values of a tensor that was made."""

    values = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        self.values = max(self.values, made.numel() if isinstance(made, Tensor) else 0)
        return made


def test_a_unit_of_many_rows_takes_no_memory_for_products() -> None:
    """Else such a unit ends the process, and a server that waits for the message learns that it is there."""
    n, k = 1000, 60
    rows = given(torch.ones(n, k), torch.arange(n) % CLASSES, ["one"] * n, clip=2.0, classes=CLASSES)
    head = Head(torch.ones(k, CLASSES).double(), torch.ones(CLASSES).double(), torch.ones(k).double())
    with Largest() as seen:  # type: ignore[no-untyped-call]
        residual_total(rows, head, 0.5, BITS)
        square_total(rows, k, 1.5, BITS)
    assert n * k <= seen.values <= n * (k + 1)


def test_a_row_that_is_no_number_counts_as_zero_and_nothing_fails() -> None:
    wild = [math.nan, math.inf, -math.inf, 1e300]
    units = [[Row([value, 1.0], 1)] for value in wild] + [[Row([1.0, 0.0], 0)]]
    for named in (True, False):
        rows = rows_of(units, 2.0, named=named)
        assert close(class_sum(rows, 2.0), [1, 0, 2, 0, 0, 8, 0, 0, 0])
        assert close(square_sum(rows, K, 2.0), [1, 0, 0, 0], 1e-3)
        head = Head(torch.full((K, CLASSES), LARGEST).double(), torch.zeros(CLASSES).double(), torch.zeros(K).double())
        assert bool(residual_sum(rows, head, 0.1).isfinite().all())


# How far a unit can move a sum


def moved(
    one: Sequence[Row],
    other: Sequence[Row],
    rest: list[list[Row]],
    clip: float,
    head: Head,
    own: float,
    bits: int = BITS,
    *,
    named: bool = True,
) -> list[Fraction]:
    """The squares of how much class sums, residual sums and squares of two neighbours differ, over what they may: in
    whole numbers, without any rounding."""
    a, b = (rows_of([list(unit), *rest], clip, named=named) for unit in (one, other))
    apart = (
        (class_total(a, clip, bits) - class_total(b, clip, bits), 4),
        (residual_total(a, head, own, bits) - residual_total(b, head, own, bits), 4),
        (square_total(a, K, own, bits) - square_total(b, K, own, bits), 2),
    )
    return [Fraction(sum(v * v for v in steps.flatten().tolist()), most << 2 * bits) for steps, most in apart]


@drawn(
    st.lists(ROWS, min_size=1, max_size=5),
    st.lists(ROWS, min_size=1, max_size=5),
    st.lists(st.lists(ROWS, min_size=1, max_size=2), max_size=2),
    WEIGHTS,
    st.sampled_from([1e-3, 1.0, 1e3, LARGEST / 3]),
    CLIPS,
    st.floats(1e-3, 5),
    st.sampled_from([0, 2, 8, 20, 30, 32]),
)
@settings(max_examples=200, deadline=None)
def test_no_unit_moves_a_sum_farther_than_its_noise_is_made_for(
    one: list[Row],
    other: list[Row],
    rest: list[list[Row]],
    values: Vector,
    scale: float,
    clip: float,
    own: float,
    bits: int,
) -> None:
    """All rows and labels of a unit are replaced by any others, of any number, under any head; not by 2⁻⁵² more."""
    assert max(moved(one, other, rest, clip, head_of(values, scale), own, bits)) <= 1
    assert max(moved(one[:1], other[:1], [], clip, head_of(values, scale), own, bits, named=False)) <= 1


def test_the_bounds_are_tight() -> None:
    """The same label and opposite records; another label; squares at a right angle; a unit of several rows."""
    flat = head_of([0.0] * 11)
    long, back, across = Row([9.0, 0.0], 1), Row([-9.0, 0.0], 1), Row([0.0, 9.0], 1)
    for times in (1, 4):
        same = moved([long] * times, [back] * times, [], 8.0, flat, 0.5)
        assert same[0] > 0.98 and same[1] > 0.98
        assert moved([long] * times, [Row([9.0, 0.0], 2)] * (5 - times), [], 8.0, flat, 0.5)[0] > 0.98
        assert moved([long] * times, [across], [], 8.0, flat, 0.5)[2] > 0.98
    # A head that turns over within a thousandth names either label wrong: two gradients are opposite.
    steep = Head(torch.zeros(K, CLASSES).double(), torch.tensor([0.0, 0.0, -1e5]).double(), torch.zeros(K).double())
    steep.weight[1] = torch.tensor([LARGEST, -LARGEST, 0.0])
    other = moved([Row([1.0, 1e-3], 1)], [Row([1.0, -1e-3], 0)], [], 1.0, steep, 0.5)
    assert other[1] > 0.98


# A head that a server sent


GOOD = {"weight": torch.ones(4, 3).double(), "bias": torch.zeros(3).double(), "centre": torch.zeros(4).double()}


def test_a_head_is_read_as_it_was_sent() -> None:
    found = Head.read(save(GOOD), 4, 3)
    assert all(torch.equal(tensor, GOOD[name]) for name, tensor in found.tensors().items())


BAD: dict[str, dict[str, Tensor]] = {
    "weights of another shape": {"weight": torch.ones(3, 4).double()},
    "biases of another shape": {"bias": torch.ones(3, 1).double()},
    "more directions": {"weight": torch.ones(5, 3).double(), "centre": torch.zeros(5).double()},
    "no number": {"bias": torch.tensor([0.0, math.nan, 0.0]).double()},
    "infinite": {"centre": torch.full((4,), -math.inf).double()},
    "too large": {"weight": torch.full((4, 3), 1.001 * LARGEST).double()},
    "float32": {"weight": torch.ones(4, 3)},
    "whole numbers": {"centre": torch.zeros(4, dtype=torch.int64)},
    "one more tensor": {"more": torch.zeros(1).double()},
    "too many bytes": {"more": torch.zeros(4096).double()},
}


@pytest.mark.parametrize("case", BAD)
def test_another_head_is_refused(case: str) -> None:
    with pytest.raises(ManifestError, match="too many" if case == "too many bytes" else "the head"):
        Head.read(save({**GOOD, **BAD[case]}), 4, 3)


@pytest.mark.parametrize("data", [b"", b"no", save(GOOD)[:-1], save(GOOD) + b"\0"])
def test_what_is_no_file_of_a_head_is_refused(data: bytes) -> None:
    with pytest.raises(ManifestError, match="cannot be read"):
        Head.read(data, 4, 3)
    without = {name: tensor for name, tensor in GOOD.items() if name != "centre"}
    with pytest.raises(ManifestError, match="weight, bias and centre"):
        Head.read(save(without), 4, 3)
