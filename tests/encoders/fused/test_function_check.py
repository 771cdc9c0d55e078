"""A GPU whose functions are worse than its maker states draws no noise."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from mixveil.core.errors import StreamError
from mixveil.encoders.fused import budget
from mixveil.encoders.fused.encoding import Keystream, Mixture, encoded
from mixveil.encoders.fused.function_check import check_functions, shares

pytestmark = pytest.mark.gpu


@pytest.fixture
def one(device: torch.device) -> Mixture:
    check_functions.cache_clear()
    ones = torch.ones(1, 1, dtype=torch.float64, device=device)
    return Mixture(torch.ones(1, 4, device=device), None, None, ones, ones[0], 0.0, 1.0, 1.0, 9)


def test_these_functions_are_near_enough_and_the_check_sees_how_near(one: Mixture) -> None:
    found = shares(one.own.device, hardware=one.own.device.type == "cuda")
    assert len(found) == 5
    assert all(1e-3 < share <= 1 for share in found.values()), found


@pytest.mark.parametrize(
    ("bounds", "named"),
    [
        ({"ABOVE_HALF": 1e-9, "BELOW_HALF": 1e-9, "PER_RADIUS": 1e-9}, "radius in float32"),
        ({"angle_error": lambda: 1e-9}, "cosine in float32"),
        ({"DOUBLE_PER_RADIUS": 1e-18}, "noise by cosine in float64"),
    ],
    ids=["radius", "angle", "float64"],
)
def test_functions_that_are_too_far_off_are_refused(
    one: Mixture, monkeypatch: pytest.MonkeyPatch, bounds: dict[str, Any], named: str
) -> None:
    """As they would be, were the proof to allow a hundredth of what they are off by."""
    for name, bound in bounds.items():
        monkeypatch.setattr(budget, name, bound)
    with pytest.raises(StreamError, match=named):
        encoded(one, Keystream(bytes(32), "philox"))
    check_functions.cache_clear()


def test_the_check_is_made_once(one: Mixture, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded(one, Keystream(bytes(32), "philox"))
    monkeypatch.setattr(budget, "angle_error", lambda: 0.0)
    encoded(one, Keystream(bytes(32), "philox"))
