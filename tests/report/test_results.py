from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from mixveil.core.errors import DataFormatError, ManifestError
from mixveil.report import results
from mixveil.report.results import Results, markdown, provenance, read_results, table, write_results

ROWS: tuple[dict[str, Any], ...] = (
    {"settings": {"mu": 1.0, "seed": 0}, "figures": {"accuracy": 0.8, "k": 9}},
    {"settings": {"mu": 1.0, "seed": 1}, "figures": {"accuracy": 0.9, "k": 9}},
    {"settings": {"mu": 2.0, "seed": 0, "head": "x"}, "figures": {"accuracy": None}},
)


def test_runs_that_differ_by_seed_only_are_averaged() -> None:
    lines = table(Results("t", provenance({}), ROWS))
    assert lines[0] == ["mu", "head", "accuracy", "k", "runs"]
    assert lines[1] == ["1.0", "–", "0.85 ± 0.071", "9 ± 0", "2"]
    assert lines[2] == ["2.0", "x", "–", "–", "1"]
    assert "| 1.0 | – | 0.85 ± 0.071 |" in markdown(Results("t", provenance({}), ROWS))


def test_they_are_written_and_read(tmp_path: Path) -> None:
    found = Results("A title", provenance({"alpha": 0.7}), ROWS)
    write_results(tmp_path / "r.json", found)
    again = read_results(tmp_path / "r.json")
    assert again.title == "A title" and len(again.rows) == 3 and again.provenance["settings"] == {"alpha": 0.7}
    with pytest.raises(ManifestError):
        write_results(tmp_path / "s.json", Results("t", provenance({}), ({"settings": {"a": [1]}, "figures": {}},)))  # type: ignore[dict-item]
    assert not (tmp_path / "s.json").exists()
    whole = json.loads((tmp_path / "r.json").read_text())
    changes: list[Any] = [{**whole, "version": 2}, {**whole, "more": 1}, {**whole, "rows": [{"settings": {}}]}, []]
    for changed in changes:
        (tmp_path / "bad.json").write_text(json.dumps(changed))
        with pytest.raises(DataFormatError):
            read_results(tmp_path / "bad.json")


@pytest.mark.parametrize(
    "figure",
    ["9" * 4000, "9" * 4400, "1e400", "1e308", "-1e101", '"a\\nb"', '"\\u001b[2J"', "[]", "[" * 100_000, "NaN"],
    ids=range(10),
)
def test_figures_that_no_table_can_hold(tmp_path: Path, figure: str) -> None:
    write_results(tmp_path / "r.json", Results("t", provenance({"a": 1}), ROWS))
    text = (tmp_path / "r.json").read_text()
    for old in ('"accuracy": 0.8', '"a": 1'):
        assert old in text
        (tmp_path / "bad.json").write_text(text.replace(old, f"{old.partition(':')[0]}: {figure}"))
        with pytest.raises(DataFormatError) as caught:
            read_results(tmp_path / "bad.json")
        assert str(caught.value).isprintable() and len(str(caught.value)) < 2000


def test_a_table_with_more_cells_than_memory(tmp_path: Path) -> None:
    rows = tuple({"settings": {f"s{i}": 1}, "figures": {}} for i in range(1100))
    with pytest.raises(ManifestError, match="more than a table can hold"):
        write_results(tmp_path / "r.json", Results("t", provenance({}), rows))


def test_more_than_is_read_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "r.json").open("wb") as file:
        file.truncate((16 << 20) + 1)
    with pytest.raises(DataFormatError, match="at most 16,777,216"):
        read_results(tmp_path / "r.json")
    monkeypatch.setattr(results, "_LIMIT", 100)
    with pytest.raises(ManifestError, match="not written"):
        write_results(tmp_path / "s.json", Results("t", provenance({}), ROWS))
    assert not (tmp_path / "s.json").exists()


ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("path", sorted(ROOT.glob("reproduce/*/*.json")), ids=lambda p: p.name)
def test_every_published_result_is_of_the_format(path: Path) -> None:
    assert len(table(read_results(path))) > 1
    schema = json.loads((files("mixveil.report") / "results.schema.json").read_text())
    jsonschema.validate(json.loads(path.read_text()), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**json.loads(path.read_text()), "version": 2}, schema)
