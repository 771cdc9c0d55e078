"""`mixveil simulate`, as it is typed."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from mixveil.cli import _common
from mixveil.core.wording.notes import note
from mixveil.core.wording.notes import read as read_note
from mixveil.federated.methods.averaging import FedAvg
from mixveil.federated.methods.two_step import Sums
from mixveil.report.simulation_page import charts, dealt, decades, thinned
from mixveil.theory import gdp
from tests.browser import browse
from tests.command import Run, left, refused
from tests.notes import shows

FAST = ["--rounds", "2", "--epochs", "2", "--parties", "4", "--beta", "0.5"]


def simulated(run: Run, *words: object) -> dict[str, Any]:
    result = run("simulate", *words, "--json")
    assert result.code == 0, result.err
    found: dict[str, Any] = result.json
    return found


def test_rows_have_what_is_asked_for(run: Run) -> None:
    found = simulated(run, "digits", *FAST, "--methods", "fedavg,two-step,sums", "--mu", "1,2")
    assert [(row["method"], row["mu"]) for row in found["rows"]] == [
        ("fedavg", None),
        ("two-step", 1.0),
        ("two-step", 2.0),
        ("sums", 1.0),
        ("sums", 2.0),
    ]
    for row in found["rows"]:
        assert {"method", "accuracy", "bytes_up", "bytes_down", "messages", "seconds", "guarantee"} <= row.keys()
    assert found["settings"]["parties"] == 4 and sum(map(sum, found["counts"])) == 900
    assert {item["other"] for item in found["compared"]} == {"fedavg"}


def test_the_table_says_everything_in_words(run: Run) -> None:
    result = run("simulate", "digits", *FAST, "--methods", "fedavg,two-step,dp-sgd", "--mu", "2")
    assert result.code == 0, result.err
    said = " ".join(result.out.split())
    assert "digits, 4 parties, β = 0.5, head linear" in said
    assert f"fedavg: {note('weights-unbounded')}" in said
    assert shows(said, "mu-labels-by-row", mu=2.0, epsilon=gdp.epsilon(2.0, 1e-5))
    assert re.search(r"two-step at μ = 2 has [\d.]+%: with the same bytes fedavg", said)
    assert shows(said, "one-seed", rows=597) and shows(said, "seeded-experiment") and shows(said, "rows-played-public")


def test_the_verdict_comes_first(run: Run) -> None:
    result = run("simulate", "digits", *FAST, "--methods", "local,fedavg,sums", "--mu", "1,2")
    lines = result.out.splitlines()
    assert shows(lines[0], "best-at-mu", mu=1.0, method="sums") and shows(lines[1], "best-at-mu", mu=2.0, method="sums")
    assert shows(lines[2], "best-without-guarantee", method="fedavg")
    told = simulated(run, "digits", *FAST, "--methods", "local,fedavg,sums", "--mu", "1,2")["verdict"]
    assert [note["code"] for note in told[:3]] == ["best-at-mu", "best-at-mu", "best-without-guarantee"]
    assert told[3]["code"] == "worse-than-local"  # two rounds are too few
    assert told[3]["figures"]["which"] == {"code": "method-named", "figures": {"method": "fedavg"}}
    assert f"warning: {read_note(told[3])}" in lines
    assert result.err.splitlines() and "warning" not in result.err


def test_a_pipe_is_told_of_every_method_that_is_done(run: Run) -> None:
    words = ("simulate", "digits", *FAST, "--methods", "local,sums", "--mu", "1")
    said, told = run(*words).err.splitlines(), run(*words, "--json").err
    assert len(said) == 2 and told == ""
    assert shows(said[0], "method-done", which=note("method-named", method="local"))
    assert shows(said[1], "method-done", which=note("method-at-mu", method="sums", mu=1.0))


def test_it_goes_on_where_it_stopped(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "s.json"
    settings = ["digits", *FAST, "--out", str(out)]
    first = simulated(run, *settings, "--methods", "sums,two-step")

    def refuse(*_: Any) -> Any:
        raise AssertionError("it was done already")

    monkeypatch.setattr(Sums, "simulate", refuse)
    both = simulated(run, *settings, "--methods", "sums,fedavg")
    assert [row["method"] for row in both["rows"]] == ["sums", "fedavg"] and both["rows"][0] == first["rows"][0]
    assert [row["method"] for row in json.loads(out.read_text())["rows"]] == ["sums", "two-step", "fedavg"]
    assert out.stat().st_mode & 0o077 == 0
    assert simulated(run, *settings, "--methods", "sums,two-step")["rows"] == first["rows"]  # nothing is left to do
    other = run("simulate", *settings, "--methods", "sums", "--seed", "1")
    assert other.code == 5 and "another simulation, with other seed" in other.err


def test_a_killed_run_keeps_what_was_done(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "s.json"

    def killed(*_: Any) -> Any:
        raise SystemExit(143)

    monkeypatch.setattr(FedAvg, "simulate", killed)
    assert run("simulate", "digits", *FAST, "--out", out, "--methods", "sums,fedavg").code == 143
    assert [row["method"] for row in json.loads(out.read_text())["rows"]] == ["sums"]
    assert left(tmp_path) == ["s.json"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--methods", "fedsomething"], "methods must be"),
        (["--mu", "strong"], "numbers with commas between"),
        (["--mu", "0"], "mu must be"),
        (["--mu", ","], "no number is given"),
        (["--beta", "0"], "beta must be"),
        (["--rho", "2"], "rho must be"),
        (["--parties", "900"], "900 rows are too few for 900 parties"),
        (["--tau", "0"], "tau must be"),
        (["--page", "page.pdf"], "a page is an .html file"),
        (["--test", "digits"], "must not be the same"),
        (["--test", "digits:train"], "must not be the same"),
        (["--public", "digits:test"], "test and public rows are among the others"),
        (["--public", "digits:train"], "must not be the same"),
        (["--learning-rate", "-1"], "learning rate must be"),
        (["--severity", "11"], "severity must be at most 10"),
        (["--head", "convnet"], "images of 16 × 16 pixels or more"),
    ],
)
def test_bad_input_is_named(words: list[str], said: str, run: Run, tmp_path: Path) -> None:
    result = run("simulate", "digits", "--methods", "sums", "--out", "s.json", *words, "--json")
    assert refused(result, "ArgumentError")
    assert said in result.json["error"]["message"] and left(tmp_path) == []


def test_other_data_are_split_by_themselves(run: Run, tmp_path: Path) -> None:
    import numpy as np

    stream = np.linspace(0, 1, 200 * 16).reshape(200, 4, 4).astype(np.float32)
    labels = np.arange(200) % 2
    x = (0.5 * stream + 0.5 * labels[:, None, None]).astype(np.float32)
    np.savez(tmp_path / "d.npz", x=x[:, None], y=labels)
    found = simulated(run, tmp_path / "d.npz", "--parties", "3", "--methods", "sums,public", "--mu", "4")
    assert found["settings"]["rows"] == [120, 40, 40]  # a fifth to test on, and a quarter of what is left is public
    assert [sum(own[label] for own in found["counts"]) for label in (0, 1)] == [
        60,
        60,
    ]  # alike, however rows are sorted
    assert found["rows"][0]["accuracy"] > 0.9


def test_other_data_under_the_same_name_are_not_taken_for_the_old(run: Run, tmp_path: Path) -> None:
    import numpy as np

    rng = np.random.default_rng(0)
    for seed in (0, 1):
        np.savez(tmp_path / "d.npz", x=rng.random((100, 1, 4, 4), dtype=np.float32), y=np.arange(100) % 2)
        result = run("simulate", "d.npz", "--parties", "2", "--methods", "sums", "--out", "s.json", "--json")
        assert result.code == (5 if seed else 0)
    assert "another simulation, with other digest" in result.json["error"]["message"]


def test_a_method_that_cannot_be_run_does_not_stop_the_others(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opacus.accountants.utils", None)
    result = run("simulate", "digits", *FAST, "--methods", "dp-sgd,sums", "--mu", "0.123", "--json")
    assert result.code == 0 and [row["method"] for row in result.json["rows"]] == ["sums"]
    assert result.json["failed"]["dp-sgd"]["code"] == "missing-dependency" and "DP-SGD in rounds" in result.err
    alone = run("simulate", "digits", *FAST, "--methods", "dp-sgd", "--mu", "0.123")
    assert alone.code == 5 and "no method could be run" in alone.err


def test_where_it_cannot_write_it_says_so_first(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for option in ("--out", "--page"):
        result = run("simulate", "digits", "--methods", "sums", option, "nowhere/s.html", "--json")
        assert result.code == 5 and "there is no folder nowhere" in result.json["error"]["message"]
    (tmp_path / "mine.html").write_text("<title>My page</title>")
    result = run("simulate", "digits", "--methods", "sums", "--page", "mine.html", "--json")
    assert result.code == 5 and "it is not overwritten" in result.json["error"]["message"]
    assert (tmp_path / "mine.html").read_text() == "<title>My page</title>" and left(tmp_path) == ["mine.html"]


def test_a_narrow_terminal_shows_what_matters(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_common.out, "_width", 50)
    said = run("simulate", "digits", *FAST, "--methods", "two-step-gaussian", "--mu", "1,2").out
    assert "sent" in said and "messages" not in said and "two-step-gaussian" in said and "…" not in said


def test_the_page_shows_all_and_loads_nothing(run: Run, tmp_path: Path) -> None:
    page = tmp_path / "s.html"
    found = simulated(
        run, "digits", *FAST, "--methods", "local,fedavg,one-shot,two-step", "--mu", "1,2", "--page", str(page)
    )
    text = page.read_text()
    for row in found["rows"]:
        assert f'<th scope="row">{row["method"]}<br>' in text
        assert str(read_note(row["guarantee"])).replace("'", "&#39;") in text
    assert text.index("verdict") < text.index("<table") and shows(text, "best-at-mu", mu=1.0, method="two-step")
    best = next(row["chosen"]["best party"] for row in found["rows"] if row["method"] == "local")
    assert f"best party {100 * best:.1f} %" in text
    assert len(re.findall(r"<text [^>]*>local: [\d.]+ %</text>", text)) == 3  # a level in each plot
    assert text.count("<svg") == 4 and "Accuracy over bytes" in text and "Accuracy over μ" in text
    assert not re.search(r"https?://|<script|src=", text) and "Private: all figures here" in text
    assert page.stat().st_mode & 0o077 == 0  # for its owner's eyes
    simulated(run, "digits", *FAST, "--methods", "sums", "--page", str(page))  # such a page is replaced
    assert "one-shot" not in page.read_text()
    page.write_text(text)
    shown, said, asked = browse(page, tmp_path)
    assert "What each method reaches" in shown and "CONSOLE" not in said and asked == []


def test_curves_are_thinned_and_axes_hold_them() -> None:
    curve = [[i, 0, 0, i] for i in range(1, 51)]
    few = thinned(curve)
    assert few[0] == curve[0] and few[-1] == curve[-1] and len(few) <= 12
    assert thinned(curve[:5]) == curve[:5]
    assert decades([5.0]) == [1.0, 10.0] and decades([0.02, 3000.0])[0] == 0.01
    assert charts([]) == []


def test_curves_of_one_method_are_told_apart() -> None:
    rows = [
        {"method": name, "mu": mu, "baseline": False, "accuracy": 0.5, "curve": [[10, 1, 1.0, 0.5]]}
        for name, mu in [*((f"m{i}", mu) for i in range(8) for mu in (1.0, 2.0)), *((f"n{i}", None) for i in range(8))]
    ]
    drawn = charts(rows)[0]
    looks = re.findall(r"<path d=\"M\d+ \d+h30\" stroke=\"(#\w+)\"[^>]*/>(<(?:circle|path d=\"[^\"]*\"))", drawn)
    assert len(looks) == len(rows) == len(set(looks))


def test_who_has_what_has_names_and_a_legend() -> None:
    drawn = dealt([[1, 0], [2, 2]], ["<cat>", "x" * 60])
    squares, legend = re.findall(r"<rect[^>]*><title>", drawn), re.findall(r"<rect[^>]*></rect>", drawn)
    assert len(squares) == 3 and len(legend) == 4 and "party 2, " in drawn
    assert "&lt;cat&gt;" in drawn and "<cat>" not in drawn and "xxx…</text>" in drawn and "100%" in drawn
