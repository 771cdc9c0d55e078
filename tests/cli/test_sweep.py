"""`mixveil audit --sweep`, as its users call it."""

from __future__ import annotations

from pathlib import Path

import pytest

from mixveil.releases.ledger import Ledger
from tests.command import Run
from tests.made import NET
from tests.notes import shows


def files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_sweep_leaves_nothing_but_its_report(run: Run, small: Path, tmp_path: Path) -> None:
    run("encode", small, "--tau", 0.3, "--out", "r")
    before, entries = files_in(tmp_path), Ledger().entries()
    words = ["audit", "r", "--truth", small, "--attacks", "prior,lmmse,radius-labels", "--seed", 2]
    found = run(*words, "--sweep", "tau=0.01,1,0.1", "--out", "a", "--json")
    assert found.code == 0 and shows(found.err, "sweep-cost", audits=3, rows=30)
    assert found.json["sweep"]["name"] == "tau" and found.json["sweep"]["seed"] == 2
    assert [point["value"] for point in found.json["sweep"]["points"]] == [1, 0.1, 0.01]
    assert "snr-db" in {row["metric"] for row in found.json["sweep"]["points"][0]["figures"]}
    made = [f"a/{name}" for name in ("audit.json", "pictures.safetensors", "report.html")]
    assert files_in(tmp_path) == sorted(before + made) and Ledger().entries() == entries
    shown = run(*words, "--sweep", "releases=4,1", "--out", "b")
    assert shows(shown.err, "sweep-cost-with-encodings", audits=2, encodings=5, rows=30)
    assert "Sweep over releases" in shown.out
    assert "No encoding of the sweep was written, left or entered in the ledger." in shown.out
    assert files_in(tmp_path) == sorted(before + made + [name.replace("a/", "b/") for name in made])
    page = tmp_path / "b" / "report.html"
    text = page.read_text()
    page.unlink()
    assert run("report", "b").code == 0 and page.read_text() == text


@pytest.mark.parametrize(
    "text, words", [("tau", "must be like"), ("sigma=1,2", "'sigma'"), ("mu=1,1", "given twice"), ("mu=a,1", "'a'")]
)
def test_a_bad_sweep_is_refused_before_anything_is_opened(run: Run, text: str, words: str) -> None:
    result = run("audit", "nowhere", "--truth", "nothing", "--sweep", text, "--out", "a", "--json")
    assert result.code and result.json["error"]["type"] == "ArgumentError" and words in result.json["error"]["message"]


def test_templates_that_cannot_be_varied_are_refused(run: Run, small: Path, tmp_path: Path) -> None:
    run("encode", small, "--encoder", "mixup", "--out", "m")
    run("encode", small, "--mu", 1, "--out", "r")
    for words, reason in ((["m"], "adds no noise"), (["m", "r"], "one release, got 2")):
        result = run("audit", *words, "--truth", small, "--sweep", "mu=1,2", "--out", "a", "--json")
        assert result.json["error"]["type"] == "ArgumentError" and reason in result.json["error"]["message"]
    assert not (tmp_path / "a").exists()


def test_a_release_of_features_is_varied_as_any_other(run: Run, data: Path) -> None:
    run("encode", "private.npz", *NET, "--mu", 5, "--clip", 4, "--out", "r")
    words = ("audit", "r", "--truth", "private.npz", "--attacks", "prior,lmmse-row", "--sweep", "mu=1,5")
    told = run(*words, "--out", "a", "--json")
    strong, weak = told.json["sweep"]["points"]
    assert weak["sigma"] == pytest.approx(5 * strong["sigma"])
    page = (data / "a" / "report.html").read_text()
    assert shows(page, "chart-mse") and "<img" not in page
