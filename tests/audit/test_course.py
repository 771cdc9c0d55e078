"""What an audit says before it begins and on the way: its work, its steps, what it lacks, what it finds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from mixveil.attacks.catalogue import attacks
from mixveil.attacks.records.lmmse import Lmmse
from mixveil.audit import work
from mixveil.audit.auditing import PROFILES, audit
from mixveil.audit.course import Course, Step
from mixveil.audit.estimate import will_not_run
from mixveil.audit.work import Counted, check_memory, free_memory
from mixveil.core.errors import TooLittleMemoryError
from mixveil.core.randomness import SeededStream
from mixveil.core.types import Sizes, Tau, View
from mixveil.core.watching import Moment
from mixveil.core.wording.notes import Note
from tests.audited import PRIVATE, PUBLIC, made

SIZES = Sizes(rows=600, values=12_288, releases=1, directions=131, candidates=1200)
RELEASE, TRACE = made(Tau(1.0, "energy"))
VIEW = View((RELEASE,), (TRACE,), PUBLIC)


def counted(sizes: Sizes = SIZES, looked: float = 0.0) -> Counted:
    return Counted(sizes, own=131, whole=sizes.rows, classes=10, public=10_000, pairs=(20, 60), looked=looked)


def test_every_step_is_done_when_it_ends_whatever_it_needed() -> None:
    seen: list[Moment] = []
    course = Course([Step("a", 3.0), Step("b", 1.0)], seen.append)
    with course.step("a"):
        course.did(1.0, "a")
        course.did(100.0, "a")  # an estimate that was too small
    with course.step("b"):
        pass
    assert [moment.done for moment in seen] == [0.0, 0.25, 0.75, 0.75, 0.75, 1.0]
    assert [moment.doing for moment in seen] == ["a", "a", "a", "a", "b", "b"]
    assert Course([]).total == 0 and course.total == 4.0


def test_all_steps_add_up_to_the_whole_and_name_every_attack() -> None:
    asked = [kind() for kind in attacks().values() if kind.payload == "records"]
    skipped = {attack.name for attack in asked if attack.trains}
    steps = counted().steps(asked, skipped)
    assert [step.name for step in steps] == ["records", "public", *(a.name for a in asked), "noise"]
    assert all(step.work > 0 for step in steps if step.name not in skipped)
    assert all(step.work == 0 for step in steps if step.name in skipped)
    stages = counted().stages(Lmmse())
    assert sum(stages) == next(step.work for step in steps if step.name == "lmmse")
    assert stages.attack == Lmmse().work(SIZES) and stages.alone == Lmmse().work(SIZES._replace(directions=131))


@pytest.mark.parametrize("field", ["rows", "values", "releases"])
def test_work_grows_with_what_is_attacked(field: str) -> None:
    more = SIZES._replace(**{field: 3 * getattr(SIZES, field)})
    for kind in attacks().values():
        if kind.payload == "records":
            assert sum(counted(more).stages(kind())) >= sum(counted().stages(kind())) > 0, kind.name
    assert counted(more).memory > counted().memory


def test_an_audit_tells_its_time_first_then_findings_and_ends_at_the_whole() -> None:
    order: list[Note | Moment] = []
    found = audit(
        VIEW,
        PRIVATE,
        names=["prior", "lmmse", "braverman"],
        stream=SeededStream(0),
        watch=order.append,
        tell=order.append,
    )
    assert isinstance(order[0], Note) and order[0].code == "audit-takes"
    assert order[0].figures["rows"] == 500 and order[0].figures["attacks"] == 2  # braverman needs covers
    shares = [item.done for item in order if isinstance(item, Moment) and item.done is not None]
    assert shares == sorted(shares) and shares[0] == 0 and shares[-1] == pytest.approx(1.0)
    doing = [item.doing for item in order if isinstance(item, Moment)]
    assert list(dict.fromkeys(doing)) == ["records", "public", "braverman", "lmmse", "prior", "noise"]
    told = [item for item in order if isinstance(item, Note) and item.code == "attack-found"]
    mine = next(f for f in found.figures if f.attack == "lmmse" and f.metric == "snr-db")
    assert [item.figures["mean"] for item in told if item.figures["attack"] == "lmmse"] == [mine.mean]
    next_one = next(i for i, item in enumerate(order) if isinstance(item, Moment) and item.doing == "prior")
    assert order.index(told[0]) < next_one


def test_who_gives_no_public_data_hears_of_it_before_anything_else() -> None:
    told: list[str] = []
    audit(
        View((RELEASE,), (TRACE,)),
        PRIVATE,
        names=["lmmse"],
        stream=SeededStream(0),
        watch=lambda moment: told.append(moment.doing),
        tell=lambda note: told.append(note.code),
    )
    assert told[:3] == ["audit-without-public", "audit-takes", "records"]


def test_what_is_counted_runs_and_what_is_not_counted_does_not() -> None:
    asked = [kind() for kind in attacks().values() if kind.payload == "records"]
    skipped = will_not_run(VIEW, asked, False, None)
    assert {"membership", "braverman", "unet"} <= skipped and not {"lmmse", "lowpass", "known"} & skipped
    assert "membership" not in will_not_run(VIEW, asked, False, torch.zeros(200, *PRIVATE.shape))
    assert "lowpass" in will_not_run(View((RELEASE,), (TRACE,)), asked, False, None)
    names = ["lmmse", "braverman", "kolmogorov-smirnov"]
    found = audit(VIEW, PRIVATE, names=names, stream=SeededStream(0))
    assert {run.attack for run in found.attacks if run.status != "ran"} == skipped & set(names)


def test_what_does_not_fit_the_memory_is_refused_and_says_how_much_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    free = free_memory()
    assert free is None or free > 1e6
    monkeypatch.setattr(work, "free_memory", lambda: 2e9)
    check_memory(1.9e9, "it")
    with pytest.raises(TooLittleMemoryError, match=r"it needs about 2\.1 GB of memory, and 2\.0 GB are free"):
        check_memory(2.1e9, "it")
    monkeypatch.setattr(work, "free_memory", lambda: 1e8)
    with pytest.raises(TooLittleMemoryError, match="an audit of 500 of 500 records of 64 values needs"):
        audit(VIEW, PRIVATE, names=["lmmse"], stream=SeededStream(0))
    monkeypatch.setattr(work, "free_memory", lambda: None)
    check_memory(1e15, "it")


def test_memory_that_a_group_of_processes_may_use_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit, used = tmp_path / "limit", tmp_path / "used"
    monkeypatch.setattr(work, "_LIMITS", ((limit, used),))
    everything = free_memory()
    limit.write_text("max\n")
    used.write_text("500\n")
    assert free_memory() == pytest.approx(everything, rel=0.2)
    limit.write_text("1500\n")
    assert free_memory() == 1000.0


def test_600_images_of_224_pixels_are_attacked_whole() -> None:
    values = 3 * 224 * 224
    assert PROFILES["quick"].values // values >= 600
    sizes = Sizes(600, values, 1, 3 + 224 + 224, 1200)
    assert counted(sizes).memory > 600 * values * 8 and 1.5e9 < counted(SIZES).memory < 2.5e9


def test_rows_that_are_held_count_with_their_labels() -> None:
    few = replace(counted(SIZES), whole=2000)
    more = replace(few, whole=20_000)
    assert more.memory - few.memory == 4 * 18_000 * (SIZES.values + 10)
    assert replace(few, whole=200_000).memory < few.memory  # too many: they are read again
    assert replace(more, classes=10_000).memory < replace(few, classes=10_000).memory  # and so are many labels
