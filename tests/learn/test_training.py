from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load, save
from torch import Tensor

from mixveil.core import errors
from mixveil.core.randomness import SecureStream, SeededStream, Stream
from mixveil.core.types import Mu, Release
from mixveil.core.wording.notes import note
from mixveil.data.images import Images, from_tensors
from mixveil.data.opening import open_data
from mixveil.encoders.calibration import settled_facts
from mixveil.encoders.gaussian import Gaussian
from mixveil.encoders.identity import Identity
from mixveil.encoders.singular import Singular
from mixveil.features.cache import Features
from mixveil.features.extractor import Extractor
from mixveil.features.projection import Projected, Projection, Used
from mixveil.features.projection_fit import fit
from mixveil.learn import discriminant
from mixveil.learn.batches import Released
from mixveil.learn.class_means import directions
from mixveil.learn.fit import TrainingRecipe
from mixveil.learn.fit import fit as fit_mlp
from mixveil.learn.layers import Layers
from mixveil.learn.mlp import Classifier
from mixveil.learn.model import promises, read_model, write_model
from mixveil.learn.protocol import PROTOCOLS, Protocol, learn, released
from mixveil.learn.training import ProjectionWithDigest, Trained, _check_together, opened, train, train_mlp
from mixveil.releases.reading import read_release
from mixveil.releases.records import in_memory, write_release
from mixveil.releases.sums import write_statistics
from tests.made import blobs, features_of
from tests.sums import SETTINGS

WEIGHTS, DIGEST = "a" * 64, "b" * 64
PUBLIC = fit(features_of(blobs(600, 1)), WEIGHTS)
TEST = features_of(blobs(900, 8))


def train_on(folders: list[Path], projection: ProjectionWithDigest | None = None) -> Trained:
    return train(opened(folders, projection))


def private(n: int, seed: int) -> Features:
    return features_of(blobs(n, seed))


def accuracy(linear: Layers, test: Features = TEST) -> float:
    return float(linear.named(test).eq(test.labels).double().mean())


def record_release(n: int, seed: int, mu: float, projection: Projection = PUBLIC, *, plain: bool = False) -> Release:
    return released(Projected(private(n, seed), projection), mu, plain=plain, stream=SeededStream(seed))


def least_squares(releases: list[Release], precisions: list[float]) -> Tensor:
    """The slow twin: one tall system, every row scaled by the root of its release's precision."""
    x, y = [], []
    for release, precision in zip(releases, precisions, strict=True):
        batch = release.payload.take(torch.arange(len(release.payload)))
        x.append(batch.x.double() * precision**0.5)
        y.append(batch.y.double() * precision**0.5)
    found: Tensor = torch.linalg.lstsq(torch.cat(y), torch.cat(x)).solution
    return found


@pytest.mark.parametrize("plain", [False, True])
def test_class_means_are_weighed_least_squares(plain: bool) -> None:
    releases = [record_release(300, 2, 4.0, plain=plain), record_release(500, 3, 1.0, plain=plain)]
    head = discriminant.from_records(releases, PUBLIC)
    precisions = []
    for release in releases:
        y = release.payload.take(torch.arange(len(release.payload))).y.double()
        mixed = y[(y > 0).sum(1) == 2]
        share = float(mixed.square().sum(1).mean()) if len(mixed) else 1.0
        sigma = release.encoder.sigma
        precisions.append(1 / (share + (sigma**2 * share / 2 if len(mixed) else sigma**2)))
    means = least_squares(releases, precisions)
    assert torch.allclose(head.weight.T, means - means.mean(0), rtol=1e-6, atol=1e-6)
    probe = SeededStream(9).normal(20, 6)
    scores = probe @ means.T - 0.5 * means.square().sum(1)  # the discriminant as it is usually written
    assert torch.allclose(head(probe).softmax(1), scores.softmax(1), atol=1e-9)


def test_without_noise_it_is_fishers_discriminant() -> None:
    """On raw values, where the covariance is estimated: the textbook formula."""
    data = private(3000, 2)
    release = in_memory(data, Identity(), (), party="p", stream=SeededStream(0))
    head = discriminant.from_records([release])
    x = data.take(torch.arange(3000)).x.double()
    means = torch.stack([x[data.labels == c].mean(0) for c in range(3)])
    left = x - means[data.labels]
    weight = torch.linalg.solve(left.T @ left / 3000, means.T)
    scores = TEST.take(torch.arange(900)).x.double() @ weight - 0.5 * (means * weight.T).sum(1)
    assert float((head(TEST.take(torch.arange(900)).x).argmax(1) == scores.argmax(1)).double().mean()) > 0.98


def test_the_noise_is_taken_out_of_the_covariance() -> None:
    data = private(20_000, 2)
    facts = settled_facts(replace(data, low=0.0, high=1.0), certified=True, public=None, clip=None)
    encoder, _ = Gaussian().calibrate(Mu(20.0), facts)
    release = in_memory(data, encoder, (), party="p", stream=SeededStream(0))
    found = discriminant._equations(release, lambda _: None)
    means = torch.linalg.pinv(found.labels) @ found.cross
    spread, variance = discriminant._within([found], means, 0.05**2)
    assert torch.allclose(spread.diagonal(), torch.full((6,), 0.05**2).double(), rtol=0.25)
    shrunk, dropped = discriminant._shrunk(spread, variance)
    level = float(spread.diagonal().mean())
    assert torch.allclose(shrunk, level * torch.eye(6).double(), atol=0.03 * level) and dropped > 0.97


def raw(n: int, seed: int, mu: float) -> Release:
    """Pixels themselves, mixed."""
    data = replace(private(n, seed), low=0.0, high=1.0)
    encoder, _ = Singular().calibrate(Mu(mu), settled_facts(data, certified=True, public=None, clip=None))
    return in_memory(data, encoder, (), party="p", stream=SeededStream(seed))


def test_in_pixels_too_a_noisy_party_does_not_spoil_a_good_one() -> None:
    """Records vary by 0.05² there: a precision that takes this for 1 would weigh both alike."""
    alone, union = [], []
    for seed in range(6):
        pair = [raw(400, 20 + seed, 60.0), raw(400, 40 + seed, 6.0)]
        alone.append(accuracy(Layers.of(discriminant.from_records(pair[:1]), None)))
        union.append(accuracy(Layers.of(discriminant.from_records(pair), None)))
    assert sum(union) > sum(alone) - 0.02


def test_a_class_that_nobody_has_is_never_named() -> None:
    data = features_of(blobs(300, 2, rare=1))
    release = released(Projected(data, PUBLIC), 8.0, plain=False, stream=SeededStream(0))
    named = Layers.of(discriminant.from_records([release], PUBLIC), PUBLIC).named(TEST)
    assert set(named.tolist()) == {0, 1}


def test_the_union_of_parties_with_different_mu_beats_each_alone() -> None:
    """Means over seeds: of 8 parties' pairs, each with its own noise."""
    alone, union = [], []
    for seed in range(8):
        pair = [record_release(150, 20 + seed, 0.6), record_release(300, 40 + seed, 0.4)]
        found = [
            accuracy(Layers.of(discriminant.from_records(some, PUBLIC), PUBLIC)) for some in (pair[:1], pair[1:], pair)
        ]
        alone.append(max(found[:2]))
        union.append(found[2])
    assert sum(union) > sum(alone)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_protocol_learns(protocol: Protocol) -> None:
    parties, public = [private(400, seed) for seed in (2, 3)], replace(PUBLIC, rounds=(SETTINGS,))
    found = learn(parties, public, protocol, 4.0, stream=SeededStream(0))
    assert found.accuracy(TEST) > 0.9
    assert learn(parties, public, protocol, 1e-4, stream=SeededStream(2)).accuracy(TEST) < 0.75


def test_the_first_steps_means_are_counted_in() -> None:
    """Records alone are too noisy here; with the sums that found their directions they are not."""
    parties = [private(200, seed) for seed in (2, 3, 4)]
    with_, without = [], []
    for seed in range(6):
        found = learn(parties, PUBLIC, "two-step", 0.5, stream=SeededStream(seed))
        with_.append(found.accuracy(TEST))
        bare = replace(found.projection, means=torch.empty(0, found.projection.dimension), precision=torch.empty(0))
        releases = [
            released(Projected(part, bare), 0.5 / 2**0.5, plain=False, stream=SeededStream(100 + seed))
            for part in parties
        ]
        without.append(accuracy(Layers.of(discriminant.from_records(releases, bare), bare)))
    assert sum(with_) > sum(without) + 0.3


def test_earlier_means_that_the_records_contradict_count_less() -> None:
    releases = [record_release(3000, seed, 30.0) for seed in (2, 3)]
    alone = discriminant.from_records(releases, PUBLIC)
    wrong = torch.randn(3, 6, generator=torch.Generator().manual_seed(0)) * 5
    misled = replace(
        PUBLIC, means=alone.weight.T.float() + wrong, precision=torch.full((3,), 1e9), classes=("0", "1", "2")
    )
    found = discriminant.from_records(releases, misled)
    assert float((found.weight - alone.weight).norm()) < 0.2 * float(alone.weight.norm())


# Files


def written(folder: Path, n: int, seed: int, digest: str | None, mu: float = 2.0, party: str = "p") -> Path:
    rows = Projected(private(n, seed), PUBLIC)
    facts = settled_facts(rows, certified=True, public=None, clip=PUBLIC.clip)
    encoder, guarantees = Singular().calibrate(Mu(mu), facts)
    assets = {} if digest is None else {"projection": digest}
    write_release(folder, rows, encoder, guarantees, party=party, stream=SecureStream(), assets=assets)
    return folder


def test_from_releases_to_a_model_and_back(tmp_path: Path) -> None:
    spent = replace(PUBLIC, spent=(Used("1" * 32, "a", 1.5, 1, None), Used("2" * 32, "b", 1.5, 1, None)))
    with pytest.raises(errors.MismatchError, match="no statistics under that name"):
        train_on([written(tmp_path / "c", 60, 9, spent.digest(), party="c")], (spent, spent.digest()))
    digest = spent.digest()
    folders = [written(tmp_path / name, 300, i + 2, digest, party=name) for i, name in enumerate("ab")]
    trained = train_on(folders, (spent, digest))
    assert trained.spent == {"a": 2.5, "b": 2.5} and len(trained.sources) == 2  # √(2² + 1.5²)
    model = write_model(tmp_path / "m", trained, {"data": "t", "rows": 1, "accuracy": 1.0}, {})
    again = read_model(tmp_path / "m")
    assert torch.equal(again.layers.layers[0][0], model.layers.layers[0][0]) and again.classes == trained.classes
    assert again.card["projection"] == digest
    # A record that both parties have was released by both: √(2.5² + 2.5²).
    told = {item["code"]: item.get("figures", {}) for item in again.card["guarantee"]}
    assert set(told) == {"model-mu", "model-records-single", "model-mu-record-at-several", "model-labels-shown"}
    assert told["model-mu"] == {"of": {"code": "model-record-of-one-party"}, "mu": pytest.approx(2.5)}
    assert told["model-mu-record-at-several"] == {"parties": 2, "mu": pytest.approx(math.hypot(2.5, 2.5))}
    assert again.card["mu_with_several_parties"] == pytest.approx(math.hypot(2.5, 2.5))
    assert accuracy(again.layers) == accuracy(trained.layers) > 0.9


def test_a_record_at_several_parties_costs_what_each_partys_own_noise_permits(tmp_path: Path) -> None:
    """Noise that is shared covers a record once, and the record is in the sum several times: never √Σμ²."""
    digest = PUBLIC.digest()
    folders = [written(tmp_path / name, 60, i, digest, mu=1.0 + i, party=name) for i, name in enumerate("ab")]
    trained = train_on(folders, (PUBLIC, digest))
    assert trained.together == pytest.approx(math.hypot(1.0, 2.0))
    alone = {"a": 1.5, "b": 2.5}
    assert replace(trained, honest=3, alone=alone).together == pytest.approx(math.hypot(1.5, 2.5))
    assert replace(trained, honest=3).together == pytest.approx(math.sqrt(3) * math.hypot(1.0, 2.0))
    assert replace(trained, honest=3, alone=alone, spent={"a": 1.0, "b": None}).together is None


def test_a_seeded_release_leaves_nothing_promised(tmp_path: Path) -> None:
    rows = Projected(private(100, 2), PUBLIC)
    encoder, guarantees = Singular().calibrate(
        Mu(1.0), settled_facts(rows, certified=True, public=None, clip=PUBLIC.clip)
    )
    digest = PUBLIC.digest()
    write_release(
        tmp_path / "r", rows, encoder, guarantees, party="p", stream=SeededStream(0), assets={"projection": digest}
    )
    trained = train_on([tmp_path / "r"], (PUBLIC, digest))
    assert trained.spent == {"p": None}
    assert write_model(tmp_path / "m", trained, None, {}).card["guarantee"] == [{"code": "model-promises-nothing"}]


def test_what_does_not_belong_together_is_refused(tmp_path: Path) -> None:
    digest = PUBLIC.digest()
    mine = written(tmp_path / "mine", 60, 2, digest)
    with pytest.raises(errors.MismatchError, match="not through none"):
        train_on([mine])
    with pytest.raises(errors.MismatchError, match="not through cccccccc"):
        train_on([mine], (PUBLIC, "c" * 64))
    with pytest.raises(errors.MismatchError, match="went through the projection none"):
        train_on([written(tmp_path / "bare", 60, 3, None)], (PUBLIC, digest))
    with pytest.raises(errors.MismatchError, match="twice"):
        train_on([mine, mine], (PUBLIC, digest))
    with pytest.raises(errors.ArgumentError, match="no release"):
        train_on([])
    rows = Projected(private(60, 4), PUBLIC)
    write_statistics(tmp_path / "s", rows, digest, 1.0, party="q", stream=SecureStream())
    with pytest.raises(errors.MismatchError, match="not on both"):
        train_on([mine, tmp_path / "s"], (PUBLIC, digest))
    with pytest.raises(errors.ArgumentError, match="--projection"):
        train_on([tmp_path / "s"])
    other = blobs(60, 5, classes=4)
    rows = Projected(features_of(other), PUBLIC)
    encoder, guarantees = Singular().calibrate(
        Mu(1.0), settled_facts(rows, certified=True, public=None, clip=PUBLIC.clip)
    )
    write_release(
        tmp_path / "four", rows, encoder, guarantees, party="r", stream=SecureStream(), assets={"projection": digest}
    )
    with pytest.raises(errors.MismatchError, match="same classes"):
        train_on([mine, tmp_path / "four"], (PUBLIC, digest))
    with pytest.raises(errors.MismatchError, match="classes of the statistics"):
        train_on([mine], (replace(PUBLIC, classes=("2", "1", "0")), digest))
    with pytest.raises(errors.MismatchError, match="clipped to"):
        train_on([mine], (replace(PUBLIC, clip=PUBLIC.clip / 2), digest))
    with pytest.raises(errors.MismatchError, match="rows of"):
        train_on([mine], (PUBLIC.first(4), digest))


def test_the_papers_classifier_from_releases_to_a_model_and_back(tmp_path: Path) -> None:
    """Through a projection, which is multiplied into its first layer; μ and labels as of any other head."""
    digest = PUBLIC.digest()
    folders = [written(tmp_path / name, 300, i + 2, digest, party=name, mu=20.0) for i, name in enumerate("ab")]
    known = (PUBLIC, digest)
    recipe = TrainingRecipe(epochs=10, batch=64)
    trained = train_mlp(opened(folders, known), recipe=recipe)
    assert trained.spent == {"a": 20.0, "b": 20.0} and trained.how["head"] == "mlp"
    write_model(tmp_path / "m", trained, None, {"by": "test"})
    again = read_model(tmp_path / "m")
    assert [tuple(weight.shape) for weight, _ in again.layers.layers] == [(6, 1024), (1024, 512), (512, 3)]
    assert accuracy(again.layers) == accuracy(trained.layers) > 0.9
    assert again.card["how"] == {
        "head": "mlp",
        "epochs": 10,
        "batch": 64,
        "optimiser": "adamw",
        "learning_rate": 1e-3,
        "seed": 0,
        "rows": 600,
        "device": "cpu",
        "processes": 1,
        "by": "test",
    }
    inside = fit_mlp(Released(opened(folders, known).releases, torch.device("cpu")), recipe)
    x = TEST.take(torch.arange(50)).x
    assert torch.allclose(inside((x - PUBLIC.mean) @ PUBLIC.matrix), again.layers(x), atol=1e-3)
    tensors = load((tmp_path / "m" / "model.safetensors").read_bytes())
    shapes: list[dict[str, Tensor]] = [
        {},
        {"0.weight": torch.zeros(6, 3)},
        {**tensors, "1.weight": torch.zeros(3)},
        {**tensors, "1.weight": torch.zeros(1024, 513)},
        {**tensors, "1.bias": tensors["1.bias"] * torch.nan},
        {**tensors, "1.bias": tensors["1.bias"] - torch.inf},
        {**tensors, "7.bias": torch.zeros(3), "7.weight": torch.zeros(3, 3)},
    ]
    for wrong in shapes:
        (tmp_path / "m" / "model.safetensors").write_bytes(save(wrong))
        with pytest.raises(errors.DataFormatError):
            read_model(tmp_path / "m")


def test_what_is_promised_in_part_is_not_promised(tmp_path: Path) -> None:
    def one(name: str, party: str, seed: int, stream: Stream) -> Path:
        data = blobs(60, seed)
        encoder, guarantees = Singular().calibrate(Mu(1.0), settled_facts(data, certified=True, public=None, clip=None))
        write_release(tmp_path / name, data, encoder, guarantees, party=party, stream=stream, label_epsilon=1.0)
        return tmp_path / name

    good, bare = one("good", "a", 2, SecureStream()), one("bare", "a", 3, SeededStream(0))
    other = one("other", "b", 4, SecureStream())
    trained = train_on([good, bare])
    assert trained.spent == {"a": None} and trained.label_epsilon == {"a": None}
    trained = train_on([bare, other])
    assert trained.spent == {"a": None, "b": pytest.approx(1.0)}
    assert trained.label_epsilon["a"] is None and promises(trained) == [note("model-promises-nothing")]


def test_features_of_other_weights_or_shapes_do_not_belong_together() -> None:
    one = in_memory(blobs(20, 1), Identity(), (), party="a", stream=SeededStream(1))
    two = one.with_(id="1" * 32)
    known = Extractor(("resnet18",))
    first, second = (r.with_(extractor=known, assets={"features": c * 64}) for r, c in ((one, "a"), (two, "b")))
    with pytest.raises(errors.MismatchError, match="or of other weights"):
        _check_together([first, second], None)
    with pytest.raises(errors.MismatchError, match="of other weights"):
        _check_together([first, second.with_(assets=first.assets, extractor=Extractor(("resnet34",)))], None)
    with pytest.raises(errors.MismatchError, match="of the same shape"):
        _check_together([one, two.with_(shape=(1, 3, 2))], None)
    _check_together([one, two], None)


def test_layers_that_are_not_finite_are_no_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    layers = Classifier.layers

    def broken(self: Classifier) -> Layers:
        found = layers(self)
        found.layers[0][0][0, 0] = torch.nan
        return found

    monkeypatch.setattr(Classifier, "layers", broken)
    write_release(tmp_path / "r", blobs(60, 1), Identity(), (), party="a", stream=SeededStream(1))
    with pytest.raises(errors.TrainingError, match="not finite"):
        train_mlp(opened([tmp_path / "r"]), recipe=TrainingRecipe(epochs=1, batch=16))


def test_a_model_of_one_layer_is_checked_as_any_other(tmp_path: Path) -> None:
    write_release(tmp_path / "r", blobs(60, 1), Identity(), (), party="a", stream=SeededStream(1))
    write_model(tmp_path / "m", train_on([tmp_path / "r"]), None, {})
    path, card = tmp_path / "m" / "model.safetensors", tmp_path / "m" / "card.json"
    good = load(path.read_bytes())
    wrong: list[dict[str, Tensor]] = [
        {"0.bias": good["0.bias"] + torch.inf},
        {"0.weight": good["0.weight"] * torch.nan},
        {"more": torch.zeros(1)},
        {"0.weight": torch.tensor(1.0)},
    ]
    for change in wrong:
        path.write_bytes(save({**good, **change}))
        with pytest.raises(errors.DataFormatError):
            read_model(tmp_path / "m")
    path.write_bytes(save(good))
    read_model(tmp_path / "m")
    card.write_text(json.dumps({**json.loads(card.read_text()), "weights": "\x1b[2J"}))
    with pytest.raises(errors.DataFormatError):
        read_model(tmp_path / "m")


def test_rows_too_wide_for_a_covariance_are_refused() -> None:
    wide = in_memory(
        from_tensors(SeededStream(1).uniform(6, 1, 8193, 1).float(), torch.arange(6) % 2),
        Identity(),
        (),
        party="a",
        stream=SeededStream(1),
    )
    with pytest.raises(errors.ArgumentError, match="8,193"):
        discriminant.from_records([wide])


def test_the_papers_classifier_never_names_a_class_that_nobody_has(tmp_path: Path) -> None:
    data = blobs(60, 1, classes=4, rare=1)
    write_release(tmp_path / "r", data, Identity(), (), party="a", stream=SeededStream(1))
    trained = train_mlp(opened([tmp_path / "r"]), recipe=TrainingRecipe(epochs=1, batch=16))
    assert trained.layers.layers[-1][1].isfinite().tolist() == [True, True, True, False]
    assert 3 not in trained.layers.named(TEST)


def test_a_damaged_model_or_one_from_the_future_is_refused(tmp_path: Path) -> None:
    digest = PUBLIC.digest()
    write_model(tmp_path / "m", train_on([written(tmp_path / "r", 60, 2, digest)], (PUBLIC, digest)), None, {})
    card = tmp_path / "m" / "card.json"
    whole = json.loads(card.read_text())
    card.write_text(json.dumps({**whole, "version": 1}))
    with pytest.raises(errors.VersionError):
        read_model(tmp_path / "m")
    changes: list[Any] = [{**whole, "classes": ["one"]}, {**whole, "extractor": {}}, [], {**whole, "format": "x"}]
    for changed in changes:
        card.write_text(json.dumps(changed))
        with pytest.raises(errors.DataFormatError):
            read_model(tmp_path / "m")
    card.write_text(json.dumps(whole))
    (tmp_path / "m" / "model.safetensors").write_bytes(b"no")
    with pytest.raises(errors.DataFormatError):
        read_model(tmp_path / "m")


# Labels that were randomised


def said(data: Images, epsilon: float | None, seed: int = 0, **changed: Any) -> Release:
    projected = Projected(features_of(data), PUBLIC)
    made = in_memory(projected, Identity(), (), party="p", stream=SeededStream(seed), label_epsilon=epsilon)
    return made.with_(**changed)


def means_of(head: discriminant.Discriminant) -> Tensor:
    return head.weight.T


def test_means_from_randomised_labels_are_those_of_the_classes() -> None:
    """With many records they come out at full length; a head that believes the labels has them much too short."""
    data = blobs(60_000, 5, rare=1)  # of three classes one is missing: shares are estimated too
    clear = means_of(discriminant.from_records([said(data, None)], PUBLIC))
    fair = means_of(discriminant.from_records([said(data, 1.0)], PUBLIC))
    believed = means_of(discriminant.from_records([said(data, 1.0, label_epsilon=None)], PUBLIC))
    whole = clear[1] - clear[0]
    assert float((fair[1] - fair[0] - whole).norm() / whole.norm()) < 0.1
    assert float((believed[1] - believed[0]).norm() / whole.norm()) < 0.5


def test_digits_at_label_epsilon_one_are_learned_better_by_a_head_that_knows_it() -> None:
    """On average over five draws, by records in the clear, in a public projection."""
    train, test = open_data("digits:train"), features_of(open_data("digits:test"))
    index = torch.arange(len(train))
    public = fit(features_of(train.part(index[index % 4 == 0])), WEIGHTS)
    rows = Projected(features_of(train.part(index[index % 4 != 0])), public)

    def right(head: discriminant.Discriminant) -> float:
        return float(Layers.of(head, public).named(test).eq(test.labels).double().mean())

    fair, believed = 0.0, 0.0
    for seed in range(5):
        release = in_memory(rows, Identity(), (), party="p", stream=SeededStream(seed), label_epsilon=1.0)
        fair += right(discriminant.from_records([release], public)) / 5
        believed += right(discriminant.from_records([release.with_(label_epsilon=None)], public)) / 5
    assert fair > believed + 0.01 and fair > 0.55


def test_nothing_changes_for_labels_that_are_shown() -> None:
    """A huge ε is no randomising at all."""
    clear = discriminant.from_records([said(blobs(300, 5), None)], PUBLIC)
    sure = discriminant.from_records([said(blobs(300, 5), 30.0)], PUBLIC)
    assert torch.allclose(clear.weight, sure.weight, atol=1e-2)


@pytest.mark.parametrize(
    ("first", "second", "per"), [(True, True, "unit"), (False, True, "record"), (True, False, "record")]
)
def test_a_model_promises_units_only_what_all_of_it_promised_them(
    tmp_path: Path, first: bool, second: bool, per: str
) -> None:
    """Sums that were not made for persons promise a person nothing like what they promise a record."""
    data = blobs(60, 2)
    persons = replace(data, units=tuple(str(i % 20) for i in range(60)))
    part, sums = tmp_path / "records", tmp_path / "sums"
    rows = Projected(features_of(persons if first else data), PUBLIC)
    write_statistics(sums, rows, PUBLIC.digest(), 1.0, party="p", stream=SecureStream())
    narrow = directions([read_release(sums)], PUBLIC, PUBLIC.digest())
    records = Projected(features_of(persons if second else data), narrow)
    facts = settled_facts(records, certified=True, public=None, clip=narrow.clip)
    encoder, guarantees = Singular().calibrate(Mu(1.0), facts)
    digest = {"projection": narrow.digest()}
    write_release(
        part, records, encoder, guarantees, party="p", stream=SecureStream(), assets=digest, label_epsilon=1.0
    )
    mu, *more = promises(train_on([part], (narrow, narrow.digest())))  # no more than these: there is one party
    single = {"unit": [], "record": ["model-units-of-some" if second else "model-records-single"]}[per]
    assert [told.code for told in more[: len(single)]] == single
    labels = more[len(single) :]
    assert mu.figures == {"of": note(f"model-{per}"), "mu": pytest.approx(math.sqrt(2))}
    randomised = note("model-labels-randomised", of=note("model-record"), epsilon=1.0)
    assert labels == [randomised, note("model-labels-partly-covered")]


def test_a_person_at_three_hospitals_is_told_what_all_of_them_cost(tmp_path: Path) -> None:
    """The same images under three names: what each promised alone does not hold of them."""
    persons = replace(blobs(60, 2), units=tuple(str(i % 20) for i in range(60)), declared=True)
    facts = settled_facts(persons, certified=True, public=None, clip=None)
    encoder, guarantees = Singular().calibrate(Mu(1.0), facts)
    folders = [tmp_path / name for name in "abc"]
    for folder in folders:
        write_release(folder, persons, encoder, guarantees, party=folder.name, stream=SecureStream(), label_epsilon=0.5)
    trained = train_on(folders)
    assert promises(trained) == [
        note("model-mu", of=note("model-unit-of-one-party"), mu=pytest.approx(1.0)),
        note("model-mu-unit-at-several", parties=3, mu=pytest.approx(math.sqrt(3))),
        note("model-labels-randomised", of=note("model-record-of-one-party"), epsilon=0.5),
        note("model-labels-at-several", epsilon=1.5),
    ]
