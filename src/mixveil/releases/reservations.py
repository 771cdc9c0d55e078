"""Reservations: the μ of a plan of several releases, held in the ledger before the first of them is made.

Each release of the plan is an ordinary entry, and is paid from the reservation in the same transaction. What is not
paid yet counts as spent wherever a budget is checked. Nothing here depends on a record.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from mixveil.core.errors import ArgumentError, BudgetError
from mixveil.releases.spending import NOTHING_HELD, Held, composed, within

_FORM = struct.Struct("<dd?")  # and the party that shares its noise, if one does


class Reserved(NamedTuple):
    """What is held for a plan. mu: for all its releases; paid: √Σμ² of those that were entered, or refused because a
    record had spent its budget; named: whether its releases name units; shared_by: its party, where their noise is
    shared with others."""

    mu: float
    paid: float
    named: bool
    shared_by: str | None = None

    @property
    def left(self) -> float:
        """The μ that is still held; 0 where all of it is paid, up to rounding."""
        return 0.0 if within(self.mu, self.paid) else math.sqrt((self.mu - self.paid) * (self.mu + self.paid))

    def packed(self) -> bytes:
        return _FORM.pack(self.mu, self.paid, self.named) + (self.shared_by or "").encode()


def unpacked(value: Any) -> Reserved | None:
    """A reservation as the ledger keeps it; None where the value cannot be one."""
    if type(value) is not bytes or len(value) < _FORM.size:
        return None
    try:
        party = value[_FORM.size :].decode()
    except UnicodeDecodeError:
        return None
    mu, paid, named = _FORM.unpack_from(value)
    found = Reserved(mu, paid, named, party or None)
    right = math.isfinite(found.mu) and found.mu > 0 and found.paid >= 0 and within(found.paid, found.mu)
    return found if right else None


def held(plans: Iterable[Reserved]) -> Held:
    """The μ that is held for all these plans together."""
    together = NOTHING_HELD
    for plan in plans:
        mu, shared = composed(*together, plan.left, plan.shared_by)
        together = Held(float(mu), {party: float(item) for party, item in shared.items()})
    return together


def check_plan(plan: str) -> None:
    if not (plan.isprintable() and 0 < len(plan) <= 200):
        raise ArgumentError(f"plan must be a printable name of at most 200 characters, got {plan!r:.60}")


def check_same(plan: str, before: Reserved, mu: float, named: bool) -> None:
    """Refuse to change a reservation: releases that were made rely on it."""
    if not math.isclose(before.mu, mu, rel_tol=1e-9):
        raise ArgumentError(f"mu = {mu:g}: your ledger holds {before.mu:g} for the plan {plan!r}. Free that plan first")
    if before.named != named:
        raise ArgumentError(f"owners must name units where the plan {plan!r} was reserved with them, and only there")


def paying(plans: Mapping[str, Reserved], plan: str, stated: float | None, named: bool) -> Reserved:
    """The reservation of a plan after one release more. stated: the μ that the release promises a unit."""
    if plan not in plans:
        raise ArgumentError(f"plan = {plan!r:.60}: your ledger holds nothing for it. Reserve its μ first")
    before = plans[plan]
    check_same(plan, before, before.mu, named)
    if stated is None:
        raise BudgetError(f"this release promises nothing, so the plan {plan!r} cannot pay it; nothing was released")
    paid = math.hypot(before.paid, stated)
    if not within(paid, before.mu):
        raise BudgetError(
            f"this release costs μ = {stated:.4g}, and the plan {plan!r} has {before.left:.4g} left of "
            f"{before.mu:.4g}; nothing was released"
        )
    return before._replace(paid=paid)
