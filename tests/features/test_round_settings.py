"""Settings of rounds: how μ is spent, what is read, and which settings a job gets."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mixveil.core.errors import ArgumentError, DataFormatError, MixveilError
from mixveil.features import projection_file
from mixveil.features.round_settings import MOST_ROUNDS, RoundPlan, RoundSettings, nearest, noise_of
from tests.sums import SETTINGS, base


@given(
    st.integers(1, MOST_ROUNDS),
    st.floats(0.01, 0.99),
    st.floats(1e-3, 100),
)
def test_what_all_messages_cost_is_mu(rounds: int, share: float, total: float) -> None:
    plan = RoundPlan(8, rounds, share, 0.1)
    spent = [plan.mu(message, total) for message in range(rounds + 1)]
    assert math.sqrt(sum(mu**2 for mu in spent)) == pytest.approx(total, rel=1e-12)
    assert spent[0] == pytest.approx(total * math.sqrt(share)) and len({*spent[1:]}) == 1
    for message in (-1, rounds + 1):
        with pytest.raises(ArgumentError, match=f"message must be from 0 to {rounds}"):
            plan.mu(message, total)


def test_settings_and_plans_are_read_as_they_were_written() -> None:
    assert RoundSettings.read(json.loads(json.dumps(SETTINGS.plain()))) == SETTINGS
    plan = SETTINGS.plan
    assert type(plan) is RoundPlan and RoundPlan.read(json.loads(json.dumps(plan.plain()))) == plan
    assert plan.plain() == {"directions": 6, "rounds": 6, "share": 0.2, "clip": 0.2}
    assert [plan.mu(m, 2.0) for m in range(7)] == [SETTINGS.mu(m, 2.0) for m in range(7)]


WRONG: list[dict[str, Any]] = [
    {"directions": 0},
    {"directions": 2.5},
    {"directions": True},
    {"rounds": 0},
    {"rounds": MOST_ROUNDS + 1},
    {"rounds": "6"},
    {"share": 0.0},
    {"share": 1.0},
    {"share": math.nan},
    {"clip": 0.0},
    {"clip": 1e-7},
    {"clip": 1001.0},
    {"clip": None},
    {"noise": 0.0},
    {"noise": math.inf},
    {"rate": -1.0},
    {"temperature": 0.0},
    {"momentum": 1.0},
    {"momentum": -0.1},
    {"accuracy": 1.1},
    {"accuracy": [1]},
    {"more": 1},
]


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_what_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(MixveilError):
        RoundSettings.read({**SETTINGS.plain(), **wrong})
    if wrong.keys() <= asdict(SETTINGS.plan).keys() | {"more"}:
        with pytest.raises(MixveilError):
            RoundPlan.read({**SETTINGS.plan.plain(), **wrong})


@pytest.mark.parametrize("missing", asdict(SETTINGS))
def test_nothing_may_be_missing(missing: str) -> None:
    left = {name: value for name, value in SETTINGS.plain().items() if name != missing}
    with pytest.raises(MixveilError):
        RoundSettings.read(left)


def test_a_projection_carries_them_in_its_file(tmp_path: Path) -> None:
    table = tuple(replace(SETTINGS, directions=k, noise=k / 100) for k in (2, 4, 6))
    made = replace(base(), rounds=table)
    digest = projection_file.write(tmp_path / "p", made)
    again, read_digest = projection_file.read(tmp_path / "p")
    assert again.rounds == table and digest == read_digest == made.digest() != base().digest()
    assert [item.directions for item in again.first(4).rounds] == [2, 4]
    data = (tmp_path / "p").read_bytes()
    (tmp_path / "q").write_bytes(data.replace(b'\\"rounds\\": 6', b'\\"rounds\\": 0'))
    with pytest.raises(DataFormatError, match="rounds"):
        projection_file.read(tmp_path / "q")


def test_a_job_gets_the_settings_of_the_noise_next_to_its_own() -> None:
    table = [replace(SETTINGS, noise=noise) for noise in (1e-4, 1e-3, 1e-2)]
    for noise, expected in ((1e-9, 1e-4), (3e-4, 1e-4), (3.3e-4, 1e-3), (3e-3, 1e-3), (3.3e-3, 1e-2), (9.0, 1e-2)):
        assert nearest(table, noise).noise == expected
    with pytest.raises(ArgumentError, match="has no settings for rounds"):
        nearest([], 1e-3)


def test_the_noise_of_a_job() -> None:
    """The deviation of a sum's noise, over its units: √P times that of one party, unless h of them share it."""
    assert noise_of(units=1000, classes=10, mu=2.0, parties=1) == pytest.approx(1 / 2000)
    assert noise_of(units=1000, classes=10, mu=2.0, parties=16) == pytest.approx(4 / 2000)
    assert noise_of(units=1000, classes=100, mu=2.0, parties=1) == pytest.approx(10 / 2000)
    assert noise_of(units=1000, classes=10, mu=2.0, parties=16, honest=16) == pytest.approx(1 / 2000)
    assert noise_of(units=1000, classes=10, mu=2.0, parties=16, honest=4) == pytest.approx(2 / 2000)
    assert noise_of(units=1000, classes=10, mu=2.0, parties=2, honest=4) == pytest.approx(1 / 2000)
    for wrong in ({"units": 0}, {"mu": 0.0}, {"mu": math.nan}, {"parties": 0}, {"honest": 0}):
        with pytest.raises(ArgumentError):
            noise_of(**{"units": 10, "classes": 10, "mu": 1.0, "parties": 1, "honest": 1, **wrong})  # type: ignore[arg-type]
