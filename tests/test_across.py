"""The table across the project: what is published is what the data say, and every cell is measured or says why not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from reproduce.across import tables
from reproduce.across.__main__ import OUT, run
from reproduce.across.attacks import _alike, _likelier, averaged, reconstruction
from reproduce.across.world import Scale
from scipy.stats import norm

from mixveil.core.wording.sentences import WORDS
from mixveil.report.results import Results, read_results

TINY = Scale(
    data="digits",
    rows=450,
    public=300,
    parties=3,
    head="linear",
    rounds=2,
    epochs=2,
    learning_rate=5e-3,
    updates=2,
    mask_steps=2,
)
QUICK = ("centralised", "fedavg", "fed-augmix", "mixup", "instahide", "one-shot", "sums")
"""Others train networks, or take the accountant's seconds."""


def test_the_published_tables_are_those_of_the_data() -> None:
    found = read_results(OUT)
    assert tables.between(tables.ROOT / "README.md", "across") == tables.short(found)
    docs = tables.ROOT / "docs" / "across.md"
    for name, made in (("across", tables.whole), ("remarks", tables.remarks), ("promises", tables.promises)):
        assert tables.between(docs, name) == made(found) != ""


def test_the_published_data_have_every_row_and_cell() -> None:
    rows = tables.rows_of(read_results(OUT))
    assert (*rows,) == tables.METHODS
    for row in rows.values():
        check_cells(row)
        assert row["data"] == "mnist" and row["head"] == "lenet5"


def check_cells(row: dict[str, Any] | Any) -> None:
    """A cell has a figure or why there is none, never both; promises are codes."""
    assert 0 <= row["accuracy"] <= 1
    assert row["promise"] in WORDS and row["promise"] in tables.PROMISED
    assert ("bytes up" in row) != ("bytes an image" in row)
    for cell in ("ssim", "linkage", "membership"):
        assert (cell in row) != (f"{cell} why" in row), (row["method"], cell)
        assert -1 <= row[cell] <= 1 if cell in row else row[f"{cell} why"] in tables.WHY
    if "ssim" in row:
        assert row["ssim attack"] and row["ssim nothing"] is not None


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("across") / "across.json"
    run(TINY, None, out, QUICK)
    return out


def test_a_small_run_fills_every_cell(tiny: Path) -> None:
    rows = tables.rows_of(read_results(tiny))
    assert {*rows} == {*QUICK}
    for row in rows.values():
        check_cells(row)
    assert rows["fedavg"]["ssim"] > 0.9 and rows["mixup"]["ssim"] > 0.9  # nothing defends them
    assert rows["fedavg"]["attacked rows"] == 4 and rows["mixup"]["attacked rows"] == 150
    assert rows["sums"]["ssim"] < rows["mixup"]["ssim"] and rows["one-shot"]["linkage"] < rows["mixup"]["linkage"]
    assert rows["instahide"]["linkage why"] == "not-measured"
    text = tables.short(read_results(tiny))
    assert len(text.splitlines()) == len(QUICK) + 2
    assert {line.count("|") for line in text.splitlines()} == {8}


def test_a_run_goes_on_where_it_was(tiny: Path) -> None:
    before = tiny.read_bytes()
    run(TINY, None, tiny, QUICK)
    assert tiny.read_bytes() == before


def test_rows_of_several_scales_are_no_table() -> None:
    rows: list[Any] = [{"settings": {"method": m, "rounds": n}, "figures": {}} for n, m in enumerate(QUICK)]
    with pytest.raises(SystemExit, match="several scales"):
        tables.rows_of(Results("t", {}, tuple(rows)))


def test_tables_are_put_between_their_marks(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    begin, end = tables.marks("across")
    path.write_text(f"before\n{begin}\nold\n{end}\nafter\n")
    tables.put(path, {"across": "| new |\n"})
    assert path.read_text() == f"before\n{begin}\n| new |\n{end}\nafter\n"
    assert tables.between(path, "across") == "| new |\n"
    with pytest.raises(SystemExit, match="no place for other"):
        tables.put(path, {"other": ""})


class Told:
    """What of an audit is asked."""

    def __init__(self, figures: dict[str, float], *, broken: bool = False) -> None:
        self.figures = [_Figure(name, value) for name, value in figures.items()]
        self.attacks = [_Run("broken" if broken else "ran")]


class _Figure:
    kind, metric, known, know_nothing = "reconstruction", "ssim", None, 0.1

    def __init__(self, attack: str, mean: float) -> None:
        self.attack, self.mean = attack, mean


class _Run:
    attack, kind = "three", "reconstruction"

    def __init__(self, status: str) -> None:
        self.status = status


def test_an_attack_that_fails_its_test_is_no_figure() -> None:
    broken: Any = Told({}, broken=True)
    works: Any = Told({"one": 0.4, "two": 0.9})
    assert reconstruction(broken, "ssim") == {"ssim why": "broken"}
    assert reconstruction(works, "ssim")["ssim attack"] == "two"
    fewer: Any = Told({"one": 0.6})
    assert averaged([works, fewer])["ssim"] == pytest.approx(0.5)  # the other did not pass both times
    assert averaged([works, broken]) == {"ssim why": "broken", "broken": "three"}


def test_the_ratio_of_sums_is_that_of_their_densities() -> None:
    total, mean, x = torch.tensor([[3.0, -1.0]]), torch.tensor([[0.5, 0.2]]), torch.tensor([[1.5, -0.4]])
    count, sigma = torch.tensor([[4.0]]), 1.5
    inside = norm.logpdf(total, 3 * mean + x, (3 + sigma**2) ** 0.5).sum()
    outside = norm.logpdf(total, 4 * mean, (4 + sigma**2) ** 0.5).sum()
    assert float(_likelier(total, count, mean, x, sigma)) == pytest.approx(float(inside - outside), rel=1e-5)


def test_members_and_others_have_the_same_labels() -> None:
    one, other = torch.tensor([0, 0, 1, 2, 2, 2]), torch.tensor([2, 1, 1, 0, 3])
    left, right = _alike(one, other, 4)
    assert one[left].tolist() == other[right].tolist() == [0, 1, 2]
