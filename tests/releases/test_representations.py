"""Releases of representations: what is written, what is refused, and what the ledger says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from mixveil.core import errors
from mixveil.core.randomness import SeededStream
from mixveil.data.images import Images, from_tensors
from mixveil.data.opening import DataOptions, open_data
from mixveil.features.split.half import Half, halves, write_half
from mixveil.features.split.networks import cut, lenet5
from mixveil.releases import representations
from mixveil.releases.ledger import Ledger
from mixveil.releases.reading import read_release, verify_release
from mixveil.releases.representations import in_memory, split_encode
from tests.made import images

CLASSES = ("0", "1", "2", "3")


def both(shape: tuple[int, ...] = (1, 4, 4), **span: float) -> tuple[Half, Half]:
    return halves(*cut(lenet5(shape, 4), "block2"), shape, CLASSES, **span)  # type: ignore[arg-type]


CLIENT, SERVER = both()


def test_digits_are_sent_and_verified(tmp_path: Path) -> None:
    data = open_data("digits:test")
    part = data.part(torch.arange(40))
    client = halves(*cut(lenet5(data.shape, 10), "block2"), data.shape, data.classes)[0]
    write_half(tmp_path / "client", client)
    made = split_encode(part, tmp_path / "r", client=tmp_path / "client", party="a clinic", recipient="a server")
    stated = verify_release(tmp_path / "r")
    assert stated.to_json() == made.manifest.to_json()
    assert (stated.kind, stated.party, stated.classes, stated.rows) == ("representations", "a clinic", data.classes, 40)
    assert stated.assets == {"client": client.digest} and made.folder == tmp_path / "r"
    payload = read_release(tmp_path / "r").payload.take(torch.arange(40))
    torch.testing.assert_close(payload.x, client.in_batches(part.take(torch.arange(40)).x))
    assert payload.x.shape == (40, client.values) and payload.y.shape == (40, 0)


@pytest.mark.parametrize("labelled", [False, True])
def test_it_promises_nothing_and_says_so(tmp_path: Path, labelled: bool) -> None:
    heard: list[str] = []
    made = split_encode(
        images(), tmp_path / "r", client=CLIENT, labelled=labelled, warn=lambda note: heard.append(note.code)
    )
    stated = made.manifest
    assert stated.guarantees == () and not stated.certified and stated.mu is None and stated.label_epsilon is None
    codes = {"nothing-promised", "hardness-not-promised", "labels-shown" if labelled else "labels-not-sent"}
    assert codes <= {*stated.not_promised} and ("rows-in-data-order" in stated.not_promised) is not labelled
    assert heard[0] == made.warnings[0].code == "representations-warning"
    y = read_release(tmp_path / "r").payload.take(torch.arange(20)).y
    assert torch.equal(y, images().take(torch.arange(20)).y if labelled else torch.empty(20, 0))


def test_the_ledger_has_it_without_a_bound(tmp_path: Path) -> None:
    made = split_encode(images(), tmp_path / "r", client=CLIENT, recipient="a server")
    (entry,) = Ledger().entries()
    assert (entry.id, entry.kind, entry.recipient) == (made.manifest.id, "representations", "a server")
    assert entry.cost is None and entry.stated is None and entry.label_epsilon is None and entry.rows == 20
    assert made.standing.spent.worst.unbounded == (made.manifest.id,)
    with pytest.raises(errors.BudgetError):  # nor can a later release of these rows keep a budget
        split_encode(images(), tmp_path / "again", client=CLIENT, budget=1.0)


@pytest.mark.parametrize("limit", ["budget", "label_budget"])
def test_no_budget_holds(tmp_path: Path, limit: str) -> None:
    with pytest.raises(errors.BudgetError):
        split_encode(images(), tmp_path / "r", client=CLIENT, **{limit: 100.0})  # type: ignore[arg-type]
    assert not (tmp_path / "r").exists() and Ledger().entries() == []
    Ledger().set_budget(100.0)
    with pytest.raises(errors.BudgetError):
        split_encode(images(), tmp_path / "r", client=CLIENT)
    assert Ledger().entries() == []


def test_what_does_not_belong_together_is_refused_before_it_is_entered(tmp_path: Path) -> None:
    write_half(tmp_path / "server", SERVER)
    units = replace(images(), units=tuple(str(row // 2) for row in range(20)))
    refused: list[tuple[Images, Half | Path, type[errors.MixveilError]]] = [
        (images(shape=(1, 5, 5)), CLIENT, errors.MismatchError),
        (images(shape=(3, 4, 4)), CLIENT, errors.MismatchError),
        (images(), both(low=-1.0)[0], errors.MismatchError),
        (images(), SERVER, errors.MismatchError),
        (images(), tmp_path / "server", errors.MismatchError),
        (images(), tmp_path / "nothing", errors.MissingPathError),
        (units, CLIENT, errors.ArgumentError),
        (images().part(torch.arange(0)), CLIENT, errors.MixveilError),
    ]
    for data, client, error in refused:
        with pytest.raises(error):
            split_encode(data, tmp_path / "r", client=client)
    with pytest.raises(errors.ArgumentError):
        split_encode(images(), tmp_path / "r", client=CLIENT, party="two\nlines")
    (tmp_path / "there").mkdir()
    with pytest.raises(errors.OutputExistsError):
        split_encode(images(), tmp_path / "there", client=CLIENT)
    assert Ledger().entries() == [] and not (tmp_path / "r").exists()


@pytest.mark.parametrize(("weight", "bias"), [(3e38, 0.0), (1e30, 0.0), (-1e30, 0.0), (0.0, 2e30), (3e38, -3e38)])
def test_a_half_that_makes_no_usable_values_is_refused_before_it_is_entered(
    tmp_path: Path, weight: float, bias: float
) -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(16, 3), nn.Linear(3, 4))
    net.get_parameter("1.weight").data.fill_(weight)
    net.get_parameter("1.bias").data.fill_(bias)
    client = halves(*cut(net, "1"), (1, 4, 4), CLASSES)[0]
    data = from_tensors(torch.zeros(6, 1, 4, 4), torch.arange(6) % 4, classes=4)
    with pytest.raises(errors.MismatchError, match="finite"):
        split_encode(data, tmp_path / "r", client=client)
    assert not (tmp_path / "r").exists() and Ledger().entries() == []


def test_values_that_are_not_finite_are_not_sent(tmp_path: Path) -> None:
    """A half of others may give infinity for one image of this owner, whose one pixel is brighter than all others
    together: no release is left that would not verify. Which image it was would tell, so the entry counts."""
    net = nn.Sequential(nn.Flatten(), nn.Linear(16, 3), nn.ReLU(), nn.Linear(3, 4), nn.Linear(4, 4))
    with torch.no_grad():
        net.get_parameter("1.weight").fill_(-1.0)[:, 3] = 1.0
        net.get_parameter("1.bias").fill_(-0.1)
        net.get_parameter("3.weight").fill_(3e38)
        net.get_parameter("3.bias").zero_()
    client = halves(*cut(net, "3"), (1, 4, 4), CLASSES)[0]
    x = torch.zeros(4, 1, 4, 4)
    split_encode(from_tensors(x, torch.arange(4), classes=4), tmp_path / "dark", client=client)
    x = x.clone()
    x[2, 0, 0, 3] = 1.0
    with pytest.raises(errors.MismatchError, match="finite"):
        split_encode(from_tensors(x, torch.arange(4), classes=4), tmp_path / "r", client=client)
    assert not (tmp_path / "r").exists() and len(Ledger().entries()) == 2


SORTED: list[tuple[list[int], int]] = [  # labels, and how many runs are told; 0: no warning
    ([0] * 15 + [1] * 15, 2),
    ([0] * 5 + [3] * 5 + [1] * 5, 3),
    ([*range(4)] * 5, 0),
    ([0, 1], 0),
    ([0, 0, 1, 0, 1, 1, 0, 1], 0),
    ([2] * 20, 0),  # the name of the only class shows it
    ([0] * 30 + [1] * 30 + [0] * 30 + [1] * 30, 4),
    (SeededStream(1).uniform(200).mul(4).int().tolist(), 0),
]


@pytest.mark.parametrize("labelled", [False, True])
@pytest.mark.parametrize(("labels", "runs"), SORTED)
def test_owners_of_sorted_data_are_warned(tmp_path: Path, labels: list[int], runs: int, labelled: bool) -> None:
    x = images(len(labels)).take(torch.arange(len(labels))).x
    data = from_tensors(x, torch.tensor(labels), classes=4)
    made = split_encode(data, tmp_path / "r", client=CLIENT, labelled=labelled)
    told = [dict(warning.figures) for warning in made.warnings if warning.code == "labels-sorted"]
    assert told == ([{"rows": len(labels), "runs": runs}] if runs and not labelled else [])


@pytest.mark.parametrize("labelled", [False, True])
def test_the_rows_are_the_same_in_any_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, labelled: bool) -> None:
    data = images(23)
    split_encode(data, tmp_path / "one", client=CLIENT, labelled=labelled)
    monkeypatch.setattr(representations, "_SHARD_BYTES", 4096 + 5 * 4 * (CLIENT.values + 4 * labelled))
    steps: list[int] = []
    written = split_encode(data, tmp_path / "many", client=CLIENT, labelled=labelled).manifest
    assert [file.rows for file in written.files] == [5, 5, 5, 5, 3]
    assert [file.name for file in written.files] == [f"shard-{number:05d}.safetensors" for number in range(5)]
    verify_release(tmp_path / "many")
    index = torch.tensor([22, 0, 7, 4, 5, 12])
    one, many = (read_release(tmp_path / name).payload.take(index) for name in ("one", "many"))
    torch.testing.assert_close(many.x, one.x)
    assert torch.equal(many.y, one.y)
    held = in_memory(data, CLIENT, labelled=labelled).payload.take(index)
    torch.testing.assert_close(held.x, one.x)
    assert torch.equal(held.y, one.y)
    monkeypatch.setattr(representations, "_SHARD_BYTES", 1)  # rows that are larger than a shard have one each
    again = representations.write_representations(
        tmp_path / "each", data, CLIENT, labelled=labelled, party="p", progress=steps.append
    )
    assert len(again.files) == 23 and sum(steps) == 23


def test_data_are_opened_by_options(tmp_path: Path, small: Path) -> None:
    client = halves(*cut(lenet5((1, 4, 4), 3), "block2"), (1, 4, 4), ("0", "1", "2"))[0]
    made = split_encode(str(small), tmp_path / "r", client=client, options=DataOptions(classes=("0", "1", "2", "3")))
    assert made.manifest.classes == ("0", "1", "2", "3") and made.manifest.rows == 30


def test_images_that_changed_meanwhile_are_refused(tmp_path: Path) -> None:
    x = images().take(torch.arange(20)).x.clone()
    data = from_tensors(x, torch.arange(20) % 4, classes=4)
    owners = Ledger().owners(data)
    x.mul_(0.5)
    with pytest.raises(errors.MixveilError):
        representations.write_representations(tmp_path / "r", data, CLIENT, labelled=False, party="p", owners=owners)
    assert not (tmp_path / "r").exists()
