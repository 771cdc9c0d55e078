"""All methods on one partition: what they count, what they promise, and how a simulation goes on."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import mixveil
from mixveil.core.errors import ArgumentError, DataFormatError, OutputError
from mixveil.core.types import Progress
from mixveil.core.watching import unwatched
from mixveil.core.wording.notes import note
from mixveil.data.images import Images
from mixveil.data.opening import open_data
from mixveil.features.round_settings import RoundSettings
from mixveil.federated.methods.catalogue import METHODS, chosen_methods, method_named, method_names
from mixveil.federated.simulation import one_shot_methods, round_methods
from mixveil.federated.simulation.results import Kept, Row, compared, read_simulation, readable
from mixveil.federated.simulation.setup import Outcome, Point, Simulation, SimulationConfig, prepared, set_up
from mixveil.federated.simulation.simulate import jobs, run_method, work
from mixveil.theory import gdp
from tests.made import blobs, features_of, images
from tests.plugins import toy_method

PARTIES, CLASSES, INPUTS = 5, 10, 64
HEAD = 4 * CLASSES * (INPUTS + 1)
ROUNDS = RoundSettings(
    directions=32, rounds=4, share=0.2, clip=0.5, noise=0.01, rate=8.0, momentum=0.0, temperature=0.25, accuracy=0.9
)


def part(data: Images, keep: Callable[[torch.Tensor], torch.Tensor]) -> Images:
    index = torch.arange(len(data))
    return data.part(index[keep(index)])


@pytest.fixture(scope="module")
def simulation() -> Simulation:
    train, test = open_data("digits:train"), open_data("digits:test")
    agreed = prepared(features_of(part(train, lambda i: i % 4 == 0)), "0" * 64, tau=0.1)
    agreed = replace(agreed, projection=replace(agreed.projection, rounds=(ROUNDS,)))
    setting = SimulationConfig(PARTIES, 0.5, rounds=4, epochs=3, learning_rate=0.02, tau=0.1)
    return set_up(features_of(part(train, lambda i: i % 4 != 0)), features_of(test), agreed, setting)


@pytest.fixture(scope="module")
def found(simulation: Simulation) -> dict[str, Row]:
    return {name: run_method(simulation, name, mu) for name, mu in jobs(method_names(), [2.0])}


def test_every_method_runs_and_says_what_it_promises(found: dict[str, Row]) -> None:
    assert list(found) == method_names()
    codes = {name: row.outcome.guarantee.code for name, row in found.items()}
    figures = {name: row.outcome.guarantee.figures for name, row in found.items()}
    for name, row in found.items():
        outcome = row.outcome
        assert 0 <= outcome.accuracy <= 1 and outcome.seconds >= 0
        at_mu = method_named(name).simulated_at == "mu"
        assert (row.mu is not None) == at_mu == codes[name].startswith(("mu-", "epsilon-")), name
    assert codes["local"] == codes["public"] == "nothing-sent" and codes["centralised"] == "every-record-sent"
    weights = ("fedavg", "fedprox", "fedprox-tuned", "fed-augmix", "fedprox-augmix")
    assert {codes[name] for name in weights} == {"weights-unbounded"}
    assert codes["remixed"] == "released-every-epoch" and figures["remixed"] == {"epochs": 43}  # 300 steps, 7 an epoch
    assert codes["one-shot"] == "nominal-tau" and figures["one-shot"]["tau"] == 0.1
    assert codes["dp-sgd"] == "epsilon-record-taken-out"
    assert codes["two-step"] == codes["two-step-gaussian"] == "mu-labels-by-row"
    assert {codes[name] for name in ("sums", "sums-twice", "moments")} == {"mu-labels-covered"}
    assert codes["rounds"] == "mu-labels-covered" and codes["rounds-secure"] == "mu-labels-covered-shared"
    assert figures["rounds-secure"]["parties"] == PARTIES
    assert figures["rounds-secure"]["alone"] == pytest.approx(2 * math.sqrt(PARTIES))
    assert figures["sums"]["mu"] == 2.0 and figures["sums"]["epsilon"] == pytest.approx(10, abs=0.05)


def test_dp_sgd_stands_under_the_relation_of_the_others(found: dict[str, Row]) -> None:
    """At the ε that rounds of sums at μ = 2 have for a record taken out: 0.1 and 0.2 of μ² are left of 0.2 and 0.8."""
    told = found["dp-sgd"].outcome.guarantee.figures
    assert told["mu"] == 2.0 and told["mu_out"] == pytest.approx(math.sqrt(0.3 * 4))
    assert gdp.delta(told["mu_out"], told["epsilon"]) == pytest.approx(told["delta"], rel=1e-6)
    assert told["epsilon_replaced"] == 2 * told["epsilon"]
    assert told["delta_replaced"] == pytest.approx((1 + math.exp(told["epsilon"])) * told["delta"])


def test_bytes_and_messages_are_those_that_are_sent(simulation: Simulation, found: dict[str, Row]) -> None:
    counted = {
        name: (row.outcome.bytes_up, row.outcome.bytes_down, row.outcome.messages) for name, row in found.items()
    }
    assert counted["local"] == counted["public"] == (0, 0, 0)
    rows = 900
    assert simulation.rows == rows and sum(map(sum, simulation.counts)) == rows
    back = PARTIES * HEAD
    assert counted["centralised"] == (rows * (4 * INPUTS + 8), back, 2 * PARTIES)
    for name in ("fedavg", "fedprox", "fed-augmix", "fedprox-augmix", "dp-sgd"):
        assert counted[name] == (4 * back, 5 * back, 9 * PARTIES), name
    assert counted["fedprox-tuned"] == (12 * back, 13 * back, 25 * PARTIES)  # four settings, two rounds each
    assert counted["one-shot"] == (rows * (2 * INPUTS + 4 * CLASSES), back, 2 * PARTIES)
    assert counted["remixed"][0] == 43 * counted["one-shot"][0]
    k = found["sums"].outcome.chosen["directions"]
    assert counted["sums"] == (PARTIES * CLASSES * (k + 1) * 8, back, 2 * PARTIES)  # and a count of each class
    k = found["two-step"].outcome.chosen["directions"]
    sums, narrow = PARTIES * CLASSES * (k + 1) * 8, PARTIES * INPUTS * (CLASSES - 1) * 4
    assert counted["two-step"][1:] == (narrow + back, 4 * PARTIES) == counted["sums-twice"][1:]
    assert counted["two-step"][0] == counted["two-step-gaussian"][0]
    records = counted["two-step"][0] - sums
    assert records % rows == 0 and records // rows in (2 * 9 + 4 * CLASSES, 4 * 9 + 4 * CLASSES)
    assert counted["sums-twice"][0] == sums + PARTIES * CLASSES * CLASSES * 8
    assert sums < counted["moments"][0] <= sums + PARTIES * k * (k + 1) // 2 * 8
    assert counted["moments"][2] == 2 * PARTIES


def test_methods_learn_what_they_should(found: dict[str, Row]) -> None:
    right = {name: row.outcome.accuracy for name, row in found.items()}
    assert right["centralised"] > right["local"] + 0.03 and right["public"] > 0.8
    assert min(right[name] for name in ("two-step", "two-step-gaussian", "sums", "sums-twice")) > 0.75
    assert right["rounds-secure"] >= right["rounds"] - 0.02 and right["rounds"] > 0.75
    assert right["fedprox-tuned"] > 0.6 and right["dp-sgd"] > 0.5 and right["moments"] > 0.75
    best, worst = (found["local"].outcome.chosen[name] for name in ("best party", "worst party"))
    assert worst <= right["local"] <= best
    chosen = found["fedprox-tuned"].outcome.chosen
    assert chosen["learning rate"] in round_methods.GRID_RATES
    assert chosen["proximal"] in (round_methods.FEDPROX, *round_methods.GRID_PROXIMAL)


def test_curves_end_where_the_method_does(found: dict[str, Row]) -> None:
    for name in ("fedavg", "fedprox", "fedprox-tuned", "fed-augmix", "dp-sgd"):
        outcome = found[name].outcome
        search = 80 if name == "fedprox-tuned" else 0
        assert [point.messages - search for point in outcome.curve] == [15, 25, 35, 45]
        assert [point.bytes for point in outcome.curve] == [point.messages * HEAD for point in outcome.curve]
        assert outcome.curve[-1].bytes == outcome.bytes_up + outcome.bytes_down
        assert outcome.curve[-1].messages == outcome.messages
        assert outcome.curve[-1].accuracy == outcome.accuracy and outcome.curve[-1].seconds == outcome.seconds
    for name in ("one-shot", "two-step", "sums"):
        outcome = found[name].outcome
        assert outcome.curve == (
            Point(outcome.bytes_up + outcome.bytes_down, outcome.messages, outcome.seconds, outcome.accuracy),
        )


def test_the_same_seed_gives_the_same_figures(simulation: Simulation, found: dict[str, Row]) -> None:
    for name in ("fedavg", "one-shot", "remixed", "two-step", "dp-sgd", "local"):
        again = method_named(name).simulate(simulation, 2.0, lambda _: None)
        assert again.accuracy == found[name].outcome.accuracy, name


def test_remixing_within_parties_is_the_encoders_formula(simulation: Simulation) -> None:
    """A row less its mixture of two of one party's is noise of the encoder's size, times the partner's weight."""
    source = one_shot_methods.Remixed(simulation)
    index = torch.arange(simulation.rows)
    first, second = source.batch(index, 0), source.batch(index, source._per_epoch)
    x, labels = torch.cat(list(simulation.x)), torch.cat([part.labels for part in simulation.parties])
    owner = torch.cat([torch.full((len(own),), place) for place, own in enumerate(simulation.x)])
    assert torch.equal(owner[source._partner], owner) and not (source._partner == index).any()
    assert torch.equal(source._partner.sort().values, index) and float(source._weight.min()) >= 0.3
    own, other = source._weight[:, :1], source._weight[:, 1:]
    noise = (second.x - own * x - other * x[source._partner]) / other
    assert float(noise.std()) == pytest.approx(simulation.agreed.encoder.sigma, rel=0.01)
    apart = labels != labels[source._partner]
    assert torch.allclose(second.y[apart, labels[apart]], own[apart, 0]) and torch.allclose(
        second.y.sum(1), own[:, 0] * 0 + 1
    )
    assert not torch.allclose(first.x, second.x) and not torch.allclose(first.y, second.y)


def test_work_is_what_progress_counts(simulation: Simulation) -> None:
    for name in ("local", "fedavg", "fedprox-tuned", "fed-augmix", "one-shot", "sums", "dp-sgd"):
        counted: list[int] = []
        run_method(simulation, name, 1.0, progress=counted.append)
        assert sum(counted) == pytest.approx(work(simulation, name), rel=0.1), name  # but for rows too few for a batch


def outcome(accuracy: float, points: list[tuple[int, float, float]]) -> Outcome:
    curve = tuple(Point(sent, 1, seconds, right) for sent, seconds, right in points)
    return Outcome(accuracy, 1, 1, 1, 1.0, note("nothing-sent"), curve=curve)


def test_methods_beside_one_another() -> None:
    rows = [
        Row("two-step", 2.0, outcome(0.8, [(100, 5.0, 0.8)])).plain(),
        Row("sums", 1.0, outcome(0.5, [(10, 1.0, 0.5)])).plain(),
        Row(
            "fedavg", None, outcome(0.9, [(40, 4.0, 0.3), (80, 8.0, 0.6), (120, 12.0, 0.85), (160, 16.0, 0.9)])
        ).plain(),
        Row("dp-sgd", 2.0, outcome(0.7, [(40, 4.0, 0.2), (80, 8.0, 0.7)])).plain(),
    ]
    found = {(item.method, item.other): item for item in compared(rows)}
    assert set(found) == {("two-step", "fedavg"), ("two-step", "dp-sgd"), ("sums", "fedavg")}
    beside = found["two-step", "fedavg"]
    assert (beside.at_bytes, beside.bytes_ratio, beside.seconds_ratio) == (0.6, 1.2, 2.4)
    beside = found["two-step", "dp-sgd"]
    assert (beside.at_bytes, beside.bytes_ratio, beside.seconds_ratio) == (0.7, None, None)
    beside = found["sums", "fedavg"]
    assert (beside.at_bytes, beside.bytes_ratio, beside.seconds_ratio) == (None, 8.0, 8.0)


def test_what_is_done_is_kept_and_another_simulation_refused(tmp_path: Path) -> None:
    path, about = tmp_path / "s.json", {"parties": 2, "beta": 0.5}
    kept = Kept(path, about)
    kept.counts = [[1, 2], [3, 4]]
    kept.add(Row("sums", 1.0, outcome(0.5, [(10, 1.0, 0.5)])))
    again = Kept(path, about)
    assert again.has(("sums", 1.0)) and not again.has(("sums", 2.0)) and not again.has(("fedavg", None))
    assert again.rows == kept.rows and again.counts == [[1, 2], [3, 4]]
    with pytest.raises(OutputError, match="another simulation, with other beta: name another file"):
        Kept(path, {**about, "beta": 0.1})
    whole = json.loads(path.read_text())
    changes: tuple[dict[str, Any], ...] = (
        {"format": "other"},
        {"more": 1},
        {"rows": [{**whole["rows"][0], "accuracy": "high"}]},
        {"rows": [{**whole["rows"][0], "curve": [[1, 2]]}]},
        {"rows": [{**whole["rows"][0], "curve": [["a", "b", "c", "d"]]}]},
        {"rows": [{**whole["rows"][0], "chosen": [1]}]},
        {"rows": [{**whole["rows"][0], "mu": "x"}]},
        {"rows": [{**whole["rows"][0], "method": "bogus"}]},
        {"rows": [{}]},
        {"rows": [{**whole["rows"][0], "guarantee": {"code": "No such \x1b[2J"}}]},
        {"rows": [{**whole["rows"][0], "guarantee": {"code": "released-every-epoch", "figures": {"epochs": "x"}}}]},
        {"counts": [["a"]]},
        {"counts": [[-1]]},
        {"counts": [[10**60]]},
        {"counts": json.loads("[" * 90 + "]" * 90)},
        {"rows": [{**whole["rows"][0], "accuracy": 1e308}]},
        {"rows": [{**whole["rows"][0], "mu": 5e-324}]},
        {"rows": [{**whole["rows"][0], "curve": [[-1, 1, 1, 1]]}]},
        {"settings": {"seed": 10**200}},
    )
    for change in changes:
        (tmp_path / "bad.json").write_text(json.dumps({**whole, **change}))
        with pytest.raises(DataFormatError, match="does not hold a simulation"):
            read_simulation(tmp_path / "bad.json")
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(DataFormatError):
        read_simulation(tmp_path / "bad.json")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataFormatError, match="not a plain file"):
        Kept(tmp_path / "pipe", about)
    nothing = {**whole["rows"][0], "curve": [[0, 0, 0.0, 0.5]]}  # no bytes, and no time
    assert compared([nothing, {**nothing, "method": "fedavg", "mu": None}])[0].bytes_ratio is None


def test_bad_settings_are_named(simulation: Simulation) -> None:
    for wrong in ({"tau": 0.0}, {"rounds": 0}, {"epochs": 0}, {"learning_rate": -1.0}, {"seed": -1}):
        with pytest.raises(ArgumentError, match="must be"):
            SimulationConfig(3, **wrong)
    with pytest.raises(ArgumentError, match=r"methods must be .*, got fedsomething"):
        chosen_methods("fedavg,fedsomething")
    with pytest.raises(ArgumentError, match="got none"):
        chosen_methods(" , ")
    train = features_of(open_data("digits:train"))
    with pytest.raises(ArgumentError, match="do not have the same classes"):
        set_up(train, features_of(images(classes=4)), prepared(train, "0" * 64, tau=1.0), SimulationConfig(2))


def test_a_file_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    """It had titles, and guarantees as texts."""
    path = tmp_path / "s.json"
    kept = Kept(path, {})
    kept.add(Row("sums", 1.0, outcome(0.5, [(10, 1.0, 0.5)])))
    whole = json.loads(path.read_text())
    whole["rows"][0] |= {"title": "class sums at full μ", "guarantee": "nothing is sent"}
    path.write_text(json.dumps(whole))
    (row,) = readable(Kept(path, {}).rows)
    assert row["guarantee"] == "nothing is sent" and row["title"] == method_named("sums").title


def test_every_method_is_in_the_documents() -> None:
    text = (Path(__file__).parents[3] / "docs" / "federated.md").read_text()
    assert not [name for name in method_names() if f"`{name}`" not in text]


def test_a_method_from_outside_is_run_by_its_name(simulation: Simulation) -> None:
    with METHODS.including(toy_method.NearestMean):
        row = run_method(simulation, "nearest-mean")
        assert "nearest-mean" in chosen_methods("all") and work(simulation, "nearest-mean") == simulation.rows
    assert row.outcome.accuracy > 0.6 and row.outcome.guarantee.code == "means-in-the-clear"
    assert row.outcome.bytes_up == PARTIES * CLASSES * (INPUTS + 1) * 4
    (shown,) = simulate_readable([row])
    assert shown["guarantee"] == "no guarantee: class means leave without noise"
    with pytest.raises(ArgumentError, match="method must be one of"):
        method_named("nearest-mean")


def simulate_readable(rows: list[Row]) -> list[dict[str, Any]]:
    with METHODS.including(toy_method.NearestMean):
        return readable([row.plain() for row in rows])


def test_settings_for_rounds_are_found_once_where_a_method_needs_them() -> None:
    bars: list[str] = []

    def watch(what: str, total: int) -> AbstractContextManager[Progress]:
        bars.append(what)
        return unwatched(what, total)

    found = mixveil.simulate("digits", parties=2, methods=["rounds", "sums"], mu=[1.0, 20.0], watch=watch)
    again = mixveil.simulate("digits", parties=2, methods=["sums"], mu=20.0, watch=watch)
    accuracy = {(row["method"], row["mu"]): row["accuracy"] for row in found.rows}
    assert not found.failed and len(accuracy) == 4 and bars.count("settings") == 1
    assert accuracy["rounds", 20.0] > 0.8
    assert accuracy["sums", 20.0] == again.rows[0]["accuracy"]


def test_public_data_of_few_classes_make_no_rounds() -> None:
    """The method says so, and the others are run."""
    data, known, test = blobs(120, 1), blobs(60, 2), blobs(60, 3)
    found = mixveil.simulate(data, test=test, public=known, parties=2, methods=["rounds", "sums"])
    assert [row["method"] for row in found.rows] == ["sums"] and set(found.failed) == {"rounds"}
    assert "several classes" in str(found.failed["rounds"])
