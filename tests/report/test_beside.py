"""Several audits on one page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import mixveil
from mixveil.core.errors import ArgumentError, DataFormatError, OutputExistsError
from mixveil.report.beside_page import write_beside
from tests.command import Run
from tests.made import images

DATA, OTHERS = images(40, (1, 8, 8)), images(60, (1, 8, 8), seed=2)


@pytest.fixture
def audits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    monkeypatch.chdir(tmp_path)
    made = {"clear": {"encoder": "mixup"}, "certified": {"mu": 1.0}}
    for name, settings in made.items():
        mixveil.encode(DATA, f"r-{name}", party=name, **settings)  # type: ignore[arg-type]
        found = mixveil.audit([f"r-{name}"], DATA, public=OTHERS, attacks=["prior", "lmmse", "demask"])
        mixveil.write_report(name, found)
    return [Path(name) for name in made]


def test_each_attack_stands_beside_itself(audits: list[Path], run: Run) -> None:
    page = write_beside(audits, "page.html")
    text = page.read_text()
    assert oct(page.stat().st_mode)[-3:] == "600"
    for folder in audits:
        whole = json.loads((folder / "audit.json").read_text())
        for figure in whole["figures"]:
            assert f"<strong>{figure['mean']:.4g}</strong>" in text
        assert f'<th scope="col">{folder.name}</th>' in text
    assert text.count("data:image/png") == 2 * 3 * 8  # original, released and one attack's guesses, of eight records
    assert "demask" in text and "http" not in text.replace("http-equiv", "")
    told = run("report", *audits, "--out", "again.html", "--json")
    assert told.code == 0 and Path(told.json["report"]).read_text() == text


def test_what_is_no_audit_is_refused(audits: list[Path], run: Run) -> None:
    with pytest.raises(ArgumentError, match="two at least"):
        write_beside(audits[:1], "page.html")
    assert run("report", *audits).code == 2 and run("report", audits[0], "--out", "page.html").code == 2
    whole = json.loads((audits[1] / "audit.json").read_text())
    (audits[1] / "audit.json").write_text(json.dumps({**whole, "figures": [{"attack": 3}]}))
    with pytest.raises(DataFormatError, match="not whole"):
        write_beside(audits, "page.html")
    assert not Path("page.html").exists()
    Path("page.html").write_text("mine")
    with pytest.raises(OutputExistsError):
        write_beside(audits, "page.html")
