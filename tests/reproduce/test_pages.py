"""docs/results: every row of the papers' figures is there, and nothing but what the data say."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from reproduce.entries import ENTRIES
from reproduce.entry import PAPERS
from reproduce.rendering import comparison, pages, stored
from reproduce.rendering.comparison import Comparison, MissingReasonError
from reproduce.rendering.figures import NONE, Figure, Ours, Value
from reproduce.rendering.rendered import counted
from reproduce.rendering.stored import ROOT, Row

from reproduce import tables

FILES = pages.files()
COMPARISONS = {f"{item.paper} {item.table}": item for item in pages.COMPARISONS}


def claimed(paper: str, file: str) -> list[dict[str, str]]:
    with (ROOT / paper / "claims" / file).open(encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def test_every_file_of_claims_has_a_table_and_a_command() -> None:
    there = {(paper, path.name) for paper in PAPERS for path in (ROOT / paper / "claims").glob("*.csv")}
    assert there == {(item.paper, item.claims) for item in pages.COMPARISONS}
    assert there == {(entry.paper, entry.claims) for entry in ENTRIES if entry.claims is not None}


@pytest.mark.parametrize("name", COMPARISONS)
def test_every_row_of_the_claims_is_rendered_or_has_a_reason(name: str) -> None:
    item = COMPARISONS[name]
    compared, claims = item.compared(), claimed(item.paper, item.claims)
    assert {line.claim for line in compared.lines} == set(range(len(claims)))
    page = FILES[f"{item.paper}.md"]
    for line in compared.lines:
        keys = tuple(claims[line.claim][key] for key in item.keys)
        assert line.cells[: len(keys)] == keys
        assert f"| {' | '.join(cell or ' ' for cell in line.cells)} |\n" in page
        assert len(line.cells) == len(compared.head)
        noted = [note for note in line.cells[-1].split(", ") if note]
        assert all(compared.notes[note] for note in noted)
        assert noted or not (line.missing or not line.measured)
    count = counted(compared)
    assert count.rows == len(claims) == count.measured + count.partly + count.reasons


def test_the_paper_s_figures_stand_as_published() -> None:
    (line,) = [line for line in COMPARISONS["singular 2"].compared().lines if line.claim == 7]
    claim = claimed("singular", "table2.csv")[7]
    assert line.cells[:3] == ("CIFAR-10", "1", f"{claim['snr_db']} ± {claim['snr_db_std']}")
    (ours,) = stored.rows("singular", "table2.json", data="cifar10", tau=1.0)
    assert line.cells[3] == f"{ours['SNR dB']:.2f} ± {ours['SNR dB std']:.2f}"
    assert line.cells[4] == f"{ours['SNR dB'] - float(claim['snr_db']):+.2f}"


def test_the_pages_are_what_the_data_say() -> None:
    assert tables.stale(tables.OUT) == []


def test_a_page_that_was_changed_by_hand_is_told(tmp_path: Path) -> None:
    tables.write(tmp_path)
    assert tables.stale(tmp_path) == []
    page = tmp_path / "singular.md"
    page.write_text(page.read_text(encoding="utf-8").replace("8.15", "8.16"), encoding="utf-8")
    (tmp_path / "old.md").write_text("no longer made")
    assert tables.stale(tmp_path) == ["old.md", "singular.md"]
    tables.write(tmp_path)
    assert tables.stale(tmp_path) == []


def made(found: list[Row], claims: str = "table5.csv") -> Comparison:
    """A comparison with MixCon's Table 5 whose measurements are these."""
    ours = Ours("", lambda claim, variant: found, ("accuracy",))
    return Comparison(
        "mixcon", "5", claims, {"method": "method"}, (Figure("accuracy", ("accuracy_percent",), (ours,)),)
    )


def test_a_row_without_measurement_and_reason_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MissingReasonError, match="no measurement, and 0 reasons"):
        made([]).compared()
    reason = {"paper": "mixcon", "table": "5", "where": {}, "why": "not here"}
    monkeypatch.setattr(comparison, "texts", lambda: {"set-up": {}, "reasons": [reason]})
    compared = made([]).compared()
    assert compared.notes == {"a": "not here"} and counted(compared).reasons == 2
    with pytest.raises(MissingReasonError, match="take the reason out"):
        made([{"accuracy": 92.0}]).compared()


def test_runs_with_several_seeds_are_averaged() -> None:
    ours = Ours("", lambda claim, variant: [], ("accuracy",), 100.0)
    assert ours.value([{"accuracy": 0.5}, {"accuracy": 0.7}]) == pytest.approx((60.0, 14.142, None), abs=1e-3)
    assert ours.value([{"accuracy": None}]) is None
    assert Value(1.0, 0.25, 2.0).shown(1) == "1.0 ± 0.2 (2.0)"
    assert Value(1.0, None, 2.0).minus(Value(1.04, None, 1.5), 1) == "0.0 (+0.5)"
    assert Figure("x", ("a", "b"), ()).published({"a": "", "b": ""}) == NONE


def test_every_reason_and_every_set_up_is_used() -> None:
    """What no row has any more must go."""
    said = "".join(FILES.values())
    for reason in stored.texts()["reasons"]:
        assert reason["why"].partition("{")[0] in said, reason
    for tables_ in stored.texts()["set-up"].values():
        for told in (tables_, *(value for value in tables_.values() if isinstance(value, dict))):
            assert all(text in said for text in told.get("everywhere", ()))
            assert all(item["say"].partition("{")[0] in said for item in told.get("rows", ()))
