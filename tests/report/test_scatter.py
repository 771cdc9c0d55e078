"""Dots in a plane: where they lie, how they differ, and what is said to those who do not see them."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from mixveil.report.lines import look, ticks
from mixveil.report.scatter import Dot, scatter

LEFT, RIGHT, TOP, BOTTOM = 66, 450, 40, 286


def places(drawn: str) -> list[tuple[float, float]]:
    """Where the markers of the dots are, in their order: of those that are circles or shapes moved to a place."""
    found = []
    for group in re.findall(r"<g>(.*?)</g>", drawn):
        x, y = re.search(r'(?:cx="|translate\()([\d.-]+)"?(?: cy="| )([\d.-]+)', group).groups()  # type: ignore[union-attr]
        found.append((float(x), float(y)))
    return found


def slow(dots: list[Dot]) -> list[tuple[float, float]]:
    """By the rule of three, between the first and last round figure of each axis."""
    xs, ys = ticks([dot.x for dot in dots]), ticks([dot.y for dot in dots])
    found = []
    for dot in dots:
        part, up = (dot.x - min(xs)) / (max(xs) - min(xs)), (dot.y - min(ys)) / (max(ys) - min(ys))
        found.append((LEFT + part * (RIGHT - LEFT), BOTTOM - up * (BOTTOM - TOP)))
    return found


@pytest.mark.parametrize(
    "values",
    [
        [(0.1, 0.5), (0.9, 0.2), (0.4, 0.99), (0.41, 0.1)],
        [(0.3, 0.9)],
        [(0.0, 0.0)],
        [(0.25, 0.75), (0.25, 0.75)],
        [(1e-4, 0.5), (2e-4, 0.5), (0.0, 0.5)],
        [(-3.0, 0.1), (40.0, 1.0)],
    ],
    ids=["several", "one", "zeros", "equal", "equal heights", "below zero"],
)
def test_dots_lie_where_their_values_are(values: list[tuple[float, float]]) -> None:
    dots = [Dot(x, y, "λ = 1", f"β = {number}") for number, (x, y) in enumerate(values)]
    found = places(scatter("t", "x", dots, shares=False))
    assert len(found) == len(dots)
    for (x, y), (right, down) in zip(found, slow(dots), strict=True):
        assert (x, y) == pytest.approx((right, down), abs=0.051)
        assert LEFT <= x <= RIGHT and TOP <= y <= BOTTOM


def test_axes_have_round_figures_at_their_places() -> None:
    dots = [Dot(0.1, 0.5, "a", "one"), Dot(0.9, 0.92, "b", "two")]
    drawn = scatter("t", "mean distance", dots, shares=True)
    up = re.findall(r'y="([\d.]+)" text-anchor="end">([^<]*)<', drawn)
    assert [text for _, text in up] == ["50 %", "60 %", "70 %", "80 %", "90 %", "100 %"]
    assert [float(y) - 4 for y, _ in up] == pytest.approx([BOTTOM - step * (BOTTOM - TOP) / 5 for step in range(6)])
    across = re.findall(rf'<text x="([\d.]+)" y="{BOTTOM + 19}" text-anchor="middle">([^<]*)<', drawn)
    assert [float(text) for _, text in across] == [0, 0.2, 0.4, 0.6, 0.8, 1]
    assert [float(x) for x, _ in across] == pytest.approx(
        [LEFT + step * (RIGHT - LEFT) / 5 for step in range(6)], abs=0.1
    )


def test_groups_have_their_own_colour_and_marker_and_a_legend() -> None:
    dots = [Dot(number, number, f"λ = {number % 9}", f"dot {number}") for number in range(27)]
    drawn = scatter("t", "x", dots, shares=False)
    ElementTree.fromstring(drawn)  # noqa: S314
    groups = re.findall(r"<g><title>dot (\d+)</title><(\w+)[^>]*", drawn)
    assert [int(number) for number, _ in groups] == list(range(27))
    kinds = [
        re.sub(r'(c?[xy]="[^"]*"|translate\([^)]*\))', "", text)
        for text in re.findall(r"</title>(<\w+ [^>]*/>)", drawn)
    ]
    assert all(kinds[number] == kinds[number % 9] for number in range(27)) and len(set(kinds)) == 9
    assert all(look(number) in kinds[number] for number in range(9))
    legend = re.findall(r'<text x="488" y="(\d+)">([^<]*)</text>', drawn)
    assert [text for _, text in legend] == [f"λ = {number}" for number in range(9)]
    assert 'viewBox="0 0 640 340"' in drawn
    many = scatter("t", "x", [Dot(n, n, str(n), "") for n in range(20)], shares=False)
    assert 'viewBox="0 0 640 468"' in many  # room for the legend


def test_a_marked_dot_is_circled_and_named_for_those_who_do_not_see_it() -> None:
    dots = [Dot(0.2, 0.5, "a", "no penalty"), Dot(0.123456, 0.875, "b", "λ = 1, β = 0.01", marked=True)]
    drawn = scatter("Accuracy", "distance", dots, shares=True)
    rings = re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)" r="9" fill="none"', drawn)
    assert [(float(x), float(y)) for x, y in rings] == [places(drawn)[1]]
    whole = ElementTree.fromstring(drawn)  # noqa: S314
    assert whole.get("role") == "img"
    assert whole.get("aria-label") == "Accuracy, 2 dots; marked: λ = 1, β = 0.01: 87.5 % at 0.123"
    alone = ElementTree.fromstring(scatter("Accuracy", "distance", dots[:1], shares=True))  # noqa: S314
    assert alone.get("aria-label") == "Accuracy, 1 dot"


def test_all_names_are_escaped() -> None:
    bad = '<b a="&">'
    drawn = scatter(bad, bad, [Dot(1, 1, bad, bad, marked=True)], shares=False)
    assert bad not in drawn and "<b " not in drawn
    whole = ElementTree.fromstring(drawn)  # noqa: S314
    assert [text for text in whole.itertext() if text == bad] == [bad] * 5  # title, heading, axis, dot and legend
    assert bad in (whole.get("aria-label") or "")
