"""Fed-AugMix as a client's option of FedAvg and FedProx: its loss by hand, rounds in memory and between machines, and
the update that a party keeps for its own audit."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load, save
from torch import Tensor

from mixveil.audit.own_releases import audit
from mixveil.core.device_random import DeviceStream
from mixveil.core.errors import ArgumentError, WrongTruthError
from mixveil.core.local_training import AugMix, LocalTraining
from mixveil.core.randomness import SeededStream
from mixveil.core.types import Batch
from mixveil.core.wording.notes import Note
from mixveil.data import augmix as augmenting
from mixveil.data.images import Images, from_tensors
from mixveil.data.opening import open_data
from mixveil.features.extractor import Extractor
from mixveil.features.stacked.local_steps import Rows, local_steps
from mixveil.features.stacked.network import Stacked, stacked
from mixveil.federated.algorithms import Rounds, Weights, federated, local, new_head, weights_of
from mixveil.federated.jobs import round_order
from mixveil.federated.jobs.job import Job
from mixveil.federated.jobs.job_config import JobConfig
from mixveil.federated.jobs.last_update import update_of
from mixveil.federated.jobs.messages import Message
from mixveil.federated.jobs.party import Party
from mixveil.federated.jobs.round_order import RoundOrder
from mixveil.federated.jobs.rounds import RowsInClear
from mixveil.federated.simulation.setup import Simulation, SimulationConfig, prepared, set_up
from mixveil.federated.simulation.simulate import run_method, simulate
from mixveil.learn.augmix_loss import AugMixLoss, augmix_loss
from mixveil.learn.batches import RemixedEveryBatch
from mixveil.learn.fit import TrainingRecipe, rates
from mixveil.learn.model import read_model
from mixveil.learn.sequence_head import PREFIX, ImageSequence, SequenceHead
from mixveil.releases.kinds.updates import UpdateSettings
from mixveil.releases.ledger import Ledger
from mixveil.releases.reading import read_envelope, read_release
from mixveil.releases.updates import weights_of as weights_in
from tests.federated.here import Here, a_party, approving, done, job_of
from tests.made import blobs, features_of
from tests.notes import codes

SHAPE = (1, 8, 8)
NAMES = ("a", "b", "c")
ALLOW = "fedavg,fedprox,fed-augmix,fedprox-augmix"
pytestmark = pytest.mark.usefixtures("clock")


def digits(first: int, rows: int) -> Images:
    """Some digits of classes 0, 1 and 2."""
    whole = open_data("digits:train")
    index = (whole.labels < 3).nonzero()[first : first + rows, 0]
    x, y = whole.take(index)
    return from_tensors(x, y.argmax(1), classes=3)


def source(images: Images) -> RemixedEveryBatch:
    x, y = images.take(torch.arange(len(images)))
    return RemixedEveryBatch(x.flatten(1), y.argmax(1), len(images.classes), None)


def batch(rows: int = 6) -> Batch:
    x, y = digits(0, rows).take(torch.arange(rows))
    return Batch(x.flatten(1), y)


def by_hand(model: ImageSequence, given: Batch, settings: AugMix, stream: SeededStream, step: int) -> float:
    """The slow twin: one image and one view at a time."""
    draws = DeviceStream(stream)
    draws.restart(step)
    views = augmenting.views(given.x.view(-1, *SHAPE), settings, draws)
    named = apart = 0.0
    for row, label in enumerate(given.y.argmax(1).tolist()):
        seen = [given.x[row], *(view[row].flatten() for view in views)]
        shares = [model(x[None])[0].double().softmax(0).tolist() for x in seen]
        named -= math.log(shares[0][label]) / len(given.x)
        mean = [sum(own[c] for own in shares) / len(shares) for c in range(len(shares[0]))]
        kl = [sum(p * math.log(p / q) for p, q in zip(own, mean, strict=True)) for own in shares]
        apart += sum(kl) / len(kl) / len(given.x)
    weight = settings.large if named > settings.scale * apart else settings.weight
    return named + weight * apart


@pytest.mark.parametrize(("views", "scale"), [(2, 5e4), (2, 1e-3), (3, 0.0), (1, 1e12)])
def test_the_loss_is_the_one_by_hand(views: int, scale: float) -> None:
    settings = AugMix(4.0, views=views, scale=scale, weight=7.0, large=900.0)
    model = new_head("lenet5", 64, 3, TrainingRecipe(seed=2), shape=SHAPE)
    assert isinstance(model, ImageSequence)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.5)  # first weights say nearly the same of all images
    loss, stream = AugMixLoss(settings, SHAPE, SeededStream(5)), SeededStream(5)
    found = [loss(model, batch(), step, 6).item() for step in (3, 4, 3)]
    wanted = [by_hand(model, batch(), settings, stream if step == 3 else SeededStream(5), step) for step in (3, 4)]
    assert found[:2] == pytest.approx(wanted, rel=1e-4) and found[2] == found[0] != found[1]
    plain = torch.nn.functional.cross_entropy(model(batch().x), batch().y).item()
    assert found[0] > plain + 1e-4


def test_rows_that_are_no_images_are_refused() -> None:
    for shape, low, high in (((64,), 0.0, 1.0), (SHAPE, -1.0, 1.0)):
        with pytest.raises(ArgumentError, match="Fed-AugMix takes images"):
            augmix_loss(AugMix(2.0), shape, low, high)


@pytest.mark.parametrize("proximal", [None, 0.3])
@pytest.mark.parametrize("augmix", [None, AugMix(3.0)])
def test_a_round_is_the_one_that_attackers_simulate(proximal: float | None, augmix: AugMix | None) -> None:
    """`local` against the steps that attacks on updates compute, from what an update says of its training."""
    images, recipe = digits(0, 20), TrainingRecipe(6, 8, "sgd", 0.02, seed=4)
    model = new_head("lenet5", 64, 3, recipe, shape=SHAPE)
    assert isinstance(model, ImageSequence)
    start = weights_of(model)
    loss = None if augmix is None else augmix_loss(augmix, SHAPE, 0.0, 1.0)
    found = local(model, start, source(images), recipe, range(2, 4), proximal=proximal, loss=loss)
    training = RoundOrder("lenet5", recipe, range(2, 4), 0, proximal, augmix).training(20)
    assert training is not None and training.momentum == 0.9 and len(training.rates) == 4
    steps, x, y = [], *images.take(torch.arange(20))
    for number in range(4):
        order = recipe.stream(f"epoch {2 + number // 2}").permutation(20)[(number % 2) * 8 :][:8]
        draws = DeviceStream(recipe.stream("augmix"))
        draws.restart(4 + number)
        views = None if augmix is None else augmenting.views(x[order], augmix, draws)[:, None]
        steps.append(Rows(x[order][None], y[order][None], views))
    before = {name.removeprefix(PREFIX): tensor for name, tensor in start.items()}
    after = local_steps(Stacked(model.net), stacked(before, 1), steps, training)
    moved = max(float((found[name] - start[name]).abs().max()) for name in start)
    for name, tensor in after.items():
        assert torch.allclose(found[PREFIX + name], tensor[0], atol=1e-5 + 1e-3 * moved), name


def test_rates_are_those_of_the_optimiser() -> None:
    recipe = TrainingRecipe(10, 8, learning_rate=0.1)
    whole = rates(20, recipe, range(10))
    assert len(whole) == 20 and whole[0] == 0.1  # a rest of four rows is no batch
    assert rates(20, recipe, range(3, 5)) == whole[6:10]
    assert whole[10] == pytest.approx(0.05) and [*whole] == sorted(whole, reverse=True)


# Rounds between machines


def by_rounds(tmp_path: Path, images: Any = None, **order: Any) -> tuple[Job, dict[str, Party], dict[str, Any]]:
    own = {name: (digits(30 * i, 30) if images is None else images(i)) for i, name in enumerate(NAMES)}
    parties = {
        name: a_party(tmp_path, name, 0, images=own[name], allow=ALLOW, approve=True, budget=None) for name in NAMES
    }
    job = job_of(tmp_path, **{"rounds": 2, "epochs": 2, "batch": 8, **order})
    return job, parties, done(job, Here({name: approving(party) for name, party in parties.items()}))


def in_memory(job: Job, loss: Any, proximal: float | None) -> list[Weights]:
    recipe, head = job.config.recipe, job.config.chosen_head
    model = new_head(head, 64, 3, recipe, shape=SHAPE)
    sources = [source(digits(30 * i, 30)) for i in range(3)]
    found = federated(model, sources, recipe, job.config.schedule, proximal=proximal, loss=loss)
    return [weights_of(new_head(head, 64, 3, recipe, shape=SHAPE)), *found]


def kept(tmp_path: Path, name: str) -> Path:
    (folder,) = (tmp_path / f"jobs-{name}" / name).glob("first-*")
    return folder


def same(one: Weights, other: Weights) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def stripped(weights: Weights) -> Weights:
    return {name.removeprefix(PREFIX): tensor for name, tensor in weights.items()}


@pytest.fixture
def known_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Views by the seed of the recipe, as in memory: a party's own draws cannot be repeated."""
    monkeypatch.setattr(round_order, "SecureStream", lambda: None)


@pytest.mark.usefixtures("known_draws")
@pytest.mark.parametrize(
    ("method", "head", "proximal"),
    [("fed-augmix", "lenet5", None), ("fedprox-augmix", "linear", 0.1), ("fedavg", "lenet5", None)],
)
def test_rounds_between_machines_are_those_in_memory(
    tmp_path: Path, method: str, head: str, proximal: float | None
) -> None:
    job, _, whole = by_rounds(tmp_path, method=method, head=head, severity=3.0, proximal=proximal or 1e-3)
    assert whole["ok"], whole
    augmix = AugMix(3.0) if "augmix" in method else None
    loss = None if augmix is None else augmix_loss(augmix, SHAPE, 0.0, 1.0)
    rounds = in_memory(job, loss, proximal)
    read = read_model(Path(whole["model"]))
    if isinstance(read.head, SequenceHead):
        assert same(read.head.net.state_dict(), stripped(rounds[-1]))
    else:
        assert torch.equal(read.layers.layers[0][0].T, rounds[-1]["dense.weight"])
    assert read.card["guarantee"] == [{"code": "model-promises-nothing"}] and read.card["how"]["head"] == head
    assert read.card["how"].get("augmix") == (None if augmix is None else asdict(augmix))
    assert not same(rounds[-1], in_memory(job, None, proximal)[-1]) or augmix is None
    model = kept(tmp_path, "b") / "model"
    assert type(read_model(model).head) is type(read.head)  # the party has it back


@pytest.mark.usefixtures("known_draws")
@pytest.mark.parametrize(
    ("method", "head", "optimiser"),
    [("fedprox-augmix", "lenet5", "sgd"), ("fed-augmix", "linear", "adamw"), ("fedavg", "mlp", "adamw")],
)
def test_a_party_keeps_what_it_sent_last(tmp_path: Path, method: str, head: str, optimiser: str) -> None:
    job, parties, whole = by_rounds(tmp_path, method=method, head=head, optimiser=optimiser)
    assert whole["ok"], whole
    folder = kept(tmp_path, "b")
    release = read_release(folder / "update")
    settings = release.envelope.settings
    assert isinstance(settings, UpdateSettings) and settings.method == method
    assert (settings.shape, settings.low, settings.high) == (SHAPE, 0.0, 1.0)
    assert release.classes == ("0", "1", "2") and (folder / "update").stat().st_mode & 0o077 == 0
    assert not [path.name for path in folder.iterdir() if path.name.startswith(".update")]
    augmix = AugMix(2.0) if "augmix" in method else None
    proximal = 1e-3 if "prox" in method else None
    loss = None if augmix is None else augmix_loss(augmix, SHAPE, 0.0, 1.0)
    before = in_memory(job, loss, proximal)[1]
    assert same(weights_in(release, "before."), stripped(before))
    model, rows = new_head(head, 64, 3, job.config.recipe, shape=SHAPE), source(digits(30, 30))
    after = local(model, before, rows, job.config.recipe, range(2, 4), party=1, proximal=proximal, loss=loss)
    assert same(weights_in(release, "after."), stripped(after))
    sgd = optimiser == "sgd"
    steps = rates(30, job.config.recipe, range(2, 4))
    assert settings.training == LocalTraining(
        30,
        8,
        steps,
        "sgd" if sgd else "adamw",
        0.9 if sgd else 0.0,
        0.0 if sgd else 1e-4,
        proximal,
        augmix,
        shuffled=True,
    )
    assert (settings.network() is None) == (head == "mlp")
    entries = {entry.party: entry.id for entry in Ledger().entries()}
    assert len(Ledger().entries()) == 3 and entries["b"] == release.id  # the rounds are entered, once
    del parties


@pytest.mark.parametrize(("low", "high"), [(-2.0, 3.0), (1.0, 1.0)])
def test_an_update_on_features_names_no_network(low: float, high: float) -> None:
    recipe, of = TrainingRecipe(2, 8), Extractor(("mobilenet_v2",))
    known = RowsInClear("0" * 32, of, source(digits(0, 20)), ("0", "1", "2"), "0" * 64, (64,), low, high)
    weights = save(dict(weights_of(new_head("linear", 64, 3, recipe))))
    update = update_of(known, RoundOrder("linear", recipe, range(1), 0, None, None), weights, weights)
    settings = UpdateSettings(method="fedavg", **update.settings)
    assert (settings.layers, settings.shape, settings.low) == (None, (64,), low) and settings.high > low
    assert UpdateSettings.parse(settings.plain()) == settings  # as its reader has it
    with pytest.raises(ArgumentError, match="head lenet5 takes images"):
        RoundOrder("lenet5", recipe, range(1), 0, None, None).model(known)
    endless = RoundOrder("linear", replace(recipe, epochs=10_000), range(10_000), 0, None, None)
    assert endless.training(20) is None  # too many rates to write down


def test_an_owner_hears_once_where_the_update_is(tmp_path: Path) -> None:
    said: list[Note] = []
    own = a_party(tmp_path, "a", 0, allow="fedavg", approve=True, budget=None)
    own.log = said.append
    job = job_of(tmp_path, method="fedavg", rounds=3, parties=1)
    assert done(job, Here({"a": approving(own)}))["ok"]
    assert [event.code for event in said].count("update-kept") == 1
    (told,) = (event for event in said if event.code == "update-kept")
    assert read_envelope(Path(told.figures["path"])).party == "a" and told.figures["data"] == own.config.data


# What is refused


OWN = asdict(AugMix(2.0))
WRONG: dict[str, list[dict[str, Any]]] = {
    "fed-augmix": [
        {"augmix": None},
        {"augmix": {**OWN, "severity": 11.0}},
        {"augmix": {**OWN, "more": 1}},
        {"augmix": {**OWN, "views": 2.5}},
        {"augmix": [2.0]},
    ],
    "fedavg": [{"augmix": OWN}, {"head": "convnet"}, {"head": "vgg16"}, {"head": None}],
}


def a_round(job: Job) -> tuple[dict[str, Any], bytes]:
    """What a server asks for in the first round, and its weights."""
    recipe = job.config.recipe
    about: dict[str, Any] = {"ask": "round", "kind": "updates", "recipe": asdict(recipe), "epochs": [0, 1]}
    about |= {**job.identity.plain(), "extractor": job.config.extractor.plain(), "head": "linear", "number": 0}
    about["augmix"] = OWN if job.config.method == "fed-augmix" else None
    return about, save(dict(weights_of(new_head("linear", 64, 3, recipe))))


@pytest.mark.parametrize("method", WRONG)
def test_a_server_does_not_know_the_draws_of_views(tmp_path: Path, method: str) -> None:
    """It chose the recipe's seed: with it, it could compute the same views of whatever images it guesses."""
    job, parties, _ = by_rounds(tmp_path, method=method, rounds=1, epochs=1)
    about, weights = a_round(job)
    one, other = (load(parties["a"].answer(Message(about, {"weights": weights})).files["weights"]) for _ in range(2))
    assert same(one, other) is (method == "fedavg")


def test_steps_that_would_fill_the_memory_are_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job, parties, _ = by_rounds(tmp_path, method="fed-augmix", rounds=1, epochs=1)
    about, weights = a_round(job)
    monkeypatch.setattr(round_order, "_MOST_VALUES", 8 * 2 * 3 * 64)  # batch, views, chains, pixels
    assert parties["a"].answer(Message(about, {"weights": weights})).about["state"] == "ready"
    larger = ({"recipe": {**about["recipe"], "batch": 10**9}}, {"augmix": {**OWN, "views": 8}})
    for change in (*larger, {"augmix": {**OWN, "chains": 16}}):
        assert parties["a"].answer(Message({**about, **change}, {"weights": weights})).about["state"] == "failed"
    network = save(dict(weights_of(new_head("lenet5", 64, 3, job.config.recipe, shape=SHAPE))))
    assert parties["a"].answer(Message({**about, "head": "lenet5"}, {"weights": network})).about["state"] == "failed"


@pytest.mark.parametrize("batch", [8, 100])
def test_what_was_sent_last_is_audited_whichever_optimiser_the_server_chose(tmp_path: Path, batch: int) -> None:
    """Rows come in another order in every epoch: that the update cannot be computed again does not make them others."""
    _, parties, whole = by_rounds(tmp_path, method="fedavg", head="linear", optimiser="sgd", batch=batch)
    assert whole["ok"]
    data, update = parties["b"].config.data, kept(tmp_path, "b") / "update"
    found = audit([update], data, attacks=["update-labels"]).audit
    assert ("update-not-recomputed" in codes(found.warnings)) is (batch < 30)
    with pytest.raises(WrongTruthError):
        audit([update], parties["a"].config.data, attacks=["update-labels"])


@pytest.mark.parametrize("method", WRONG)
def test_rounds_that_the_owner_did_not_agree_to_are_not_trained(tmp_path: Path, method: str) -> None:
    job, parties, _ = by_rounds(tmp_path, method=method, rounds=1, epochs=1)
    about, weights = a_round(job)
    honest = parties["a"].answer(Message(about, {"weights": weights}))
    assert honest.about["state"] == "ready" and not same(load(honest.files["weights"]), load(weights))
    for change in WRONG[method]:
        answer = parties["a"].answer(Message({**about, **change}, {"weights": weights}))
        assert answer.about["state"] == "failed" and not answer.files, change


def test_images_of_other_shapes_do_not_learn_together(tmp_path: Path) -> None:
    def images(party: int) -> Images:
        x, y = digits(30 * party, 30).take(torch.arange(30))
        return from_tensors(x.view(-1, 1, 4, 16) if party == 2 else x, y.argmax(1), classes=3)

    _, _, whole = by_rounds(tmp_path, images, method="fed-augmix", rounds=1, head="lenet5")
    assert whole["ok"] and whole["parties"]["c"]["why"]["code"] == "differs-from-most"


def test_parties_without_images_learn_nothing_there(tmp_path: Path) -> None:
    def vectors(party: int) -> Images:
        x, y = blobs(30, party).take(torch.arange(30))
        return from_tensors(x.flatten(1), y.argmax(1), classes=3)

    _, _, whole = by_rounds(tmp_path, vectors, method="fed-augmix", rounds=1)
    assert not whole["ok"] and {party["state"] for party in whole["parties"].values()} == {"rejected"}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"method": "fed-augmix", "backbone": "mobilenet_v2"}, "backbone must be none for fed-augmix"),
        ({"method": "fedavg", "head": "lenet5", "backbone": "mobilenet_v2"}, "backbone must be none for head lenet5"),
        ({"method": "fed-augmix", "severity": 0.0}, "severity"),
        ({"method": "fed-augmix", "severity": 10.5}, "severity must be at most 10"),
        ({"method": "fedavg", "head": "vgg16"}, "head must be linear or mlp or lenet5 or convnet"),
        ({"method": "two-step", "head": "lenet5", "projection": "p"}, "head must be discriminant or mlp"),
    ],
)
def test_jobs_that_cannot_be_are_named(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        JobConfig(job="j", parties=2, **wrong)


# Simulations


@pytest.fixture(scope="module")
def simulation() -> Simulation:
    whole = digits(0, 350)
    part = [whole.part(torch.arange(first, last)) for first, last in ((0, 200), (200, 250), (250, 350))]
    train, public, test = map(features_of, part)
    config = SimulationConfig(2, head="lenet5", rounds=6, batch=16, learning_rate=5e-3, severity=3.0)
    return set_up(train, test, prepared(public, "0" * 64, tau=0.1), config)


def test_a_network_learns_with_and_without_it(simulation: Simulation) -> None:
    rows = {name: run_method(simulation, name).outcome for name in ("fedavg", "fed-augmix")}
    one_round = replace(simulation, rounds=Rounds(1))
    rows["fedprox-augmix"] = run_method(one_round, "fedprox-augmix").outcome
    assert {outcome.guarantee.code for outcome in rows.values()} == {"weights-unbounded"}
    sent = 2 * 4 * (6 * 26 + 16 * 151 + 401 * 120 + 121 * 84 + 85 * 3)  # LeNet-5's weights, of two parties
    assert [rows[name].bytes_up for name in rows] == [6 * sent, 6 * sent, sent]
    assert rows["fedavg"].accuracy > 0.85 and rows["fed-augmix"].accuracy > 0.55  # of three classes
    again = run_method(one_round, "fedprox-augmix").outcome
    assert again.accuracy == rows["fedprox-augmix"].accuracy


def test_severity_reaches_the_views(simulation: Simulation, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[AugMix] = []

    def views(x: Tensor, settings: AugMix, draws: DeviceStream) -> Tensor:
        seen.append(settings)
        return x.expand(settings.views, *x.shape)

    monkeypatch.setattr(augmenting, "views", views)
    small = replace(simulation, rounds=Rounds(1))
    same_view = run_method(small, "fed-augmix").outcome
    assert {*seen} == {AugMix(3.0)} and (seen[0].weight, seen[0].scale, seen[0].large) == (50.0, 5e4, 5e3)
    assert same_view.accuracy == run_method(small, "fedavg").outcome.accuracy  # views that agree cost nothing


def test_features_are_refused_by_name(simulation: Simulation) -> None:
    features = replace(simulation.test, extractor=Extractor(("mobilenet_v2",)))
    of_features = replace(simulation, test=features)
    for name in ("fed-augmix", "fedprox-augmix"):
        with pytest.raises(ArgumentError, match="Fed-AugMix changes images, and these are features of"):
            run_method(replace(of_features, head="linear"), name)
    with pytest.raises(ArgumentError, match="head lenet5 takes images"):
        run_method(of_features, "fedavg")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"head": "lenet5", "backbone": "mobilenet_v2"}, "head lenet5 takes images, not features"),
        ({"head": "convnet"}, "16 × 16 pixels or more"),
        ({"head": "vgg16"}, "head must be one of linear, mlp, lenet5, convnet"),
        ({"severity": 0.0}, "severity"),
        ({"severity": 11.0}, "severity must be at most 10"),
    ],
)
def test_simulations_that_cannot_be_are_named(more: dict[str, Any], said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        simulate("digits", parties=2, methods="fedavg", rounds=1, **more)


def test_the_settings_of_a_simulation_are_in_its_file(tmp_path: Path) -> None:
    out = tmp_path / "s.json"
    found = simulate("digits", parties=2, methods="fed-augmix", rounds=1, severity=4.0, out=out)
    assert json.loads(out.read_text())["settings"]["severity"] == 4.0 and len(found.rows) == 1
