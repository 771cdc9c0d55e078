"""The file of a result: of the format, and with where it was measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from benchmarks.page import results
from benchmarks.record import HERE, RESULTS, Found, Plot, recorded
from benchmarks.run import BENCHMARKS

from benchmarks import record

SCHEMA = json.loads((HERE / "result.schema.json").read_text())
FOUND = Found(
    [{"work": "a", "values": 10, "ns": 1.5, "note": None}],
    {"warm_up": 1, "repetitions": 3, "statistic": "median", "scale": 4.0},
    [Plot("t", "values", "ns", "work")],
    packages=("no-such-package",),
)


def test_what_is_written_is_of_the_format(tmp_path: Path) -> None:
    path = recorded("some-name", lambda: FOUND, tmp_path / "new")
    whole = json.loads(path.read_text())
    jsonschema.validate(whole, SCHEMA)
    assert path.name == "some-name.json"
    assert whole["rows"] == [dict(FOUND.rows[0])]
    assert whole["plots"] == [{"title": "t", "x": "values", "y": "ns", "curve": "work", "only": {}}]
    assert whole["versions"]["no-such-package"] == "absent"
    assert whole["machine"]["cores"] >= 1


@pytest.mark.parametrize(
    "change",
    [
        {"rows": []},
        {"rows": [{"nested": {"x": 1}}]},
        {"settings": {"warm_up": 1, "repetitions": 0, "statistic": "median"}},
        {"settings": {"warm_up": 1, "repetitions": 3, "statistic": "fastest"}},
        {"load": {"before": -1, "after": 0}},
        {"name": "Some Name"},
        {"more": 1},
    ],
)
def test_what_is_not_of_the_format(change: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "commit", lambda: "c")
    whole = record.whole("name", FOUND, 0.0)
    jsonschema.validate(whole, SCHEMA)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**whole, **change}, SCHEMA)


def test_every_result_is_of_the_format_and_has_the_name_of_its_file() -> None:
    found = results(RESULTS)
    assert [result["name"] for result in found] == [path.stem for path in sorted(RESULTS.glob("*.json"))]
    for result in found:
        columns = {name for row in result["rows"] for name in row}
        for plot in result["plots"]:
            assert {plot["x"], plot["y"], plot["curve"], *plot.get("only", {})} <= columns


def test_every_benchmark_is_a_function_there() -> None:
    for place in BENCHMARKS.values():
        module, function = place.split(":")
        assert f"def {function}(" in (HERE / f"{module}.py").read_text()
