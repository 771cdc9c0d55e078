"""What a check says: ours beside theirs, and whether they stand as they must."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

Relation = Literal["=", ">=", "<="]


@dataclass(frozen=True)
class Line:
    """One comparison.

    Attributes:
        case: What is compared, at which settings.
        ours: Mixveil's figure.
        relation: How it must stand to theirs: "=" where theirs is exact, ">=" where it is a lower bound, "<=" where it
            is an upper bound.
        theirs: The figure of the other package.
        slack: By how much the relation may be missed: rounding, or sampling error.
        package: Whose figure it is, and what kind.
    """

    case: str
    ours: float
    relation: Relation
    theirs: float
    slack: float
    package: str

    @property
    def holds(self) -> bool:
        """A figure that is not a number holds nothing."""
        if self.relation == "=":
            return abs(self.ours - self.theirs) <= self.slack
        if self.relation == ">=":
            return self.ours >= self.theirs - self.slack
        return self.ours <= self.theirs + self.slack


@dataclass(frozen=True)
class Fault:
    """A fault that was planted on purpose: the same check on a false claim. missed: it held all the same."""

    case: str
    found_by: tuple[str, ...]

    @property
    def missed(self) -> bool:
        return not self.found_by


@dataclass(frozen=True)
class Check:
    """lines: what holds of mixveil as it is. faults: each is found by at least one line that does not hold."""

    name: str
    lines: Sequence[Line]
    faults: Sequence[Fault]
    seconds: float

    @property
    def passed(self) -> bool:
        return all(line.holds for line in self.lines) and not any(fault.missed for fault in self.faults)


def fault(case: str, lines: Callable[[], Sequence[Line]]) -> Fault:
    """Run the lines of a check on something false."""
    return Fault(case, tuple(line.case for line in lines() if not line.holds))


def table(checks: Sequence[Check]) -> str:
    """All comparisons, a line each, with what was found of the planted faults."""
    width = max(len(line.case) for check in checks for line in check.lines)
    out = []
    for check in checks:
        out.append(f"{check.name}: {'passed' if check.passed else 'FAILED'} ({check.seconds:.0f} s)")
        for line in check.lines:
            verdict = "holds" if line.holds else "FAILS"
            figures = f"{line.ours:>12.6g} {line.relation:>2} {line.theirs:<12.6g} ± {line.slack:<8.2g}"
            out.append(f"  {verdict}  {line.case:<{width}}  {figures} {line.package}")
        for item in check.faults:
            found = f"found by {len(item.found_by)}: {item.found_by[0]}" if item.found_by else "MISSED"
            out.append(f"  planted: {item.case}: {found}")
    return "\n".join(out)
