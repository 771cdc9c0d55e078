"""The verdict of a comparison, and what a table says."""

from __future__ import annotations

import pytest
from outside_checks.lines import Check, Line, Relation, fault, table


def line(ours: float, relation: Relation, theirs: float, slack: float = 0.0) -> Line:
    return Line("case", ours, relation, theirs, slack, "package")


@pytest.mark.parametrize(
    ("ours", "relation", "theirs", "slack", "holds"),
    [
        (1.0, "=", 1.0, 0.0, True),
        (1.0, "=", 1.1, 0.01, False),
        (1.2, "=", 1.1, 0.01, False),
        (1.0, ">=", 1.0, 0.0, True),
        (0.99, ">=", 1.0, 0.0, False),
        (0.99, ">=", 1.0, 0.02, True),
        (1.01, "<=", 1.0, 0.0, False),
        (1.01, "<=", 1.0, 0.02, True),
    ],
)
def test_what_holds(ours: float, relation: Relation, theirs: float, slack: float, holds: bool) -> None:
    assert line(ours, relation, theirs, slack).holds is holds


@pytest.mark.parametrize("relation", ["=", ">=", "<="])
def test_no_number_holds_nothing(relation: Relation) -> None:
    assert not line(float("nan"), relation, 1.0, 9.0).holds
    assert not line(1.0, relation, float("nan"), 9.0).holds


def test_a_check_fails_by_a_line_or_by_a_fault_that_is_missed() -> None:
    good, bad = line(1, "=", 1), line(1, "=", 2)
    found, missed = fault("planted", lambda: [good, bad]), fault("planted", lambda: [good])
    assert found.found_by == ("case",)
    assert not found.missed
    assert missed.missed
    checks = [Check("c", [a], [b], 1.0) for a in (good, bad) for b in (found, missed)]
    assert [check.passed for check in checks] == [True, False, False, False]
    said = table(checks)
    assert said.count("c: passed") == 1
    assert said.count("c: FAILED") == 3
    assert said.count("MISSED") == 2
