"""Reservations: a plan's μ is held before its first release, each release is paid from it, the rest is freed."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mixveil.core import errors
from mixveil.core.types import Cost
from mixveil.releases.ledger import Against, Entry, Ledger
from mixveil.releases.spending import Owners
from tests.command import Run
from tests.notes import shows
from tests.releases.test_ledger_file import changed, killed

OWNERS = Owners(np.array([1, 2, 3], np.uint64))
OTHERS = Owners(np.array([4, 5, 6], np.uint64))
NAMED = Owners(np.array([1, 5, 6], np.uint64), np.array([8, 8, 9], np.uint64))


def entry(number: int, mu: float) -> Entry:
    """Of three rows, whose labels μ covers."""
    return Entry(f"{number:032x}", "sums", "p", "server", "class-sums", 1.0, Cost(mu, mu, 1.0), mu, 0.0, 3)


# What is held


@pytest.mark.parametrize("against", ["records", "everything"])
def test_a_reservation_holds_the_budget_against_others(against: Against) -> None:
    """3² is held of 5²: 4² is left, for records that the plan does not hold too."""
    Ledger().set_budget(5.0)
    Ledger().reserve("job", 3.0, OWNERS, against=against)
    assert Ledger().reservations() == {"job": 3.0} and not Ledger().entries()
    assert Ledger().total().mu == 3.0 == Ledger().total().reserved and Ledger().total().left(5.0) == 4.0
    for owners in (OWNERS, OTHERS):
        assert Ledger().spent(owners).mu.tolist() == [3.0] * 3 and Ledger().standing(owners).spent.most == 3.0
        with pytest.raises(errors.BudgetError, match=r"3 is spent in 0 releases or reserved, 4 is left"):
            Ledger().enter(entry(0, 4.1), owners, against=against)
        with pytest.raises(errors.BudgetError, match="or reserved, 4 is left"):
            Ledger().reserve("other", 4.1, owners, against=against)
    assert not Ledger().total().refused  # it would be refused for any records, and tells of none
    Ledger().reserve("other", 2.0, OTHERS, against=against)
    Ledger().enter(entry(0, math.sqrt(12)), OTHERS, against=against)
    assert Ledger().total().mu == pytest.approx(5.0)


def test_a_plan_beyond_the_budget_is_refused() -> None:
    with pytest.raises(errors.BudgetError, match="budget of 1"):
        Ledger().reserve("job", 1.1, OWNERS, 1.0, against="everything")
    Ledger().enter(entry(0, 1.0), OWNERS)
    for owners in (OWNERS, OTHERS):  # by totals: whichever records they are
        with pytest.raises(errors.BudgetError, match=r"all releases in your ledger .* 1 is spent in 1 release,"):
            Ledger().reserve("job", 1.0, owners, 1.2, against="everything")
    assert Ledger().reservations() == {} and Ledger().total().mu == 1.0
    Ledger().reserve("job", 1.0, OTHERS, 1.2)  # by records there is room
    Ledger().free("job")
    with pytest.raises(errors.BudgetError, match="this attempt counts as a release"):
        Ledger().reserve("job", 1.0, OWNERS, 1.2)
    assert Ledger().total().mu == pytest.approx(math.sqrt(2)) and Ledger().total().label_epsilon == 0


def test_a_process_that_was_killed_reserves_again_and_holds_no_more() -> None:
    for _ in range(2):
        Ledger().reserve("job", 2.0, OWNERS, 2.0, against="everything")
    Ledger().enter(entry(0, 1.0), OWNERS, 2.0, against="everything", plan="job")
    Ledger().reserve("job", 2.0, OWNERS, 2.0, against="everything")
    assert Ledger().reservations()["job"] == pytest.approx(math.sqrt(3)) and Ledger().total().mu == pytest.approx(2)
    with pytest.raises(errors.ArgumentError, match=r"mu = 1: your ledger holds 2 for the plan 'job'"):
        Ledger().reserve("job", 1.0, OWNERS)
    with pytest.raises(errors.ArgumentError, match="must name units"):
        Ledger().reserve("job", 2.0, NAMED)
    for plan, mu in (("", 1.0), ("a\nb", 1.0), ("p" * 201, 1.0), ("q", 0.0), ("q", math.nan)):
        with pytest.raises(errors.ArgumentError, match=r"plan|mu"):
            Ledger().reserve(plan, mu, OWNERS)


def test_a_plan_that_names_no_units_has_no_bound_for_them() -> None:
    Ledger().reserve("job", 1.0, OWNERS)
    assert Ledger().total(units=True).unbounded and not Ledger().total().unbounded
    with pytest.raises(errors.BudgetError, match="what is reserved for releases that name no units"):
        Ledger().enter(entry(0, 1.0), NAMED, 9.0, against="everything")
    with pytest.raises(errors.ArgumentError, match="must name units"):
        Ledger().enter(entry(0, 1.0), NAMED, plan="job")
    Ledger().free("job")
    Ledger().reserve("job", 1.0, NAMED, 1.0, against="everything")
    Ledger().enter(entry(0, 0.5), NAMED, 1.0, against="everything", plan="job")
    assert Ledger().total(units=True).mu == pytest.approx(1)


# What pays


@pytest.mark.parametrize("against", ["records", "everything"])
def test_releases_of_a_plan_are_paid_from_it(against: Against) -> None:
    """First sums with a fifth of μ², then sixteen rounds: all of it, exactly, and no more."""
    budget, rounds = 1.7, 16
    Ledger().set_budget(budget)
    Ledger().reserve("job", budget, OWNERS, against=against)
    each = budget * math.sqrt(0.8 / rounds)
    for number, mu in enumerate([budget * math.sqrt(0.2), *[each] * rounds]):
        Ledger().enter(entry(number, mu), OWNERS, against=against, plan="job")
        assert Ledger().total().mu == pytest.approx(budget)
    assert Ledger().reservations() == {"job": 0.0} and Ledger().total().reserved == 0
    assert len(Ledger().entries()) == rounds + 1 and Ledger().spent(OWNERS).most == pytest.approx(budget)
    Ledger().set_budget(9.0)
    with pytest.raises(errors.BudgetError, match=r"costs μ = 0\.001, and the plan 'job' has 0 left of 1\.7"):
        Ledger().enter(entry(99, 0.001), OWNERS, against=against, plan="job")
    assert len(Ledger().entries()) == rounds + 1
    assert Ledger().free("job") == 0.0 and Ledger().reservations() == {}


def test_rounding_is_given_once_and_not_with_every_release() -> None:
    Ledger().reserve("job", 1.0, OWNERS)
    Ledger().enter(entry(0, 1.0), OWNERS, plan="job")
    with pytest.raises(errors.BudgetError, match="has 0 left"):
        for number in range(1, 9):
            Ledger().enter(entry(number, 2e-5), OWNERS, plan="job")
    assert Ledger().total().mu <= 1 + 1e-9


def test_what_a_plan_cannot_pay_is_not_entered() -> None:
    Ledger().reserve("job", 1.0, OWNERS)
    with pytest.raises(errors.BudgetError, match=r"costs μ = 1\.1, and the plan 'job' has 1 left"):
        Ledger().enter(entry(0, 1.1), OWNERS, plan="job")
    with pytest.raises(errors.BudgetError, match="promises nothing"):
        Ledger().enter(replace(entry(0, 1.0), cost=None, stated=None, label_epsilon=None), OWNERS, plan="job")
    with pytest.raises(errors.ArgumentError, match="'other': your ledger holds nothing"):
        Ledger().enter(entry(0, 0.1), OWNERS, plan="other")
    assert not Ledger().entries() and Ledger().reservations() == {"job": 1.0}


def test_a_plan_pays_and_the_budget_holds_all_the_same() -> None:
    """The owner lowered it meanwhile, or copies of an image cost more than the plan states."""
    Ledger().reserve("job", 2.0, OWNERS)
    Ledger().enter(entry(0, 1.0), OWNERS, plan="job")
    Ledger().set_budget(1.2)
    with pytest.raises(errors.BudgetError, match=r"budget of 1\.2: 1 is spent in 1 release,"):
        Ledger().enter(entry(1, 1.0), OWNERS, against="everything", plan="job")
    assert Ledger().reservations()["job"] == pytest.approx(math.sqrt(3))
    copies = Owners(np.array([7, 7, 7], np.uint64))
    with pytest.raises(errors.BudgetError, match=r"a record would have spent μ = 3 of"):
        Ledger().enter(entry(1, 1.0), copies, plan="job")
    # Refused for a record's sake, it counts as if it had been made: paid, and in the total.
    assert Ledger().reservations()["job"] == pytest.approx(math.sqrt(2)) and Ledger().total().mu == pytest.approx(2)


def test_a_try_that_died_is_paid_and_what_is_left_is_freed() -> None:
    Ledger().reserve("job", 5.0, OWNERS, 5.0, against="everything")
    making = Ledger().making(entry(0, 3.0), OWNERS, 5.0, against="everything", plan="job")
    with pytest.raises(errors.OutputError, match="the try counts"), making:
        raise errors.OutputError("the disk is full")
    assert [item.finished for item in Ledger().entries()] == [None] and Ledger().reservations() == {"job": 4.0}
    assert Ledger().free("job") == 4.0 and Ledger().total().mu == 3.0
    assert Ledger().free("job") == 0.0 and Ledger().reservations() == {}
    Ledger().enter(entry(1, 4.0), OWNERS, 5.0, against="everything")


def test_nothing_is_freed_where_there_is_no_ledger(own_state_folder: Path) -> None:
    assert Ledger().free("job") == 0.0 and Ledger().reservations() == {} and not own_state_folder.exists()


# The file


@pytest.mark.parametrize("step", range(4))
def test_a_kill_leaves_the_entry_and_its_payment_or_neither(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    Ledger().reserve("job", 5.0, OWNERS, 5.0)
    killed(step, lambda: Ledger().enter(entry(0, 3.0), OWNERS, plan="job"), monkeypatch)
    made = step >= 2  # it is committed between steps 1 and 2
    assert len(Ledger().entries()) == made and Ledger().reservations() == {"job": 4.0 if made else 5.0}
    assert Ledger().total().mu == 5.0


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM settings WHERE name = 'plan:job'",
        "UPDATE settings SET name = 'plan:other' WHERE name = 'plan:job'",
        "UPDATE settings SET value = x'00' WHERE name = 'plan:job'",
        "UPDATE settings SET value = (SELECT value FROM settings WHERE name = 'plan:small') WHERE name = 'plan:job'",
        "INSERT INTO settings SELECT 'plan:new', value FROM settings WHERE name = 'plan:small'",
    ],
)
def test_a_reservation_that_was_changed_is_noticed(own_state_folder: Path, statement: str) -> None:
    Ledger().reserve("job", 2.0, OWNERS)
    Ledger().reserve("small", 0.1, OWNERS)
    changed(own_state_folder, statement)
    asks: tuple[Callable[[], object], ...] = (
        lambda: Ledger().enter(entry(0, 1.0), OWNERS, plan="job"),
        lambda: Ledger().free("job"),
        Ledger().reservations,
        Ledger().total,
    )
    for ask in asks:
        with pytest.raises(errors.LedgerError):
            ask()


def test_an_older_copy_without_the_reservation_is_noticed(own_state_folder: Path) -> None:
    Ledger().set_budget(9.0)
    older = (own_state_folder / "ledger.sqlite").read_bytes()
    Ledger().reserve("job", 2.0, OWNERS)
    (own_state_folder / "ledger.sqlite").write_bytes(older)
    with pytest.raises(errors.LedgerError, match="older copy"):
        Ledger().total()


def test_a_ledger_that_never_reserved_is_as_it_was(own_state_folder: Path) -> None:
    Ledger().enter(entry(0, 1.0), OWNERS)
    with closing(sqlite3.connect(own_state_folder / "ledger.sqlite")) as db:
        before = db.execute("SELECT name FROM settings ORDER BY name").fetchall()
    Ledger().reserve("job", 1.0, OWNERS)
    Ledger().free("job")
    with closing(sqlite3.connect(own_state_folder / "ledger.sqlite")) as db:
        assert db.execute("SELECT name FROM settings ORDER BY name").fetchall() == before


def test_the_command_shows_what_is_reserved(run: Run) -> None:
    Ledger().reserve("job-7", 3.0, OWNERS)
    assert shows(run("ledger", "--budget", "5").out, "ledger-reserved", plan="job-7", mu=3.0)
    assert run("ledger", "--json").json["spent"]["left"] == 4.0
    Ledger().enter(entry(0, 4.0), OTHERS)
    shown = run("ledger")
    assert shows(shown.out, "ledger-spent", mu=5.0, releases=1) and "covered" in shown.out
    assert shows(shown.out, "with-reserved", mu=3.0) and shows(shown.out, "total-spent", mu=5.0, releases=1)
    told = run("ledger", "--json").json
    assert told["reserved"] == {"job-7": 3.0} and told["spent"]["total_mu"] == 5.0 and told["spent"]["left"] == 0


# Against an obvious twin

SQUARES = st.integers(1, 6)
OPERATIONS = st.one_of(
    st.tuples(st.just("reserve"), st.sampled_from("ab"), SQUARES),
    st.tuples(st.just("enter"), st.sampled_from(["a", "b", None]), SQUARES),
    st.tuples(st.just("free"), st.sampled_from("ab"), st.just(0)),
)


class Twin:
    """The same by whole numbers: squares of μ."""

    def __init__(self, budget: int) -> None:
        self.budget, self.entered = budget, 0
        self.plans: dict[str, list[int]] = {}

    @property
    def total(self) -> int:
        return self.entered + sum(left for _, left in self.plans.values())

    def may(self, what: str, plan: str | None, square: int) -> bool:
        if what == "free":
            self.plans.pop(str(plan), None)
            return True
        if what == "reserve":
            if plan in self.plans:
                return self.plans[plan][0] == square
            allowed = self.total + square <= self.budget
            self.plans |= {str(plan): [square, square]} if allowed else {}
            return allowed
        if plan is None:
            allowed = self.total + square <= self.budget
        else:
            allowed = plan in self.plans and square <= self.plans[plan][1]
        self.entered += square if allowed else 0
        if plan is not None and allowed:
            self.plans[plan][1] -= square
        return allowed


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 14), st.lists(st.tuples(OPERATIONS, st.booleans()), min_size=1, max_size=12))
def test_a_ledger_with_plans_is_as_whole_numbers_say(
    budget: int, operations: list[tuple[tuple[str, str | None, int], bool]]
) -> None:
    """Whatever the records are: no decision and no total depends on them."""
    twin = Twin(budget)
    with TemporaryDirectory() as folder:
        for number, ((what, plan, square), old) in enumerate(operations):
            book, owners, mu = Ledger(Path(folder) / "state"), OWNERS if old else OTHERS, math.sqrt(square)
            limit = math.sqrt(budget)
            try:
                if what == "reserve":
                    book.reserve(str(plan), mu, owners, limit, against="everything")
                elif what == "enter":
                    book.enter(entry(number, mu), owners, limit, against="everything", plan=plan)
                else:
                    book.free(str(plan))
                allowed = True
            except (errors.BudgetError, errors.ArgumentError):
                allowed = False
            assert allowed == twin.may(what, plan, square)
            left = {name: math.sqrt(left) for name, (_, left) in twin.plans.items()}
            again = Ledger(Path(folder) / "state")
            assert again.reservations() == pytest.approx(left, abs=1e-7)
            assert again.total().mu == pytest.approx(math.sqrt(twin.total))
            assert len(again.entries()) == again.total().releases
