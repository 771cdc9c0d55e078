"""The ledger: what is entered, how costs add up, and that no process and no kill can get round it."""

from __future__ import annotations

import math
import os
import signal
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from mixveil.core import errors, files
from mixveil.core.randomness import SecureStream, SeededStream, Stream
from mixveil.core.types import Cost, Guarantee, Mu
from mixveil.core.wording.notes import note
from mixveil.data.folder import folder_images
from mixveil.data.images import Images, from_tensors
from mixveil.data.npz import npz_images
from mixveil.encoders.identity import Identity
from mixveil.encoders.singular import Singular
from mixveil.features.cache import cache_folder
from mixveil.features.projection import Projected
from mixveil.features.projection_fit import fit
from mixveil.releases import accounting, ledger_file, traces
from mixveil.releases.envelope import Envelope
from mixveil.releases.kinds.updates import UpdateSettings
from mixveil.releases.ledger import Entry, Ledger
from mixveil.releases.reading import verify_release
from mixveil.releases.records import write_release
from mixveil.releases.spending import NO_COST, Owners, Prints, Spent, Standing, Total, within
from mixveil.releases.sums import write_statistics
from mixveil.releases.writing import LedgerTerms, entry_of
from tests.command import Run
from tests.made import blobs, features_of, images, range_facts
from tests.notes import holds, shows

ROOT2 = math.sqrt(2)


def release(out: Path, data: Images, mu: float = 1.0, stream: Stream | None = None, budget: float | None = None) -> str:
    encoder, guarantees = Singular().calibrate(Mu(mu), range_facts(data))
    stream = stream or SecureStream()
    return write_release(out, data, encoder, guarantees, party="p", stream=stream, budget=budget).id


def spent(data: Images) -> Spent:
    return Ledger().spent(Ledger().owners(data))


def entry(number: int, cost: Cost | None = None, label_epsilon: float | None = None) -> Entry:
    return Entry(f"{number:032x}", "records", "p", None, "singular", 1.0, cost, None, label_epsilon, 3)


def prints(*values: int) -> Prints:
    return np.array(values, np.uint64)


# What adds up


def test_two_releases_of_the_same_data_cost_the_root_of_two(tmp_path: Path) -> None:
    assert spent(images()).most == 0
    release(tmp_path / "a", images())
    assert spent(images()).most == pytest.approx(1)
    release(tmp_path / "b", images())
    assert spent(images()).most == pytest.approx(ROOT2) == spent(images()).median
    assert [e.stated for e in Ledger().entries()] == [1.0, 1.0] and all(e.finished for e in Ledger().entries())


def test_one_image_more_or_less_or_in_another_order_resets_nothing(tmp_path: Path) -> None:
    data = images(20)
    release(tmp_path / "a", data)
    more = from_tensors(
        torch.cat([data.take(torch.arange(20)).x.flip(0)[:15], torch.rand(1, 1, 4, 4)]), torch.zeros(16)
    )
    found = spent(more)
    assert sorted(found.mu.round(9).tolist()) == [0.0] + [1.0] * 15
    release(tmp_path / "b", more)
    assert spent(data).most == pytest.approx(ROOT2) and spent(more).mu.min() == pytest.approx(1)


def test_grey_stored_as_colour_is_the_same_image(tmp_path: Path) -> None:
    grey = torch.rand(6, 1, 4, 4)
    release(tmp_path / "a", from_tensors(grey, torch.arange(6) % 2))
    assert spent(from_tensors(grey.expand(-1, 3, -1, -1), torch.arange(6) % 2)).most == pytest.approx(1)
    tinted = grey.expand(-1, 3, -1, -1).clone()
    tinted[:, 2] += 0.001
    assert spent(from_tensors(tinted.clamp(0, 1), torch.arange(6) % 2)).most == 0


def test_the_same_image_in_another_shape_range_or_file_is_the_same(tmp_path: Path) -> None:
    octets = np.random.default_rng(0).integers(0, 256, (6, 1, 4, 4), dtype=np.uint8)
    y = np.arange(6) % 2
    shapes = {
        "plain": {"x": octets},
        "flat": {"x": octets.reshape(6, 16)},
        "floats": {"x": octets.astype(np.float32), "range": np.array([0.0, 255.0])},
        "halves": {"x": (octets / 255).astype(np.float64) * 2 - 1, "range": np.array([-1.0, 1.0])},
    }
    for number, (name, arrays) in enumerate(shapes.items()):
        np.savez(tmp_path / name, y=y, **arrays)  # type: ignore[arg-type]
        data = npz_images(tmp_path / f"{name}.npz")
        assert spent(data).most == pytest.approx(math.sqrt(number)), name
        release(tmp_path / f"release-{name}", data)


def test_copies_of_an_image_are_one_unit(tmp_path: Path) -> None:
    """Three copies may be paired with one another: (2C/σ)√3/(1 − α), more than the stated μ of one record."""
    data = images(20)
    x = data.take(torch.arange(20)).x
    x[1] = x[2] = x[0]
    copies = from_tensors(x, data.labels)
    release(tmp_path / "a", copies)
    encoder, _ = Singular().calibrate(Mu(1.0), range_facts(copies))
    worst = 2 * encoder.clip / encoder.sigma * math.sqrt(3) / (1 - encoder.alpha)
    assert spent(copies).most == pytest.approx(worst) and len(spent(copies).mu) == 18


def test_what_promises_nothing_binds_nobody(tmp_path: Path) -> None:
    data = images()
    seeded = release(tmp_path / "a", data, stream=SeededStream(0))
    write_release(tmp_path / "b", data, Identity(), (), party="p", stream=SecureStream())
    found = spent(data)
    assert found.unbounded[0] == seeded and len(found.unbounded) == 2 and found.worst.left(100.0) == 0
    assert spent(images(seed=9)).unbounded == ()


def projected(seed: int = 2) -> Projected:
    return Projected(features_of(blobs(60, seed)), fit(features_of(blobs(60, 1)), "a" * 64))


def test_what_a_seed_draws_promises_nothing_of_labels_either(tmp_path: Path) -> None:
    rows = projected()
    sums = write_statistics(tmp_path / "s", rows, "b" * 64, 1.0, party="p", stream=SeededStream(0))
    found = Ledger().spent(Ledger().owners(rows))
    assert found.unbounded == (sums.id,) and found.label_epsilon == math.inf
    with pytest.raises(errors.BudgetError, match="promises nothing"):
        write_statistics(tmp_path / "t", rows, "b" * 64, 1.0, party="p", stream=SecureStream(), budget=9.0)
    data = images()
    write_release(tmp_path / "r", data, Identity(), (), party="p", stream=SeededStream(0), label_epsilon=1.0)
    assert spent(data).label_epsilon == math.inf


def test_sums_are_entered_before_they_are_computed(tmp_path: Path) -> None:
    def stopped(_: int) -> None:
        raise KeyboardInterrupt

    def never(_: int) -> None:
        raise AssertionError("they were computed, though the budget forbids it")

    ask = {"party": "p", "stream": SecureStream()}
    with pytest.raises(KeyboardInterrupt):
        write_statistics(tmp_path / "s", projected(), "b" * 64, 1.0, progress=stopped, **ask)  # type: ignore[arg-type]
    assert [e.finished for e in Ledger().entries()] == [None]
    with pytest.raises(errors.BudgetError):
        write_statistics(tmp_path / "s", projected(), "b" * 64, 1.0, progress=never, budget=1.0, **ask)  # type: ignore[arg-type]


def slow_totals(asked: Owners, releases: list[tuple[Cost, Owners]]) -> dict[int, float]:
    """By loops over rows, as the rules are written: a row is the unit's that its release names for it; without a name,
    of every unit that was ever named for its image; under another name only if the unit's image is there under other
    names alone, and then as often as under one of them."""
    units: set[int] = set()
    alone: set[int] = set()
    for row, image in enumerate(asked.records.tolist()):
        met = {
            u for _, given in releases for r, u in zip(given.records.tolist(), _units(given), strict=True) if r == image
        }
        met -= {-1}
        if asked.units is not None:
            met.add(int(asked.units[row]))
        units |= met or {image}
        alone |= set() if met else {image}
    total = {}
    for unit in units:
        images = {unit} & alone
        if asked.units is not None:
            images |= {int(r) for r, u in zip(asked.records, asked.units, strict=True) if u == unit}
        for _, given in releases:
            images |= {r for r, u in zip(given.records.tolist(), _units(given), strict=True) if u == unit}
        squares = 0.0
        for cost, given in releases:
            rows = list(zip(given.records.tolist(), _units(given), strict=True))
            named = sum(u == unit for _, u in rows)
            others = 0
            for image in images:
                if given.units is None:
                    others += sum(r == image for r, _ in rows)
                elif (image, unit) not in rows:
                    others += max((rows.count((image, u)) for r, u in rows if r == image), default=0)
            base = cost.mu_if_paired if others and named + others > 1 else cost.mu
            squares += (base * (named + others) ** cost.group_exponent) ** 2 if named + others else 0.0
        total[unit] = math.sqrt(squares)
    return total


def _units(owners: Owners) -> list[int]:
    return [-1] * len(owners.records) if owners.units is None else owners.units.tolist()


@pytest.mark.parametrize("seed", range(40))
def test_costs_add_up_as_a_double_loop_says(seed: int) -> None:
    rng = np.random.default_rng(seed)

    def some(units: bool) -> Owners:
        n = int(rng.integers(2, 12))
        names = rng.integers(100, 104, n).astype(np.uint64) if units else None
        return Owners(rng.integers(0, 8, n).astype(np.uint64), names)

    book, released = Ledger(), []
    for number in range(4):
        cost = Cost(float(rng.uniform(0.5, 1)), float(rng.uniform(1, 2)), float(rng.choice([0.5, 1.0])))
        owners = some(bool(rng.integers(2)))
        book.enter(replace(entry(number, cost), rows=len(owners.records)), owners)
        released.append((cost, owners))
    for units in (False, True):
        asked = some(units)
        expected = slow_totals(asked, released)
        found = book.spent(asked).mu.tolist()
        assert found == pytest.approx([expected[name] for name in sorted(expected)])


def test_a_person_who_is_known_is_counted_though_nobody_names_him(tmp_path: Path) -> None:
    """Three images of one person, released as his; then without a name, which costs him more and not less."""
    data = images(20)
    names = replace(data, units=tuple(f"p{i // 3}" if i < 18 else str(i) for i in range(20)))
    release(tmp_path / "a", names, mu=1.0)
    with pytest.raises(errors.BudgetError, match="a unit would have spent"):
        release(tmp_path / "b", data, mu=0.9, budget=1.9)
    release(tmp_path / "b", data, mu=0.5)
    encoder, _ = Singular().calibrate(Mu(0.5), range_facts(data))
    together = (encoder.cost() or Cost(0, 0, 0)).mu_if_paired * math.sqrt(3)
    for asked in (data, names):
        assert spent(asked).most == pytest.approx(math.hypot(1, together)) and spent(asked).named
    everyone = Ledger().spent(Ledger().everyone())
    assert everyone.most == pytest.approx(math.hypot(1, together)) and len(everyone.mu) == 8


def test_all_images_of_a_person_count_whichever_are_released(tmp_path: Path) -> None:
    """All rows without names; then two of a person's images as his, then two others: he was in the first with four."""
    data = images(20)
    release(tmp_path / "a", data)
    for name, mine in (("b", (0, 1)), ("c", (2, 3))):
        index = torch.tensor([*mine, *range(4, 20)])
        named = replace(data.part(index), units=("he", "he", *(str(i) for i in range(4, 20))))
        release(tmp_path / name, named)
    encoder, _ = Singular().calibrate(Mu(1.0), range_facts(data))
    first = (encoder.cost() or Cost(0, 0, 0)).mu_if_paired * 2
    assert spent(named).most == pytest.approx(math.hypot(first, 1, 1))


def test_a_renamed_person_and_a_blank_image_that_many_have() -> None:
    """Under new names old spending is found by the images; a blank image does not make one person of all."""
    book, cost = Ledger(), Cost(1.0, 2.0, 0.5)
    many = Owners(np.array([0] * 500 + [1, 2], np.uint64), np.array([*range(1000, 1500), 7, 7], np.uint64))
    book.enter(replace(entry(0, cost), rows=502), many)
    assert book.spent(many).most == pytest.approx(math.sqrt(2))
    again = Owners(prints(1, 2), prints(8, 8))
    assert book.spent(again).mu.tolist() == pytest.approx([math.sqrt(2), 2 * math.sqrt(2)])  # as 7, and as 8


def test_a_budget_holds_for_everyone_whose_image_it_ever_was() -> None:
    """Ten images of U, at the end of his budget; then one of them as V's, or as nobody's after it was V's."""
    book, cost = Ledger(), Cost(1.0, 1.5, 0.5)
    book.enter(
        replace(entry(0, Cost(1 / math.sqrt(10), 1.0, 0.5)), rows=10), Owners(prints(*range(10)), prints(*[99] * 10))
    )
    for units in (prints(98), None):
        with pytest.raises(errors.BudgetError, match="1 is spent"):
            book.enter(replace(entry(1, cost), rows=1), Owners(prints(3), units), budget=1.0)
    book.enter(replace(entry(2, cost), rows=1), Owners(prints(3), prints(98)))
    assert book.spent(Owners(prints(3))).most == pytest.approx(math.sqrt(2)) == book.spent(book.everyone()).most


def test_the_labels_epsilon_adds_up_and_a_shown_label_ends_it() -> None:
    book, owners = Ledger(), Owners(prints(1, 2, 3))
    for number in range(2):
        book.enter(entry(number, Cost(1, 1, 0.5), 0.5), owners)
    assert book.spent(owners).label_epsilon == 1.0
    three = Owners(prints(7, 8, 9), prints(1, 1, 1))
    book.enter(entry(9, Cost(1, 1, 0.5), 0.5), three)
    assert book.spent(three).label_epsilon == 1.5  # of all three labels of one person
    book.enter(entry(5, Cost(1, 1, 0.5)), owners)
    assert book.spent(owners).label_epsilon == math.inf


# Budgets


def test_what_would_exceed_the_budget_is_refused_with_the_figures(tmp_path: Path) -> None:
    data = images()
    for name in "ab":
        release(tmp_path / name, data, budget=1.5)
    with pytest.raises(errors.BudgetError, match=r"1\.732 of a budget of 1\.5: 1\.414 is spent in 2 .* 0\.5 is left"):
        release(tmp_path / "c", data, budget=1.5)
    assert not (tmp_path / "c").exists() and len(Ledger().entries()) == 2
    release(tmp_path / "d", data, mu=0.5, budget=1.5)  # exactly what is left
    release(tmp_path / "e", images(seed=5), budget=1.5)  # other records have a budget of their own


def test_the_stricter_of_two_budgets_holds(tmp_path: Path) -> None:
    Ledger().set_budget(0.9)
    with pytest.raises(errors.BudgetError, match=r"budget of 0\.9"):
        release(tmp_path / "a", images(), budget=2.0)
    assert Ledger().budget == 0.9
    with pytest.raises(errors.BudgetError, match=r"budget of 0\.5"):
        release(tmp_path / "a", images(), mu=0.8, budget=0.5)
    for wrong in (0, -1, math.nan):
        with pytest.raises(errors.ArgumentError, match="budget"):
            Ledger().set_budget(wrong)
        with pytest.raises(errors.ArgumentError, match="budget"):
            release(tmp_path / "a", images(), mu=0.8, budget=wrong)


def test_no_budget_holds_where_something_promises_nothing(tmp_path: Path) -> None:
    with pytest.raises(errors.BudgetError, match="this release promises nothing"):
        release(tmp_path / "a", images(), stream=SeededStream(0), budget=5.0)
    first = release(tmp_path / "a", images(), stream=SeededStream(0))
    with pytest.raises(errors.BudgetError, match=f"{first[:8]} of these records promises nothing"):
        release(tmp_path / "b", images(), budget=5.0)


def shared(number: int, mu: float, party: str) -> Entry:
    """Of a secure sum."""
    return replace(entry(number, Cost(mu, mu, 1.0), 0.0), stated=mu, party=party, encoder="residual-sums-shared-3")


def test_several_parties_of_one_ledger_add_up_in_secure_sums(tmp_path: Path) -> None:
    """A record of both is in each sum twice, under the noise of one sum: 5 + 12, where √(5² + 12²) would be 13."""
    book, rows = Ledger(tmp_path), Owners(prints(1, 2, 3))
    book.enter(shared(0, 3.0, "a"), rows)
    book.enter(shared(1, 4.0, "a"), rows)
    assert book.total().mu == pytest.approx(5) and book.spent(rows).most == pytest.approx(5)
    book.enter(shared(2, 12.0, "b"), Owners(prints(3, 4, 5)))
    assert book.total().mu == pytest.approx(17)
    assert book.spent(Owners(prints(1, 3, 4))).mu.tolist() == pytest.approx([5, 17, 12])
    book.enter(stated(3, 2.0), rows)  # noise of its own is beside that of the sums
    assert book.total().mu == pytest.approx(math.hypot(17, 2)) == pytest.approx(book.spent(rows).most)
    with pytest.raises(errors.BudgetError, match=r"spent μ = 17\.38 of a budget of 17\.2"):
        book.enter(stated(4, 3.0), Owners(prints(7, 8, 9)), 17.2, against="everything")
    with pytest.raises(errors.BudgetError, match=r"spent μ = 19\.18 of a budget of 18"):
        book.enter(shared(5, 5.0, "a"), Owners(prints(3, 7, 8)), 18.0)


def test_what_is_held_for_several_parties_of_one_ledger_adds_up(tmp_path: Path) -> None:
    book, rows = Ledger(tmp_path), Owners(prints(1, 2, 3))
    book.reserve("a's", 5.0, rows, shared_by="a")
    book.reserve("more of a", 12.0, rows, shared_by="a")
    assert book.total().mu == book.total().reserved == pytest.approx(13)
    with pytest.raises(errors.BudgetError, match="spent μ = 17"):
        book.reserve("b's", 4.0, rows, 16.9, shared_by="b", against="everything")
    book.reserve("b's", 4.0, rows, 17.1, shared_by="b", against="everything")
    book.reserve("own", 3.0, rows)
    assert book.total().mu == pytest.approx(math.hypot(17, 3)) == pytest.approx(book.spent(rows).most)
    book.enter(shared(0, 4.0, "b"), rows, plan="b's")  # what was held is spent
    assert book.total().mu == pytest.approx(math.hypot(17, 3)) == pytest.approx(book.spent(rows).most)


def stated(number: int, mu: float, label_epsilon: float | None = None, kind: str = "records") -> Entry:
    """Of three rows, at a μ that is stated and paid."""
    return replace(entry(number, Cost(mu, 2 * mu, 0.5), label_epsilon), stated=mu, kind=kind)


def test_the_total_counts_everything_against_everybody(tmp_path: Path) -> None:
    """√Σμ² over all entries, whosever rows they hold, finished or not; and of every kind of release."""
    book = Ledger()
    assert book.total() == Total(0.0, (), 0.0, 0)
    book.enter(stated(0, 3.0, 0.5), Owners(prints(1, 2, 3)))
    book.enter(stated(1, 4.0, 0.25), Owners(prints(7, 8, 9), prints(5, 5, 5)))
    assert book.total() == Total(5.0, (), 0.75, 2)
    release(tmp_path / "a", replace(images(), units=tuple(str(i // 2) for i in range(20))), mu=12.0)
    assert book.total() == Total(13.0, (), math.inf, 3)  # of a unit of two rows, too
    write_statistics(tmp_path / "s", projected(), "b" * 64, 84.0, party="p", stream=SecureStream())
    assert book.total().mu == pytest.approx(85)
    nothing = release(tmp_path / "b", images(), stream=SeededStream(0))
    updates = replace(entry(9), kind="updates")
    book.enter(updates, Owners(prints(1, 2, 3)))
    assert book.total().unbounded == (nothing, updates.id) and book.total().releases == 6


def test_no_record_enters_a_decision_against_everything() -> None:
    """The same question of any records has the same answer: those that are in the ledger, and those that are not."""
    old, new = Owners(prints(1, 2, 3)), Owners(prints(4, 5, 6))
    Ledger().enter(stated(0, 1.0, 0.5), old)
    answers = set()
    for number, owners in enumerate((old, new, Owners(prints(1, 1, 1))), 1):
        for budget, label_budget in ((1.4, 9.0), (9.0, 0.9)):
            with pytest.raises(errors.BudgetError) as refused:
                Ledger().enter(
                    stated(number, 1.0, 0.5), owners, budget, label_budget=label_budget, against="everything"
                )
            answers.add(str(refused.value))
    assert len(answers) == 2 and any("1.414 of a budget of 1.4: 1 is spent in 1" in said for said in answers)
    Ledger().enter(stated(1, 1.0, 0.5), new, 1.4, label_budget=0.5)  # by records there is room
    with pytest.raises(errors.BudgetError, match="a record would have spent"):
        Ledger().enter(stated(2, 1.0, 0.5), old, 1.4)
    # What was refused for a record's sake counts where a server asks, as if it had been made.
    with pytest.raises(errors.BudgetError, match=r"μ = 2 of a budget of 1\.8: 1\.732 is spent"):
        Ledger().enter(stated(2, 1.0, 0.5), old, 1.8, label_budget=2.5, against="everything")
    Ledger().enter(stated(2, 1.0, 0.5), old, 2.0, label_budget=2.0, against="everything")
    with pytest.raises(errors.ArgumentError, match="against"):
        Ledger().enter(stated(3, 1.0), old, against="all")  # type: ignore[arg-type]


@pytest.mark.parametrize("label_epsilon", [0.5, None])
@pytest.mark.parametrize("cost", [Cost(1.0, 1.0, 0.5), None])
@pytest.mark.parametrize("named", [False, True])
def test_the_total_does_not_tell_what_was_refused_from_what_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, label_epsilon: float | None, cost: Cost | None, named: bool
) -> None:
    """Of two data sets one was released before: the second release is refused to one, and made for the other."""
    totals = []
    for name, records in (("refused", prints(1, 2, 3)), ("made", prints(4, 5, 6))):
        monkeypatch.setenv("MIXVEIL_STATE", str(tmp_path / name))
        units = prints(7, 8, 9) if named else None
        Ledger().enter(stated(0, 1.0, 0.5), Owners(prints(1, 2, 3), prints(11, 12, 13)))
        new = replace(entry(1, cost, label_epsilon), stated=None if cost is None else 1.0)
        budget, label_budget = None if cost is None else 1.2, None if label_epsilon is None else 0.7
        if budget is None and label_budget is None:
            return  # nothing is refused
        try:
            Ledger().enter(new, Owners(records, units), budget, label_budget=label_budget)
            assert name == "made"
        except errors.BudgetError:
            assert name == "refused"
        for of_units in (False, True):
            total = Ledger().total(units=of_units)
            totals.append((math.inf if total.unbounded else total.mu, total.label_epsilon))
    assert totals[:2] == totals[2:]
    monkeypatch.setenv("MIXVEIL_STATE", str(tmp_path / "refused"))
    if cost is None:
        with pytest.raises(errors.BudgetError, match=r"a release that was refused .* promises nothing"):
            Ledger().enter(stated(2, 0.1), Owners(prints(21, 22, 23), prints(24, 25, 26)), 9.0, against="everything")


def test_budgets_against_everything_reach_releases_and_statistics(tmp_path: Path) -> None:
    Ledger().enter(stated(0, 1.0, 0.5), Owners(prints(1, 2, 3)))
    data, stream = images(), SecureStream()
    encoder, guarantees = Singular().calibrate(Mu(1.0), range_facts(data))
    with pytest.raises(errors.BudgetError, match="all releases in your ledger"):
        write_release(
            tmp_path / "r", data, encoder, guarantees, party="p", stream=stream, budget=1.2, against="everything"
        )
    sums: dict[str, Any] = {"party": "p", "stream": stream, "against": "everything"}
    with pytest.raises(errors.BudgetError, match="all releases in your ledger"):
        write_statistics(tmp_path / "s", projected(), "b" * 64, 1.0, budget=1.2, **sums)
    write_statistics(
        tmp_path / "s", projected(), "b" * 64, 0.5, budget=1.2, label_budget=0.5, **sums
    )  # μ covers labels
    total = Ledger().total()
    assert total.mu == pytest.approx(math.sqrt(1.25)) and total.label_epsilon == 0.5 and total.covered
    write_release(tmp_path / "r", data, encoder, guarantees, party="p", stream=stream, budget=1.2)
    Ledger().enter(replace(entry(9), kind="projection"), Owners(prints(1, 2, 3)))
    with pytest.raises(errors.BudgetError, match="the release 00000000 promises nothing"):
        Ledger().enter(stated(1, 1.0), Owners(prints(4, 5, 6)), 9.0, against="everything")


def test_labels_have_a_budget_of_their_own(tmp_path: Path) -> None:
    owners, three = Owners(prints(1, 2, 3)), Owners(prints(7, 8, 9), prints(1, 1, 1))
    Ledger().set_label_budget(1.0)
    assert Ledger().label_budget == 1.0 and Ledger().budget is None
    for number in range(2):
        Ledger().enter(stated(number, 0.1, 0.5), owners)
    with pytest.raises(errors.BudgetError, match=r"ε = 1\.5 of a label budget of 1: 1 is spent in 2 release"):
        Ledger().enter(stated(2, 0.1, 0.5), owners)
    with pytest.raises(errors.BudgetError, match=r"a unit would have spent ε = 1\.5"):
        Ledger().enter(stated(2, 0.1, 0.5), three)  # all three labels of one person
    with pytest.raises(errors.BudgetError, match=r"this release shows labels as they are.* --label-epsilon"):
        release(tmp_path / "a", images())
    with pytest.raises(errors.BudgetError, match=r"label budget of 0\.1"):
        Ledger().enter(stated(2, 0.1, 0.2), Owners(prints(4, 5, 6)), label_budget=0.1)
    Ledger().set_label_budget(9.0)
    for wrong in (0, -1, math.nan):
        with pytest.raises(errors.ArgumentError, match="label_budget"):
            Ledger().set_label_budget(wrong)
        with pytest.raises(errors.ArgumentError, match="label_budget"):
            Ledger().enter(stated(2, 0.1, 0.5), owners, label_budget=wrong)
    assert len(Ledger().entries()) == 2


def test_labels_that_were_shown_once_have_no_budget(tmp_path: Path) -> None:
    owners = Owners(prints(1, 2, 3))
    Ledger().enter(stated(0, 1.0), owners)
    for against in ("records", "everything"):
        with pytest.raises(errors.BudgetError, match=r"an earlier release.* shows labels as they are"):
            Ledger().enter(stated(1, 0.1, 0.5), owners, label_budget=5.0, against=against)
    Ledger().enter(stated(1, 0.1, 0.5), Owners(prints(4, 5, 6)), label_budget=5.0)  # others' labels


def test_labels_that_mu_covers_cost_no_epsilon() -> None:
    """A sum of covered, randomised and shown labels; and a label budget that only the covered ones pass."""
    book, owners = Ledger(), Owners(prints(1, 2, 3))
    for against in ("records", "everything"):
        book.enter(stated(len(book.entries()), 0.1, 0.0), owners, label_budget=0.01, against=against)
    standing = book.standing(owners)
    assert standing.spent.label_epsilon == 0 == standing.total.label_epsilon
    assert holds([accounting.spent_note(standing), accounting.total_note(standing.total)], "labels-covered-before")
    assert accounting.summary(standing)["labels_covered"] and not accounting.summary(standing)["labels_shown"]
    book.enter(stated(2, 0.1, 0.5), owners)
    standing = book.standing(owners)
    assert standing.spent.label_epsilon == 0.5 == standing.total.label_epsilon
    for told in (accounting.spent_note(standing), accounting.total_note(standing.total)):
        assert holds([told], "labels-partly-covered")  # 0.5-DP alone would be a false promise
    book.enter(stated(3, 0.1), owners)
    book.enter(stated(4, 0.1, 0.0), owners, label_budget=0.01)
    with pytest.raises(errors.BudgetError, match="an earlier release"):
        book.enter(stated(5, 0.1, 0.1), owners, label_budget=1.0)
    assert book.total().label_epsilon == math.inf and [e.label_epsilon for e in book.entries()] == [0, 0, 0.5, None, 0]


def test_a_refused_release_that_covers_labels_can_be_read_again() -> None:
    book, owners = Ledger(), Owners(prints(1, 2, 3))
    book.enter(stated(0, 1.0, 0.0), owners)
    with pytest.raises(errors.BudgetError, match="counts as a release"):
        book.enter(stated(1, 1.0, 0.0), owners, 1.2)
    assert book.total().mu == pytest.approx(ROOT2) and book.total().label_epsilon == 0 and book.total().refused


@dataclass(frozen=True)
class Covering(UpdateSettings):
    """A kind whose noise covers labels."""

    @property
    def labels_covered(self) -> bool:
        return True

    def cost(self) -> Cost:
        return Cost(1.0, 1.0, 1.0)


def test_labels_are_covered_where_a_mu_is_certified() -> None:
    certified = (Guarantee("gdp", 1.0, 1.0, {}),)
    plain, covering = UpdateSettings("m", {}), Covering("m", {})
    for settings, guarantees, reproducible, expected in (
        (covering, certified, False, 0.0),
        (covering, certified, True, None),
        (covering, (), False, None),
        (plain, certified, False, None),
    ):
        envelope = Envelope(settings, "p", ("a", "b"), guarantees, reproducible)
        assert entry_of(envelope, 3, None).label_epsilon == expected


def test_a_release_is_paid_from_its_plan_where_it_is_written(tmp_path: Path) -> None:
    data = images()
    encoder, guarantees = Singular().calibrate(Mu(1.0), range_facts(data))
    terms: LedgerTerms = {"budget": ROOT2, "against": "everything", "plan": "job"}
    Ledger().reserve("job", ROOT2, Ledger().owners(data), ROOT2, against="everything")
    for name in "ab":
        write_release(tmp_path / name, data, encoder, guarantees, party="p", stream=SecureStream(), **terms)
    with pytest.raises(errors.BudgetError, match="the plan 'job' has 0 left"):
        write_release(tmp_path / "c", data, encoder, guarantees, party="p", stream=SecureStream(), **terms)
    assert Ledger().total().mu == pytest.approx(ROOT2) and not (tmp_path / "c").exists()


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -1.0, 0.0])
def test_a_cost_that_is_no_number_is_never_entered(wrong: float) -> None:
    owners, good = Owners(prints(1, 2, 3)), stated(0, 1.0, 0.5)
    for bad in (
        replace(good, cost=Cost(wrong, 1.0, 0.5)),
        replace(good, cost=Cost(1.0, wrong, 0.5)),
        replace(good, cost=Cost(1.0, 1.0, wrong or -0.5)),  # 0: a unit that was clipped as a whole pays once
        replace(good, stated=wrong),
        replace(good, label_epsilon=wrong, cost=None, stated=None),  # 0, with a μ: labels are covered
    ):
        with pytest.raises(errors.ArgumentError, match="must be positive"):
            Ledger().enter(bad, owners)
    assert not Ledger().entries() and not within(math.nan, 1.0)


def test_nothing_is_entered_for_arguments_that_are_none(tmp_path: Path) -> None:
    data = images()
    encoder, guarantees = Singular().calibrate(Mu(1.0), range_facts(data))
    rows = projected()
    for epsilon in (-5.0, 0.0, math.nan, 1000.0):
        with pytest.raises(errors.ArgumentError, match="label_epsilon"):
            write_release(
                tmp_path / "r", data, encoder, guarantees, party="p", stream=SecureStream(), label_epsilon=epsilon
            )
    with pytest.raises(errors.ArgumentError, match="0 owners are given for 20 rows"):
        nobody = Owners(prints())
        write_release(tmp_path / "r", data, encoder, guarantees, party="p", stream=SecureStream(), owners=nobody)
    with pytest.raises(errors.ArgumentError, match="mu must be positive"):
        write_statistics(tmp_path / "s", rows, "b" * 64, -1.0, party="p", stream=SecureStream())
    assert not Ledger().entries()


def test_who_is_named_to_the_ledger_must_be_named_in_the_data(tmp_path: Path) -> None:
    data = images()
    encoder, guarantees = Singular().calibrate(Mu(1.0), range_facts(data))
    named = Owners(Ledger().owners(data).records, np.arange(20).astype(np.uint64) // 3)
    with pytest.raises(errors.ArgumentError, match="units"):
        write_release(tmp_path / "r", data, encoder, guarantees, party="p", stream=SecureStream(), owners=named)


# What is released is what was entered


def test_images_that_change_while_they_are_encoded_are_refused(tmp_path: Path, own_state_folder: Path) -> None:
    x = SeededStream(1).uniform(20, 1, 4, 4).float()
    data = from_tensors(x, torch.arange(20) % 4, classes=4)
    encoder, guarantees = Singular().calibrate(Mu(1.0), range_facts(data))

    def changes(_: int) -> None:
        x[7] = 0.25

    with pytest.raises(errors.MismatchError, match=r"row 7 is not the image .* the try counts in your ledger"):
        write_release(tmp_path / "r", data, encoder, guarantees, party="p", stream=SecureStream(), progress=changes)
    assert not list(tmp_path.glob("*r*")) and not list(own_state_folder.glob("traces/*"))
    assert [e.finished for e in Ledger().entries()] == [None]
    write_release(tmp_path / "r", data, encoder, guarantees, party="p", stream=SecureStream(), progress=changes)


def test_images_that_change_while_they_are_summed_are_refused(tmp_path: Path) -> None:
    data, public = blobs(60, 2), fit(features_of(blobs(60, 1)), "a" * 64)
    x = data.take(torch.arange(60)).x
    rows = Projected(features_of(from_tensors(x, data.labels, classes=3)), public)

    def changes(_: int) -> None:
        x[59] = 0.25

    with pytest.raises(errors.MismatchError, match="changed since their features were computed"):
        write_statistics(tmp_path / "s", rows, "b" * 64, 1.0, party="p", stream=SecureStream(), progress=changes)
    assert not list(tmp_path.glob("*s*.partial")) and not (tmp_path / "s").exists() and len(Ledger().entries()) == 1
    with pytest.raises(errors.MismatchError, match="row 59, changed since"):  # also if they are entered afterwards
        write_statistics(tmp_path / "s", rows, "b" * 64, 1.0, party="p", stream=SecureStream())
    with pytest.raises(errors.MismatchError, match="row 1, changed since"):
        rows.rows.part(torch.tensor([5, 59])).originals(torch.arange(2))
    assert len(Ledger().entries()) == 1


def test_a_file_that_changes_while_it_is_encoded_is_refused(tmp_path: Path) -> None:
    """Image files are read when they are needed; archives are mapped."""
    octets = np.random.default_rng(0).integers(0, 256, (6, 4, 4), dtype=np.uint8)
    for number in range(6):
        path = tmp_path / "d" / str(number % 2) / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(octets[number]).save(path)
    np.savez(tmp_path / "d.npz", x=octets, y=np.arange(6) % 2)

    def image(_: int) -> None:
        Image.fromarray(octets[0]).save(tmp_path / "d" / "1" / "5.png")

    def archive(_: int) -> None:
        whole = (tmp_path / "d.npz").read_bytes()
        place = whole.index(octets[3].tobytes())
        with (tmp_path / "d.npz").open("r+b") as file:
            file.seek(place)
            file.write(bytes(16))

    for data, changes in ((folder_images(tmp_path / "d", grey=True), image), (npz_images(tmp_path / "d.npz"), archive)):
        encoder, guarantees = Singular().calibrate(Mu(1.0), range_facts(data))
        with pytest.raises(errors.MismatchError, match="was entered in your ledger"):
            write_release(tmp_path / "r", data, encoder, guarantees, party="p", stream=SecureStream(), progress=changes)
        assert not (tmp_path / "r").exists()


# The file


def test_a_try_that_failed_counts_and_one_that_was_refused_does_not(
    tmp_path: Path, own_state_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(folder: Path) -> None:
        if folder != own_state_folder:
            raise OSError(5, "Input/output error")

    spent(images())  # the ledger is there
    with monkeypatch.context() as patched:
        patched.setattr("mixveil.core.files.sync_folder", broken)
        with pytest.raises(errors.OutputError, match="the try counts in your ledger"):
            release(tmp_path / "a", images())
    assert [e.finished for e in Ledger().entries()] == [None] and spent(images()).most == pytest.approx(1)
    with pytest.raises(errors.OutputError, match="the disk has"):
        monkeypatch.setattr("mixveil.releases.records._bytes", lambda *_: 1 << 60)
        release(tmp_path / "b", images())
    assert len(Ledger().entries()) == 1 and not list(tmp_path.glob("[ab]*"))


def test_sums_that_cannot_be_written_say_that_they_count(
    tmp_path: Path, own_state_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = files.write_file

    def full(path: Path, data: bytes, mode: int = 0o644) -> None:
        if own_state_folder not in path.parents:
            raise OSError(28, "No space left on device")
        write(path, data, mode)

    rows = projected()
    monkeypatch.setattr("mixveil.core.files.write_file", full)
    with pytest.raises(errors.OutputError, match=r"No space left .* the try counts in your ledger"):
        write_statistics(tmp_path / "s", rows, "b" * 64, 1.0, party="p", stream=SecureStream())
    assert [e.finished for e in Ledger().entries()] == [None] and not (tmp_path / "s").exists()


def test_it_is_private_and_names_nothing(tmp_path: Path, own_state_folder: Path) -> None:
    data = replace(images(), units=tuple(f"patient-{i}" for i in range(20)))
    release(tmp_path / "a", data)
    for name in ("ledger.sqlite", "ledger.key"):
        assert (own_state_folder / name).stat().st_mode & 0o777 == 0o600
    assert own_state_folder.stat().st_mode & 0o777 == 0o700
    whole = (own_state_folder / "ledger.sqlite").read_bytes()
    assert b"patient" not in whole and data.take(torch.tensor([0])).x.numpy().tobytes()[:16] not in whole


def test_another_key_sees_other_fingerprints(tmp_path: Path, own_state_folder: Path) -> None:
    first = Ledger().owners(images()).records
    second = Ledger(tmp_path / "other").owners(images()).records
    assert not np.intersect1d(first, second).size
    release(tmp_path / "a", images())
    (own_state_folder / "ledger.key").write_bytes(bytes(32))
    with pytest.raises(errors.LedgerError, match="is not the key of this ledger"):
        release(tmp_path / "b", images())
    (own_state_folder / "ledger.key").unlink()
    with pytest.raises(errors.LedgerError, match="cannot be read"):
        spent(images())
    assert not (tmp_path / "b").exists()


def test_a_ledger_that_is_gone_is_not_begun_anew(tmp_path: Path, own_state_folder: Path) -> None:
    release(tmp_path / "a", images())
    (own_state_folder / "ledger.sqlite").rename(tmp_path / "away")
    with pytest.raises(errors.LedgerError, match="is gone"):
        release(tmp_path / "b", images())
    (tmp_path / "away").rename(own_state_folder / "ledger.sqlite")
    release(tmp_path / "b", images())


def test_an_older_copy_of_the_ledger_is_refused(tmp_path: Path, own_state_folder: Path) -> None:
    release(tmp_path / "a", images())
    older = (own_state_folder / "ledger.sqlite").read_bytes()
    later = release(tmp_path / "b", images())
    (own_state_folder / "ledger.sqlite").write_bytes(older)
    with pytest.raises(errors.LedgerError, match="one of the two is an older copy"):
        release(tmp_path / "c", images())
    (own_state_folder / "ledger.made").write_bytes(b"")  # its owner takes the older one; but the trace is still there
    with pytest.raises(errors.LedgerError, match=f"does not know the release {later[:8]}"):
        release(tmp_path / "c", images())
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize("variable", ["MIXVEIL_STATE", "XDG_STATE_HOME", "HOME", "MIXVEIL_CACHE", "XDG_CACHE_HOME"])
def test_an_owners_folder_is_one_wherever_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    """A relative one would be another ledger in every folder, and would leave private features in each."""
    for name in ("MIXVEIL_STATE", "XDG_STATE_HOME", "MIXVEIL_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert traces.state_folder() == tmp_path / ".local" / "state" / "mixveil"
    assert cache_folder() == tmp_path / ".cache" / "mixveil"
    monkeypatch.setenv(variable, "relative")
    with pytest.raises(errors.StateError, match=f"{variable} must be an absolute path, got 'relative'"):
        if "CACHE" in variable:
            cache_folder()
        else:
            release(tmp_path / "a", images())
    monkeypatch.setenv(variable, str(tmp_path / "x"))
    found = cache_folder() if "CACHE" in variable else traces.state_folder()
    assert tmp_path / "x" in (found, *found.parents)


@pytest.mark.parametrize("damage", ["garbage", "version", "empty"])
def test_a_damaged_ledger_stops_everything(tmp_path: Path, own_state_folder: Path, damage: str) -> None:
    release(tmp_path / "a", images())
    path = own_state_folder / "ledger.sqlite"
    if damage == "garbage":
        path.write_bytes(b"not a database, " * 1000)
    elif damage == "empty":
        path.write_bytes(b"")
    else:
        with sqlite3.connect(path) as db:
            db.execute("PRAGMA user_version = 9")
        db.close()
    for ask in (lambda: release(tmp_path / "b", images()), Ledger().entries):
        with pytest.raises(errors.LedgerError):
            ask()
    assert not (tmp_path / "b").exists()


def test_a_locked_ledger_is_waited_for_and_then_an_error(
    tmp_path: Path, own_state_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release(tmp_path / "a", images())
    monkeypatch.setattr(ledger_file, "PATIENCE", 0.2)
    other = sqlite3.connect(own_state_folder / "ledger.sqlite", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(errors.LedgerBusyError, match="another process has held the ledger"):
        release(tmp_path / "b", images())
    other.execute("ROLLBACK")
    other.close()
    assert not (tmp_path / "b").exists()
    release(tmp_path / "b", images())


@pytest.mark.skipif(not Path("/sys/kernel").is_dir(), reason="no folder here that even root cannot write to")
def test_a_state_folder_that_is_read_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIXVEIL_STATE", "/sys/kernel/mixveil")
    with pytest.raises(errors.LedgerError, match="cannot be written"):
        release(tmp_path / "a", images())
    assert not (tmp_path / "a").exists()


# Processes


def in_children(work: Callable[[int], None], count: int) -> list[int]:
    """Run the work in so many processes at once; their ids."""
    children = []
    for number in range(count):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                work(number)
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    return children


def codes(children: list[int]) -> list[int]:
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def test_ten_processes_at_once_leave_a_right_ledger(tmp_path: Path) -> None:
    """Even the first, who makes it: nobody's key is lost, nothing is counted twice or not at all."""
    found = codes(in_children(lambda i: void(release(tmp_path / str(i), images())), 10))
    assert found == [0] * 10
    entries = Ledger().entries()
    assert len(entries) == 10 and {verify_release(tmp_path / str(i)).id for i in range(10)} == {e.id for e in entries}
    assert spent(images()).most == pytest.approx(math.sqrt(10))


def test_ten_processes_at_once_keep_to_the_budget(tmp_path: Path) -> None:
    found = codes(in_children(lambda i: void(release(tmp_path / str(i), images(), budget=2.0)), 10))
    assert sorted(found) == [0] * 4 + [1] * 6 and spent(images()).most == pytest.approx(2)
    assert len(list(tmp_path.glob("[0-9]"))) == 4


def void(_: object) -> None:
    return None


def test_kills_at_random_points_never_leave_a_release_without_an_entry(tmp_path: Path) -> None:
    """The data are large enough for a tenth of a second; the points spread over all of it."""
    data = images(4000, (1, 16, 16))
    spent(data)  # the ledger is there
    start = time.perf_counter()
    assert codes(in_children(lambda _: void(release(tmp_path / "timed", data)), 1)) == [0]
    whole = time.perf_counter() - start
    died, number, stream = 0, 0, SeededStream(time.time_ns() % 2**32)
    while died < 20 and number < 200:
        out, point, number = tmp_path / f"r{number}", float(stream.uniform(1)), number + 1
        (child,) = in_children(lambda _, out=out: void(release(out, data)), 1)  # type: ignore[misc]
        time.sleep(whole * point)
        os.kill(child, signal.SIGKILL)
        if codes([child]) == [-signal.SIGKILL]:
            died += 1
        else:
            whole *= 0.9  # it was done before: the next may not be given so long
        known = {e.id: e for e in Ledger().entries()}  # it can always be read
        if out.exists():
            assert verify_release(out).id in known, point
        for left in tmp_path.glob(f".{out.name}.*"):
            with pytest.raises(errors.ReleaseError):
                verify_release(left)
            assert any(identity.startswith(left.name.split(".")[2]) for identity in known), point
    assert died == 20
    assert spent(data).most == pytest.approx(math.sqrt(len(Ledger().entries())))


def test_the_command_line_says_what_was_spent(run: Run, tmp_path: Path) -> None:
    """As a user would: two encodings, a third that is refused, and what the ledger shows."""
    np.savez(tmp_path / "d.npz", x=np.random.default_rng(0).random((20, 1, 4, 4), np.float32), y=np.arange(20) % 2)
    data, out = str(tmp_path / "d.npz"), str(tmp_path / "r")
    first = run("encode", data, "--mu", "1", "--out", out + "1", "--recipient", "the coordinator")
    assert shows(first.out, "ledger-spent", releases=1, whose=note("these-records"), unit="record", mu=1.0)
    assert shows(run("encode", data, "--mu", "1", "--out", out + "2").out, "ledger-spent", mu=math.sqrt(2))
    third = run("encode", data, "--mu", "1", "--out", out + "3", "--budget", "1.5")
    assert third.code == errors.BudgetError("").exit_code and "0.5 is left" in third.err
    shown = run("ledger", "--budget", "2").out
    spent = run("ledger", "--json").json["spent"]
    assert (spent["total_mu"], spent["left"]) == pytest.approx((math.sqrt(2), math.sqrt(2)))
    total = Ledger().total().mu
    assert total == pytest.approx(math.sqrt(3)) and shows(shown, "total-spent-with-refused", mu=total, releases=2)
    fourth = run("encode", data, "--mu", "0.1", "--out", out + "4", "--label-budget", "1")
    assert fourth.code == 3 and "no label budget can hold: it is 1" in " ".join(fourth.err.split())
    assert "label budget is ε = 3" in " ".join(run("ledger", "--label-budget", "3").out.split())
    left = note("budget-left-for-several", budget=2.0, left=spent["left"], more=2)
    assert "coordinator" in shown
    assert shows(shown, "ledger-spent", mu=spent["total_mu"], left=left, labels=note("labels-shown-before"))
    assert shows(run("calibrate", data, "--mu", "1").out, "with-one-more", mu=total)


def test_what_names_no_units_has_no_bound_for_them(tmp_path: Path) -> None:
    """A person with many records in it has spent more than one record has, and nobody knows how many."""
    book, data = Ledger(), images(20)
    release(tmp_path / "r", data)
    assert book.total().mu == 1.0 and not book.total().unbounded
    assert book.total(units=True).unbounded == (book.entries()[0].id,)
    of_units = Owners(prints(1, 2), prints(8, 9))
    with pytest.raises(errors.BudgetError, match="promises nothing"):
        book.enter(replace(stated(1, 0.5), rows=2), of_units, 9.0, against="everything")
    book.enter(replace(stated(1, 0.5), rows=2), Owners(prints(1, 2)), 9.0, against="everything")


@pytest.mark.parametrize(
    ("spent", "budget", "code", "more"),
    [
        ([2.2360679775], 4.0, "budget-left-for-several", 11),
        ([1.0], 2.0, "budget-left-for-several", 3),
        ([], 1.0, None, None),
        ([1.5], 1.6, "budget-left", None),
        ([1.0], 1.0, "budget-used-up", None),
        ([1.0], 0.9, "budget-exceeded", None),
    ],
)
def test_what_is_left_is_said_in_releases(
    spent: list[float], budget: float, code: str | None, more: int | None
) -> None:
    """And so many more are within the budget, and one more than that is not."""
    figures = Spent(np.array(spent), (), 0.0, len(spent), False)
    standing = Standing(figures, None, NO_COST, budget, None)
    told = accounting.spent_note(standing)
    if code is None:
        assert told.code == "ledger-no-release"
        return
    assert told.figures["left"].code == code and told.figures["left"].figures.get("more") == more
    if more is not None:
        assert within(math.sqrt(spent[0] ** 2 + more), budget)
        assert not within(math.sqrt(spent[0] ** 2 + more + 1), budget)
