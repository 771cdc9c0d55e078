"""The picture of the README: its curves are those of the results, and it loads nothing."""

from __future__ import annotations

import re

import pytest
from docs.pictures import front


def test_the_curves_are_those_of_the_results() -> None:
    assert front.panel(front.curves()) in front.OUT.read_text(encoding="utf-8")
    by_name = {curve.name: dict(curve.points) for curve in front.curves()}
    assert by_name["rounds, secure sums"][1.0] == pytest.approx(0.908, abs=5e-4)  # docs/rounds.md says 90.8 %
    assert by_name["DP-SGD"][2.0] == pytest.approx(0.892, abs=5e-4)


def test_the_picture_is_small_and_whole() -> None:
    text = front.OUT.read_text(encoding="utf-8")
    assert front.OUT.stat().st_size < 150_000
    assert text.count("<image ") == 5 * front.SHOWN  # originals, FedAvg, certified, attacked, knowing nothing
    assert all(place.startswith("data:image/png;base64,") for place in re.findall(r'href="([^"]*)"', text))
    assert "docs/pictures/front.svg" in (front.ROOT / "README.md").read_text(encoding="utf-8")
