"""Attacks on updates that need no tuning: labels off the last layer, DLG and iDLG, and records off a dense layer. Each
works on updates without a defence, or it would show nothing of those with one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mixveil.attacks.shared.base import CannotAttackError
from mixveil.attacks.shared.dense import first_dense, last_dense, layers_of, whole_rate
from mixveil.attacks.shared.label_counts import labels_of
from mixveil.attacks.updates.dlg import DLG
from mixveil.attacks.updates.gradient_rows import GradientRows
from mixveil.attacks.updates.idlg import IDLG
from mixveil.attacks.updates.update_labels import UpdateLabels
from mixveil.core.device_random import DeviceStream
from mixveil.core.errors import ArgumentError
from mixveil.core.first_weights import started
from mixveil.core.local_training import LocalTraining
from mixveil.core.randomness import SeededStream
from mixveil.core.types import Attack, View
from mixveil.core.wording.sentences import WORDS
from mixveil.data.images import Images, from_tensors
from mixveil.data.opening import open_data
from mixveil.data.similarity import mse, psnr_db
from mixveil.features.stacked.local_steps import Rows, local_steps
from mixveil.features.stacked.network import Stacked, stacked
from mixveil.releases.updates import in_memory

DATA = open_data("digits:train")
X, Y = DATA.take(torch.arange(len(DATA)))
LABELS = Y.argmax(1)
TAUGHT = 900  # rows that networks here were trained on; parties have others


def dense(middle: nn.Module | None = None, *, bias: bool = True, width: int = 48) -> nn.Sequential:
    """One dense layer; with something in the middle, two."""
    if middle is None:
        return made(nn.Flatten(), nn.Linear(64, 10, bias=bias))
    return made(nn.Flatten(), nn.Linear(64, width), middle, nn.Linear(width, 10, bias=bias))


def convolutions(kind: type[nn.Module]) -> nn.Sequential:
    first, second = nn.Conv2d(1, 12, 3, padding=1), nn.Conv2d(12, 12, 3, stride=2, padding=1)
    return made(nn.Sequential(first, kind()), nn.Sequential(second, kind()), nn.Flatten(), nn.Linear(192, 10))


def made(*layers: nn.Module) -> nn.Sequential:
    return started(nn.Sequential(*layers), DeviceStream(SeededStream(1)), torch.device("cpu"))


def taught(net: nn.Sequential, steps: int) -> nn.Sequential:
    optimiser = torch.optim.Adam(net.parameters(), 3e-3)
    for step in range(steps):
        rows = torch.arange(64 * step, 64 * step + 64) % TAUGHT
        loss = nn.functional.cross_entropy(net(X[rows]), LABELS[rows])
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return net


def of_classes(*classes: int, skip: int = 0) -> Tensor:
    """The numbers of rows of these classes that no network here was trained on; a class that comes twice has two."""
    found: list[int] = []
    for label in classes:
        rows = (torch.nonzero(LABELS[TAUGHT:] == label)[:, 0] + TAUGHT).tolist()
        found.append(next(row for row in rows[skip:] if row not in found))
    return torch.tensor(found)


def seen(net: nn.Sequential, rows: Tensor, rates: Sequence[float] = (0.1,), *, told: bool = False, **how: Any) -> View:
    """The update of a party that has these rows, all of them in every step; told: attackers know the labels."""
    training = LocalTraining(len(rows), len(rows), tuple(rates), **how)
    before = stacked(dict(net.named_parameters()), 1)
    after = local_steps(Stacked(net), before, [Rows(X[rows][None], Y[rows][None])] * len(rates), training)
    both = [{name: value[0] for name, value in ends.items()} for ends in (before, after)]
    release = in_memory(DATA, both[0], both[1], method="fedavg", training=training, net=net)
    return View((release,), labels=LABELS[rows] if told else None)


def images(attack: Attack, view: View) -> Tensor:
    found = attack(view, stream=SeededStream(0)).images
    assert found is not None and found.dtype == torch.float64
    return found


def least_psnr(attack: Attack, view: View, rows: Tensor) -> float:
    return float(psnr_db(X[rows], images(attack, view)).min())


def wrong(view: View, rows: Tensor) -> float:
    """The share of records whose class is not counted."""
    counts = UpdateLabels()(view, stream=SeededStream(0)).counts
    assert counts is not None and counts.dtype == torch.int64 and int(counts.min()) >= 0
    assert int(counts.sum()) == len(rows)
    return float((counts - torch.bincount(LABELS[rows], minlength=10)).abs().sum()) / 2 / len(rows)


NETS: Mapping[str, nn.Sequential] = {
    "head": dense(),
    "head without bias": dense(bias=False),
    "relu": dense(nn.ReLU()),
    "relu without bias": dense(nn.ReLU(), bias=False),
    "tanh": dense(nn.Tanh()),
    "convolutions": convolutions(nn.ReLU),
}


@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("classes", [(3,), (0, 9), (1, 4, 6, 9), (5, 5, 5), (2, 2, 7, 8, 8, 8), tuple(range(9))])
def test_labels_are_counted_at_untrained_weights(net: str, classes: tuple[int, ...]) -> None:
    rows = of_classes(*classes)
    assert wrong(seen(NETS[net], rows), rows) == 0
    if net != "head without bias":
        assert wrong(seen(NETS[net], rows, [0.02, 0.05, 0.02], momentum=0.5, proximal=0.1), rows) == 0


def test_labels_of_many_rows_are_counted_about_right() -> None:
    rows = torch.arange(TAUGHT, TAUGHT + 300)
    few = rows[LABELS[rows] < 4]
    for party in (rows, few):
        assert wrong(seen(dense(nn.ReLU()), party, [0.05] * 5), party) < 0.05
    assert float((torch.bincount(LABELS[few], minlength=10) / len(few) - 0.1).abs().sum()) / 2 > 0.5  # by guessing


def test_what_the_network_says_of_noise_is_taken_off() -> None:
    """A network that prefers two classes whatever it sees: by equal shares for all, counts would be wrong."""
    net = dense(nn.ReLU())
    with torch.no_grad():
        net[3].bias += torch.tensor([2.0, 2.0, *[0.0] * 8])  # type: ignore[operator]
    rows = of_classes(0, 0, 0, 1, 3, 3, 5, 7)
    assert wrong(seen(net, rows), rows) == 0


@pytest.mark.parametrize(("steps", "most"), [(30, 0.03), (300, 0.35)])
def test_labels_of_a_trained_network_are_counted_within_bounds(steps: int, most: float) -> None:
    """A network that knows the records says little of them; of one record it says the class all the same."""
    net = taught(dense(nn.ReLU()), steps)
    errors = []
    for start in range(8):
        rows = torch.arange(TAUGHT + 8 * start, TAUGHT + 8 * start + 8)
        errors.append(wrong(seen(net, rows), rows))
        assert wrong(seen(net, rows[:1], [0.05] * 3), rows[:1]) == 0
    assert sum(errors) / len(errors) < most
    few = torch.nonzero((LABELS < 3) & (torch.arange(len(LABELS)) >= TAUGHT))[:, 0]
    assert wrong(seen(net, few, [0.05] * 3), few) < most


def test_labels_are_not_taken_from_those_who_know_them() -> None:
    view = seen(NETS["relu"], of_classes(1, 4))
    told = replace(view, labels=torch.tensor([7, 7]))
    counts = [UpdateLabels()(v, stream=SeededStream(0)).counts for v in (view, told)]
    assert counts[0] is not None and counts[1] is not None and torch.equal(counts[0], counts[1])
    attack = IDLG()
    assert labels_of(told, attack.target(told), SeededStream(0)).tolist() == [7, 7]
    with pytest.raises(ArgumentError, match="2 rows"):
        attack(replace(view, labels=torch.tensor([7])), stream=SeededStream(0))


def test_a_constant_slope_moves_weights_by_the_whole_rate() -> None:
    training = LocalTraining(1, 1, (0.1, 0.3, 0.2), momentum=0.9, proximal=0.5)
    weight = nn.Parameter(torch.zeros(()))
    optimiser = torch.optim.SGD([weight], 1.0, momentum=0.9)
    for rate in training.rates:
        optimiser.param_groups[0]["lr"] = rate
        weight.grad = torch.tensor(1.0) + 0.5 * weight.detach()
        optimiser.step()
    assert float(weight.detach()) == pytest.approx(-whole_rate(training), rel=1e-6)
    assert whole_rate(LocalTraining(1, 1, (0.1, 0.3))) == pytest.approx(0.4)


@pytest.mark.parametrize("attack", [DLG(), IDLG()], ids=lambda attack: attack.name)
def test_deep_leakage_finds_images_behind_smooth_layers(attack: Attack) -> None:
    net, rows = dense(nn.Sigmoid()), of_classes(4, 9, 1)
    assert least_psnr(attack, seen(net, rows, told=True), rows) > 40  # in the order of labels
    for classes in ((6,), (1, 4, 9)):
        rows = of_classes(*classes)
        assert least_psnr(attack, seen(net, rows), rows) > 40  # sorted by class
    assert least_psnr(attack, seen(convolutions(nn.Tanh), rows[:2]), rows[:2]) > 40


def test_deep_leakage_starts_again_where_it_does_not_come_close() -> None:
    view = seen(dense(nn.ReLU()), of_classes(1, 4, 6, 9))
    starts: list[str] = []

    class Noted(SeededStream):
        def fork(self, name: str) -> Any:
            starts.append(name)
            return super().fork(name)

    DLG(steps=1, restarts=2)(view, stream=Noted(0))
    assert starts == ["start 0", "start 1", "start 2"]
    starts.clear()
    DLG(restarts=2)(seen(dense(nn.Sigmoid()), of_classes(1)), stream=Noted(0))
    assert starts == ["start 0"]  # it came close
    with pytest.raises(ArgumentError, match="steps"):
        DLG(steps=0)
    with pytest.raises(ArgumentError, match="restarts"):
        IDLG(restarts=-1)


def test_idlg_takes_the_labels_that_it_is_told() -> None:
    rows = of_classes(4, 9)
    view = seen(dense(nn.Sigmoid()), rows)
    assert least_psnr(IDLG(), view, rows) > 40
    assert least_psnr(IDLG(restarts=0), replace(view, labels=torch.tensor([3, 3])), rows) < 20


@pytest.mark.parametrize(
    "net", [dense(), dense(nn.ReLU()), dense(nn.Tanh(), bias=False), taught(dense(nn.ReLU()), 100)]
)
def test_one_record_is_a_row_of_the_gradient_after_any_steps(net: nn.Sequential) -> None:
    rows = of_classes(7)
    ways: list[dict[str, Any]] = [{}, {"momentum": 0.9}, {"momentum": 0.5, "proximal": 0.3}]
    for how in ways:
        found = images(GradientRows(), seen(net, rows, [0.1, 0.2, 0.05, 0.1, 0.1], **how))
        assert float((found - X[rows]).abs().max()) < 1e-4


@pytest.mark.parametrize("steps", [0, 30, 300])
def test_a_linear_head_shows_all_records_of_different_classes(steps: int) -> None:
    net = taught(dense(), steps)
    for classes in ((4, 1), (9, 1, 6, 4), (3, 1, 4, 0, 5, 9, 2, 6)):
        rows = of_classes(*classes)
        assert least_psnr(GradientRows(), seen(net, rows, told=True), rows) > 60
    rows = of_classes(1, 4, 6)
    assert least_psnr(GradientRows(), seen(net, rows), rows) > 60  # sorted by class


def test_a_linear_head_without_bias_shows_records_too() -> None:
    rows = of_classes(1, 4, 6)
    assert least_psnr(GradientRows(), seen(dense(bias=False), rows), rows) > 60
    assert least_psnr(GradientRows(), seen(dense(bias=False), rows[:1]), rows[:1]) > 60


def test_of_records_that_share_a_class_a_linear_head_shows_the_mean() -> None:
    rows = of_classes(2, 2, 5, 8, 8, 8)
    found = images(GradientRows(), seen(dense(), rows))
    means = torch.stack([X[rows][LABELS[rows] == label].mean(0) for label in LABELS[rows]])
    assert float(psnr_db(means, found).min()) > 25 and float(psnr_db(X[rows[2:3]], found[2:3])) > 40
    assert torch.equal(found[0], found[1]) and torch.equal(found[3], found[5])


@pytest.mark.parametrize("net", [dense(), taught(dense(), 30)], ids=["untrained", "trained"])
def test_of_many_records_a_linear_head_shows_the_means_of_classes(net: nn.Sequential) -> None:
    rows = torch.arange(TAUGHT, TAUGHT + 100)
    means = torch.stack([X[rows][LABELS[rows] == label].mean(0) for label in LABELS[rows]])
    nothing = mse(means, X[rows].mean(0).expand_as(means)).mean()
    found = images(GradientRows(), seen(net, rows, [0.1] * 3, told=True))
    assert float(mse(means, found).mean()) < 0.25 * float(nothing)
    assert images(GradientRows(), seen(net, rows, [0.1] * 3)).shape == (100, 1, 8, 8)


def test_units_that_were_on_for_one_record_show_it() -> None:
    """Of a wide layer, every record has two such units; classes tell where each belongs."""
    net, rows = dense(nn.ReLU(), width=1000), of_classes(7, 1, 4)
    assert least_psnr(GradientRows(), seen(net, rows, told=True), rows) > 40
    shown = of_classes(1, 4, 7)
    assert least_psnr(GradientRows(), seen(net, shown, [0.05] * 3), shown) > 40
    found = images(GradientRows(), seen(dense(nn.Tanh()), rows))  # there no unit is ever off
    assert torch.equal(found[0], found[2]) and 0 <= float(found.min()) <= float(found.max()) <= 1


def test_dense_layers_are_found_where_they_lie() -> None:
    view = seen(
        made(nn.Flatten(), nn.Sequential(nn.Linear(64, 8), nn.ReLU()), nn.Linear(8, 10, bias=False)), of_classes(1)
    )
    assert first_dense(view) == ("1.0.weight", "1.0.bias", True) and last_dense(view) == ("2.weight", None, True)
    view = seen(convolutions(nn.Tanh), of_classes(1))
    assert first_dense(view) is None and last_dense(view) == ("3.weight", "3.bias", False)
    view = seen(made(nn.Flatten(), nn.Linear(64, 10), nn.ReLU()), of_classes(1))
    assert first_dense(view) == ("1.weight", "1.bias", True) and last_dense(view) is None
    names = [name for name, _ in layers_of(convolutions(nn.Tanh))]
    assert names == ["0.0", "0.1", "1.0", "1.1", "2", "3"]


def with_training(view: View, **changes: Any) -> View:
    """The same update, said to be of another training."""
    settings: Any = view.releases[0].envelope.settings
    return replace(view, releases=(view.releases[0].with_(training=replace(settings.training, **changes)),))


def test_what_cannot_be_attacked_is_said() -> None:
    one, pair = of_classes(3), of_classes(3, 4)
    plain = seen(dense(nn.ReLU()), pair)
    by_adam = with_training(plain, optimiser="adamw")
    no_scores = seen(made(nn.Flatten(), nn.Linear(64, 10), nn.ReLU()), pair)
    no_bias = seen(dense(nn.Tanh(), bias=False), pair)
    cases: list[tuple[Attack, View, str]] = [
        *((attack, by_adam, "update-needs-sgd") for attack in (DLG(), IDLG(), UpdateLabels(), GradientRows())),
        *((attack, seen(dense(), pair, [0.1, 0.1]), "update-of-several-steps") for attack in (DLG(), IDLG())),
        *((attack, with_training(plain, batch=1), "update-of-several-steps") for attack in (DLG(), IDLG())),
        *((attack, seen(dense(), of_classes(*range(9))), "update-of-many-rows") for attack in (DLG(), IDLG())),
        *((attack, no_scores, "update-needs-dense-scores") for attack in (UpdateLabels(), IDLG(), GradientRows())),
        *((attack, no_bias, "update-needs-dense-scores") for attack in (UpdateLabels(), IDLG(), GradientRows())),
        (GradientRows(), seen(convolutions(nn.ReLU), pair), "update-needs-dense-first"),
        (GradientRows(), seen(made(nn.Flatten(), nn.Linear(64, 8, bias=False), nn.ReLU(), nn.Linear(8, 10)), one),
         "update-needs-dense-first"),
    ]  # fmt: skip
    for attack, view, code in cases:
        why = attack.cannot(view)
        assert why is not None and why.code == code and code in WORDS and "{" not in str(why)
        with pytest.raises(CannotAttackError):
            attack(view, stream=SeededStream(0))
    for attack in (IDLG(), GradientRows()):  # those who know the labels need not read them off
        assert attack.cannot(replace(no_scores, labels=LABELS[pair])) is None
    assert GradientRows().cannot(seen(made(nn.Flatten(), nn.Linear(64, 10), nn.ReLU()), one)) is None


def test_features_are_records_too() -> None:
    """Rows that are vectors, with values of both signs: a linear head on features."""
    x = SeededStream(3).normal(4, 32).float()
    data: Images = replace(
        from_tensors(x.view(4, 1, 4, 8).clamp(0, 1), torch.arange(4), classes=6), shape=(32,), low=-5.0, high=5.0
    )
    net = made(nn.Linear(32, 6))
    before = stacked(dict(net.named_parameters()), 1)
    training = LocalTraining(4, 4, (0.5,))
    after = local_steps(Stacked(net), before, [Rows(x[None], torch.eye(6)[None, :4])], training)
    both = [{name: value[0] for name, value in ends.items()} for ends in (before, after)]
    view = View((in_memory(data, both[0], both[1], method="fedavg", training=training, net=net),))
    counts = UpdateLabels()(view, stream=SeededStream(0)).counts
    assert counts is not None and counts.tolist() == [1, 1, 1, 1, 0, 0]
    assert float((images(GradientRows(), view) - x).abs().max()) < 1e-3
