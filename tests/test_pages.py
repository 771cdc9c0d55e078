"""The pages that lead new users: the picture of the README, and advice that voids no promise."""

from __future__ import annotations

import re

import pytest
from docs.pictures import front

NEAR = 300
"""So many characters before an audit of a real release say that it is for knowing."""


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


def bad_audits(text: str) -> list[str]:
    """Audits of certified releases in a ledger's own state folder of which nothing says that they are for knowing."""
    found = re.finditer(r"^\$ .*mixveil audit .*$", text, re.MULTILINE)
    before = ((item[0], text[max(0, item.start() - NEAR) : item.start()]) for item in found)
    return [line for line, said in before if "MIXVEIL_STATE=" not in line and "for knowing" not in said]


@pytest.mark.parametrize(
    "page", ["README.md", "docs/start/data-owner.md", "docs/start/coordinator.md", "docs/do/audits.md"]
)
def test_no_advice_voids_a_promise(page: str) -> None:
    assert bad_audits((front.ROOT / page).read_text(encoding="utf-8")) == []


def test_advice_that_voids_a_promise_is_found() -> None:
    line = "$ mixveil audit release --truth digits:train --out audit"
    assert bad_audits(f"Look before you send:\n\n```\n{line}\n```\n") == [line]
    assert bad_audits(f"This is **for knowing**:\n\n```\n{line}\n```\n") == []
