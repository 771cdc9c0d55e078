"""The page of results: every figure comes from the JSON, and nothing is loaded."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
from benchmarks.page import origin, page
from benchmarks.plots import decades, log_plot, share
from benchmarks.record import Found, Plot, whole
from hypothesis import given
from hypothesis import strategies as st

ROWS: list[dict[str, Any]] = [
    {"work": "ours & theirs", "values": 1000, "ns": 12.25, "threads": 2},
    {"work": "ours & theirs", "values": 100_000, "ns": 8.5, "threads": 2},
    {"work": "other", "values": 1000, "ns": 99.0, "threads": 1},
    {"work": "absent", "values": 1000, "ns": None, "threads": 2},
]
PLOT = Plot("A title", "values", "ns", "work", {"threads": 2})


def result(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return whole("a", Found(rows, {"warm_up": 1, "repetitions": 3, "statistic": "median"}, [PLOT]), 0.25)


def test_a_page_has_every_figure_and_loads_nothing() -> None:
    found = page([result(ROWS)])
    assert all(figure in found for figure in ("12.25", "8.5", "99", "100,000", "ours &amp; theirs"))
    assert not re.search(r"(src|href)\s*=\s*[\"'](?!#)|url\(|@import", found)
    assert found.count("<circle") == 3  # two points and the legend: of the curve that the plot asks for alone


def test_a_plot_without_figures_is_left_out() -> None:
    assert "<svg" not in page([result(ROWS[2:])])


def test_where_it_comes_from() -> None:
    told = result(ROWS)
    assert "median of 3 after 1 to warm up" in origin(told)
    assert "load 0.25 before" in origin(told)
    old = {"device": "cpu", "processor": None, "cores": None, "memory_gb": None}
    assert "load not recorded" in origin({**told, "load": None, "machine": old})


def test_points_lie_where_their_logarithms_are() -> None:
    drawn = log_plot("t", "x", "y", {"a": [(10.0, 1.0), (1000.0, 100.0), (100.0, 10.0)]})
    line = re.search(r'polyline points="([^"]*)"', drawn)
    assert line is not None
    (x0, y0), (x1, y1), (x2, y2) = (tuple(map(float, item.split(","))) for item in line[1].split())
    assert x1 == pytest.approx((x0 + x2) / 2, abs=0.1)
    assert y1 == pytest.approx((y0 + y2) / 2, abs=0.1)
    assert x0 < x2
    assert y0 > y2


@given(st.lists(st.floats(1e-6, 1e12), min_size=1, max_size=5))
def test_marks_hold_all_values(values: list[float]) -> None:
    marks = decades(values)
    assert 2 <= len(marks) <= 20
    assert marks == sorted(marks)
    assert all(-1e-9 <= share(value, marks) <= 1 + 1e-9 for value in values)
    assert all(math.isfinite(mark) for mark in marks)
