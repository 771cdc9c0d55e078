"""The audit of an update: what it refuses, measures and says, and its pages. It never calls one safe."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any, ClassVar

import jsonschema
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import mixveil
from mixveil.attacks.catalogue import ATTACKS
from mixveil.attacks.shared.updates import UpdateAttack
from mixveil.audit import bare_updates, updates_verdict
from mixveil.audit.bare_updates import fails_on_bare_updates, some_rows, twin
from mixveil.audit.figures import AttackRun
from mixveil.audit.found import Audit
from mixveil.audit.metrics import counts
from mixveil.audit.metrics.order import in_order
from mixveil.audit.updates import audit, check_truth
from mixveil.core.device_random import DeviceStream
from mixveil.core.errors import ArgumentError, MismatchError, WrongTruthError
from mixveil.core.first_weights import started
from mixveil.core.local_training import AugMix, LocalTraining
from mixveil.core.randomness import SeededStream, Stream
from mixveil.core.types import AttackKind, Guess, Release, View
from mixveil.core.wording.notes import Note, note
from mixveil.core.wording.sentences import WORDS
from mixveil.data.images import Images, from_tensors
from mixveil.data.similarity import mse
from mixveil.features.stacked.party import Defence
from mixveil.learn.local_update import LocalUpdate, linear
from mixveil.releases.kinds.updates import UpdateSettings
from mixveil.releases.notes import trained
from mixveil.releases.updates import in_memory, settings_of
from mixveil.report.audit_page import render, to_json, write_audit
from mixveil.report.beside_page import write_beside
from tests.audited import digits
from tests.browser import HOW
from tests.notes import codes, holds, shows

ROWS = digits(0, 4)  # 0, 1, 2, 3
CPU = torch.device("cpu")


def network(seed: int = 0) -> nn.Sequential:
    return started(linear((1, 8, 8), 10), DeviceStream(SeededStream(seed)), CPU)


def job(rows: Images = ROWS, *, net: nn.Sequential | None = None, steps: int = 1, **more: Any) -> LocalUpdate:
    net, defence = net or network(), more.pop("defence", Defence())
    training = LocalTraining(len(rows), len(rows), (0.1,) * steps, **more)
    return LocalUpdate(net, {name: value.detach() for name, value in net.named_parameters()}, training, defence)


def sent(rows: Images = ROWS, seed: int = 3, **more: Any) -> Release:
    made = job(rows, **more)
    after = made.after(rows, SeededStream(seed))
    return in_memory(rows, made.before, after, method=made.method, training=made.training, net=made.net)


class Solved(UpdateAttack):
    """Solves for the rows of one linear layer: the gradient of class c is Σ (p − y) x over rows, and p follows from
    the rows themselves. Its guesses come in another order."""

    name: ClassVar[str] = "solved"

    def __call__(self, view: View, *, stream: Stream) -> Guess:
        target = self.target(view, CPU)
        assert target.labels is not None
        slope, y = target.gradient["scores.weight"][0].double(), torch.eye(10).double()[target.labels[0]]
        weight, bias = (target.before[f"scores.{part}"][0].double() for part in ("weight", "bias"))
        x = torch.full((target.rows, 64), 0.5).double()
        for _ in range(30):
            share = (torch.softmax(x @ weight.T + bias, 1) - y) / len(y)
            x = (torch.linalg.pinv(share.T) @ slope).clamp(0, 1)
        return Guess(images=x.view(-1, *target.shape).flip(0).float())


class Grey(UpdateAttack):
    """Looks at nothing."""

    name: ClassVar[str] = "grey"

    def __call__(self, view: View, *, stream: Stream) -> Guess:
        target = self.target(view, CPU)
        return Guess(images=torch.full((target.rows, *target.shape), 0.4))


class Counted(UpdateAttack):
    """Finds classes by the bias: its gradient is negative where there are rows of a class. It must not be told any."""

    name: ClassVar[str] = "counted"
    kind: ClassVar[AttackKind] = "labels"
    most_rows: ClassVar[int | None] = None

    def __call__(self, view: View, *, stream: Stream) -> Guess:
        assert view.labels is None
        target = self.target(view, CPU)
        return Guess(counts=(target.gradient["scores.bias"][0] < 0).long())


@pytest.fixture(autouse=True)
def toys(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The toys alone."""
    toys = (Solved, Grey, Counted)
    for toy in toys:
        monkeypatch.setitem(WORDS, toy.threat, "A toy.")
    with ATTACKS.including(*toys):
        monkeypatch.setattr("mixveil.audit.auditing.known_attacks", lambda: {toy.name: toy for toy in toys})
        yield


def audited(release: Release | None = None, rows: Images = ROWS, names: Sequence[str] | None = None) -> Audit:
    return audit([release or sent(rows)], rows, names=names, stream=SeededStream(0))


def statuses(found: Audit) -> Mapping[str, str]:
    return {run.attack: run.status for run in found.attacks}


# What is measured


def test_rows_are_recovered_in_whatever_order_they_come_and_said_to_be() -> None:
    found, truth = audited(), ROWS.take(torch.arange(4)).x
    figures = {figure.metric: figure for figure in found.figures if figure.attack == "solved"}
    assert figures.keys() == {"mse", "snr-db", "psnr-db", "ssim", "cosine"}
    assert figures["mse"].mean < 1e-4 and figures["ssim"].mean > 0.99
    assert torch.allclose(found.images["solved"] / 255, truth, atol=0.05)
    assert figures["mse"].know_nothing == pytest.approx(float((truth - 0.5).square().mean()))
    assert holds(found.verdict, "verdict-images", attack="solved") and "amount-a-great-deal" in codes(found.verdict)
    assert holds(found.warnings, "images-reconstructed", attack="solved")
    assert all(figure.ceiling is None and not figure.beaten for figure in found.figures)


def test_of_one_row_no_figure_is_taken_without_its_mean() -> None:
    """Nothing is left of one record without its own mean: its SNR would be -999 dB where all of it is recovered."""
    found = audited(sent(digits(0, 1)), digits(0, 1), ["solved"])
    assert {figure.metric for figure in found.figures} == {"mse", "psnr-db", "ssim"}
    assert found.figures[0].mean < 1e-4


def test_the_verdict_says_what_was_attacked_and_what_knowing_nothing_is() -> None:
    found = audited(names=["solved", "grey"])
    assert holds(found.verdict, "verdict-update", method="fedavg")
    assert holds(trained(settings_of(sent())), "update-trained", layers=1, values=650, rows=4, steps=1, batch=4)
    assert "verdict-updates-grey" in codes(found.verdict)
    known = audit([sent()], ROWS, public=digits(10, 30), names=["solved"], stream=SeededStream(0))
    assert "verdict-updates-grey" not in codes(known.verdict)
    assert trained(settings_of(sent().with_(training=None))) == []


def test_that_an_attack_on_fed_augmix_does_not_run_without_it_leaves_nothing_open() -> None:
    run = AttackRun("one", "reconstruction", "record", False, "threat-invgrad", "skipped", note("attack-needs-views"))
    assert not updates_verdict._not_tried([run])
    other = replace(run, attack="two", why=note("attack-needs-layers"))
    assert holds(updates_verdict._not_tried([run, other]), "verdict-attacks-not-run", attacks="two")


def test_labels_are_counted_by_attackers_who_are_not_told_them() -> None:
    found = audited(sent(digits(0, 6)), digits(0, 6), ["counted"])
    (figure,) = found.figures
    assert (figure.metric, figure.mean) == ("labels-found", 1.0) and figure.know_nothing == pytest.approx(0.6)
    assert holds(found.verdict, "verdict-labels-found", attack="counted", mean=1.0)
    assert holds(found.warnings, "labels-read-off", attack="counted")
    double = digits(0, 1).part(torch.tensor([0, 0, 0, 0]))
    (figure,) = audited(sent(double), double, ["counted"]).figures
    assert figure.mean == 0.25 and figure.know_nothing == pytest.approx(0.1)  # it names one row of four


def test_the_best_assignment_is_the_best_of_all_orders() -> None:
    stream = SeededStream(1)
    truth, guess = stream.uniform(5, 2, 3).float(), stream.uniform(5, 2, 3).float()
    orders = [guess[list(order)] for order in itertools.permutations(range(5))]
    best = min(orders, key=lambda images: float((images - truth).square().sum()))
    assert torch.equal(in_order(truth, guess, 0.5), best)
    few = in_order(truth, truth[[3, 1]], 0.5)
    assert torch.equal(few[[1, 3]], truth[[1, 3]]) and bool((few[[0, 2, 4]] == 0.5).all())
    with pytest.raises(ArgumentError, match="shape"):
        in_order(truth, guess[:, :1], 0.5)
    with pytest.raises(ArgumentError, match="finite"):
        in_order(truth, guess * torch.nan, 0.5)


def test_guessing_classes_without_looking_takes_as_many_of_each() -> None:
    for truth in ([4, 0, 0], [2, 1, 1], [1, 1, 0]):
        there, rows, classes = torch.tensor(truth), sum(truth), len(truth)
        assert counts.of_guessing(there) == pytest.approx(sum(min(n, rows / classes) for n in truth))
    assert counts.found(torch.tensor([2, 0, 1]), torch.tensor([1, 2, -1])) == 1


# An attack that fails without a defence shows nothing


def test_an_attack_that_fails_without_a_defence_is_broken_and_the_verdict_refuses() -> None:
    found = audited(names=["grey"])
    assert statuses(found) == {"grey": "broken"} and not found.figures and not found.images
    assert holds(found.warnings, "attack-broken", attack="grey") and "bare-update-left" in codes(found.warnings)
    assert holds(found.verdict, "verdict-fails-undefended", attacks="grey")
    assert "verdict-nothing-said" in codes(found.verdict) and "verdict-updates-little" not in codes(found.verdict)


def test_where_a_defence_holds_a_working_attack_off_that_is_measured_and_not_called_safe() -> None:
    defended = sent(defence=Defence(clip=0.01, noise=50.0))
    found = audited(defended, names=["solved", "grey"])
    assert statuses(found) == {"grey": "broken", "solved": "ran"} and found.best("mse")[1] < 0.2
    assert holds(found.verdict, "verdict-updates-little", attacks="solved")
    assert holds(found.verdict, "verdict-fails-undefended", attacks="grey")
    assert found.verdict[0].code == "updates-not-promised" and "verdict-nothing-said" not in codes(found.verdict)
    assert "no-guarantee-stated" in codes(found.warnings)
    assert codes([*found.verdict, *found.warnings]) <= WORDS.keys()
    assert holds(found.verdict, "verdict-warnings-all", count=len(found.warnings))


@pytest.mark.parametrize("code", ["update-record-read", "update-pictures-alike"])
def test_what_the_mean_error_hides_is_not_called_little(code: str) -> None:
    rows = digits(0, 8)
    truth = rows.take(torch.arange(8)).x
    one = torch.full_like(truth, 0.5)
    one[5] = truth[5]

    class Some(UpdateAttack):
        """It works without a defence; here it gets one record, or all of them too bright."""

        name: ClassVar[str] = "some"
        threat: ClassVar[str] = Grey.threat

        def __call__(self, view: View, *, stream: Stream) -> Guess:
            here = one if code == "update-record-read" else 0.45 * truth + 0.55
            return Guess(images=truth[:4] if self.target(view, CPU).rows == 4 else here)

    with ATTACKS.including(Some), pytest.MonkeyPatch.context() as patch:
        patch.setattr("mixveil.audit.auditing.known_attacks", lambda: {"some": Some})
        found = audited(sent(rows), rows, ["some"])
    assert found.best("mse")[1] < 0.2 and "verdict-updates-little" not in codes(found.verdict)
    assert holds(found.warnings, code, attack="some") and holds(found.verdict, code, attack="some")


def test_the_twin_is_one_plain_step_from_the_same_weights_on_a_few_of_the_rows() -> None:
    rows = digits(0, 8).part(torch.tensor([0, 0, 1, 2, 3, 4]))
    release = sent(rows, steps=3, momentum=0.5, proximal=1.0, defence=Defence(clip=0.1, noise=1.0, prune=0.5))
    chosen = some_rows(rows)
    assert chosen.tolist() == [0, 2, 3, 4]  # the first of each of four classes
    bare = twin(release, rows.part(chosen))
    net = network()
    x, y = rows.take(chosen)
    nn.functional.cross_entropy(net(x), y.argmax(1)).backward()  # type: ignore[no-untyped-call]
    for name, value in net.named_parameters():
        assert value.grad is not None
        assert torch.equal(bare.payload[f"before.{name}"], release.payload[f"before.{name}"])
        assert torch.allclose(bare.payload[f"after.{name}"], value.detach() - 0.1 * value.grad, atol=1e-6)


def images_of(side: int) -> Images:
    x = SeededStream(5).uniform(2, 1, side, side).float()
    return from_tensors(x, torch.tensor([0, 1]), classes=2)


@pytest.mark.parametrize(("side", "code"), [(8, "bare-update-left"), (16, "bare-update-unlike")])
def test_the_bar_is_by_the_size_of_images(side: int, code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, net = images_of(side), linear((1, side, side), 2)
    release, truth = sent(rows, net=net), rows.take(torch.arange(2)).x

    class Near(UpdateAttack):
        name: ClassVar[str] = "near"
        off: ClassVar[float] = 0.0

        def __call__(self, view: View, *, stream: Stream) -> Guess:
            return Guess(images=(1 - self.off) * truth + self.off * 0.5)

    view = View((release,), labels=rows.labels)
    for off, passes in ((0.0, True), (0.3, True), (0.9, False)):
        monkeypatch.setattr(Near, "off", off)
        why = fails_on_bare_updates(Near(), view, rows, SeededStream(0))
        assert (why is None) is passes and (why is None or why.code == code)
    for name in ("MOST_LEFT", "MOST_LEFT_OF_IMAGES", "MOST_LEFT_OF_MEAN"):
        monkeypatch.setattr(bare_updates, name, 2.0)
    monkeypatch.setattr(bare_updates, "LEAST_SSIM", -1.0)
    assert fails_on_bare_updates(Near(), view, rows, SeededStream(0)) is None


@pytest.mark.parametrize("side", [8, 28])
@pytest.mark.parametrize("alike", [False, True])
def test_one_picture_for_all_rows_is_no_picture_of_any(side: int, alike: bool) -> None:
    """A black one of rows that are mostly black, and the mean of rows that are much alike."""
    x = torch.zeros(4, 1, side, side)
    if alike:
        x += SeededStream(2).uniform(1, side, side).float().round()
    for row in range(4):
        x[row, 0, row : row + 2, 2:4] = 1
    rows = from_tensors(x, torch.arange(4), classes=4)

    class Same(UpdateAttack):
        name: ClassVar[str] = "same"
        found: ClassVar[torch.Tensor] = x.mean(0).expand_as(x) if alike else torch.zeros_like(x)

        def __call__(self, view: View, *, stream: Stream) -> Guess:
            return Guess(images=self.found)

    view = View((sent(rows, net=linear((1, side, side), 4)),), labels=rows.labels)
    why = fails_on_bare_updates(Same(), view, rows, SeededStream(0))
    assert why is not None and why.code == "bare-update-left"
    Same.found = x
    assert fails_on_bare_updates(Same(), view, rows, SeededStream(0)) is None


def test_a_rate_that_no_training_has_does_not_stop_the_audit() -> None:
    release = sent(defence=Defence(prune=0.5))
    training = LocalTraining(4, 4, (1e300,))
    found = audited(release.with_(training=training), names=["solved"])
    assert statuses(found) == {"solved": "ran"}


class Adaptive(Solved):
    """Attacks Fed-AugMix alone."""

    name: ClassVar[str] = "adaptive"

    def cannot(self, view: View) -> Note | None:
        settings = view.releases[0].envelope.settings
        assert isinstance(settings, UpdateSettings) and settings.training is not None
        return super().cannot(view) or (note("attack-needs-training") if settings.training.augmix is None else None)


def test_an_attack_on_fed_augmix_alone_is_tried_where_views_weigh_next_to_nothing() -> None:
    release = sent(augmix=AugMix(4.0))
    view = View((release,), labels=ROWS.labels)
    assert fails_on_bare_updates(Adaptive(), view, ROWS, SeededStream(0)) is None
    why = fails_on_bare_updates(Adaptive(), View((sent(),), labels=ROWS.labels), ROWS, SeededStream(0))
    assert why is not None and why.code == "attack-needs-training"


# What is refused


def test_other_data_are_refused_where_the_update_can_be_computed_again() -> None:
    release = sent(steps=2, momentum=0.9, proximal=0.1)
    assert check_truth([release], ROWS) == []
    with pytest.raises(WrongTruthError, match="other weights"):
        check_truth([release], digits(0, 5).part(torch.tensor([0, 1, 2, 4])))
    with pytest.raises(WrongTruthError, match="other weights"):
        check_truth([release], digits(4, 8))
    with pytest.raises(WrongTruthError, match="4 rows"):
        check_truth([release], digits(0, 5))
    with pytest.raises(ArgumentError, match="one by one"):
        check_truth([release, release], ROWS)
    off = {name: value + (1e-5 if name.startswith("after") else 0) for name, value in release.payload.items()}
    assert check_truth([release.with_(payload=off)], ROWS) == []


@pytest.mark.parametrize(
    "more",
    [
        {"augmix": AugMix(4.0)},
        {"defence": Defence(clip=1.0)},
        {"defence": Defence(clip=1.0, noise=1.0)},
        {"defence": Defence(prune=0.5)},
        {"shuffled": True},
    ],
)
def test_what_was_drawn_or_changed_is_said_to_be_unchecked(more: dict[str, Any]) -> None:
    (told,) = check_truth([sent(**more)], digits(4, 8))
    assert told.code == "update-not-recomputed"


@pytest.mark.parametrize("rate", [0.0, 1e-7])
def test_weights_that_hardly_moved_do_not_show_whose_they_are(rate: float) -> None:
    made = job()
    still = replace(made, training=LocalTraining(4, 4, (rate,)))
    given: dict[str, Any] = {"method": "fedavg", "training": still.training, "net": made.net}
    for rows in (ROWS, digits(4, 8)):
        (told,) = check_truth([in_memory(ROWS, still.before, still.after(ROWS), **given)], rows)
        assert told.code == "update-not-recomputed"


def test_a_range_that_the_rows_do_not_have_is_refused() -> None:
    """Attackers would look for rows in it, and find little."""
    for lied in ({"low": 0.4, "high": 0.6}, {"low": -1e308, "high": 1e308}):
        with pytest.raises(WrongTruthError, match="values are from"):
            check_truth([sent().with_(**lied)], ROWS)


def test_an_update_on_features_is_not_said_to_be_of_other_data() -> None:
    release = sent().with_(training=None, layers=None, shape=(64,), low=-3.0)
    with pytest.raises(MismatchError, match="trained on features of 64 values"):
        check_truth([release], ROWS)


def test_an_update_of_many_rows_is_not_inverted_and_that_is_said() -> None:
    many = digits(0, 12)
    found = audited(sent(many), many)
    assert statuses(found) == {"solved": "skipped", "grey": "skipped", "counted": "ran"}
    assert {"verdict-nothing-said", "update-of-many-rows"} <= codes(found.verdict)


def test_an_update_that_does_not_say_how_it_was_trained() -> None:
    release = sent()
    silent = release.with_(training=None, layers=None)
    found = audited(silent)
    assert {*statuses(found).values()} == {"skipped"} and "update-not-recomputed" in codes(found.warnings)
    assert {"verdict-nothing-said", "attack-needs-training"} <= codes(found.verdict)


# What is shown


def plain(found: Audit) -> dict[str, Any]:
    whole: dict[str, Any] = json.loads(json.dumps(to_json(found, HOW)))
    jsonschema.validate(whole, json.loads((files("mixveil.report") / "audit.schema.json").read_text()))
    return whole


def test_the_page_shows_originals_and_guesses_and_speaks_of_updates(tmp_path: Path) -> None:
    found = audited()
    assert plain(found)["kind"] == "updates"
    write_audit(tmp_path / "a", found, HOW)
    page = (tmp_path / "a" / "report.html").read_text()
    assert page.count("data:image/png") == 2 * 4 and 'class="scroll few"' in page
    for part in ("leaves", "stays", "released", "figures", "unprotected", "labels"):
        assert shows(page, f"page-{part}-updates")
    pictures = load_file(tmp_path / "a" / "pictures.safetensors")
    assert {*pictures} == {"original", "solved", "index"}
    assert float(mse(pictures["original"], pictures["solved"]).max()) < 1e-3
    (tmp_path / "a" / "report.html").unlink()
    assert render(tmp_path / "a").read_text() == page


def test_updates_stand_beside_releases_of_other_kinds(tmp_path: Path) -> None:
    write_audit(tmp_path / "update", audited(), HOW)
    with pytest.MonkeyPatch.context() as patch:
        patch.undo()
        patch.setattr("mixveil.audit.auditing.known_attacks", mixveil.attacks)
        mixveil.encode(digits(0, 40), tmp_path / "r", mu=1.0)
        found = mixveil.audit([tmp_path / "r"], digits(0, 40), attacks=["lmmse-row"])
    write_audit(tmp_path / "rows", found.audit, HOW)
    page = write_beside([tmp_path / "update", tmp_path / "rows"], tmp_path / "both.html").read_text()
    assert shows(page, "page-released-updates") and shows(page, "page-released-records") and "solved" in page


def test_the_kinds_are_audited_apart(tmp_path: Path) -> None:
    mixveil.update(digits(0, 4), tmp_path / "u")
    with pytest.raises(ArgumentError, match="client: this is for releases of representations"):
        mixveil.audit([tmp_path / "u"], digits(0, 4), client=tmp_path)
    with pytest.raises(ArgumentError, match="'lmmse'"):
        mixveil.audit([tmp_path / "u"], digits(0, 4), attacks=["lmmse"])
    mixveil.encode(digits(0, 40), tmp_path / "r", mu=1.0)
    with pytest.raises(MismatchError, match="records and updates"):
        mixveil.audit([tmp_path / "u", tmp_path / "r"], digits(0, 4))
