"""Stages that are kept on disk, the truth that they may be given, and the arithmetic that decides on networks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from safetensors.torch import load, save
from torch import Tensor, nn

from mixveil.attacks.shared import nets, stages, training
from mixveil.attacks.shared.stages import STAGES, Oracle, Stage, Stages
from mixveil.attacks.shared.training import Schedule, TrainingCache, arithmetic, low_precision
from mixveil.core.device_random import DeviceStream
from mixveil.core.errors import ArgumentError
from mixveil.core.randomness import SeededStream

ABOUT = {"rows": "0" * 64, "records": 12}
CPU = torch.device("cpu")


class Counted:
    """What makes a stage, and how often it did. Every time it makes other tensors."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> dict[str, Tensor]:
        self.times += 1
        sources = torch.arange(12).view(6, 2) + self.times
        return {"sources": sources, "alike": SeededStream(self.times).normal(6, 5).float().T, "none": torch.empty(0, 3)}


def kept(folder: Path | None, about: dict[str, Any] = ABOUT, watch: Callable[[str], None] | None = None) -> Stages:
    return Stages("an attack", about, TrainingCache(folder, watch=watch or (lambda _: None)))


def files(folder: Path) -> list[Path]:
    return sorted((folder / "attacks").iterdir())


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(
        torch.equal(one[title], other[title]) and one[title].dtype == other[title].dtype for title in one
    )


def oracle(seed: int = 1, given: tuple[Stage, ...] = ("sources",)) -> Oracle:
    stream = SeededStream(seed)
    sources = torch.stack([stream.permutation(6), stream.permutation(6)], dim=1)
    return Oracle(frozenset(given), sources, stream.mixing_weights(6, 2), stream.signs(6, 9), torch.zeros(6, 2, 3))


def test_a_stage_is_made_once(tmp_path: Path) -> None:
    make, told = Counted(), list[str]()
    first = kept(tmp_path, watch=told.append)("clusters", make)
    again = kept(tmp_path, watch=told.append)("clusters", make)
    assert make.times == 1 and same(first, again) and same(first, Counted()())
    assert told == ["an attack: clusters"] * 2
    (file,) = files(tmp_path)
    assert file.stat().st_mode & 0o777 == 0o600 and file.parent.stat().st_mode & 0o777 == 0o700


def test_what_decides_on_a_stage_makes_another_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make = Counted()
    told = [None, oracle().about(STAGES), oracle(2).about(STAGES), oracle(1, ("weights",)).about(STAGES)]
    for number, truth in enumerate(told, start=1):
        kept(tmp_path)("sources", make, reach=0, oracle=truth)
        assert make.times == number
    kept(tmp_path)("sources", make, reach=1, oracle=None)
    kept(tmp_path)("clusters", make, reach=0, oracle=None)
    kept(tmp_path, {**ABOUT, "records": 13})("sources", make, reach=0, oracle=None)
    assert make.times == 7 == len(files(tmp_path))
    monkeypatch.setattr(stages, "VERSION", stages.VERSION + 1)
    kept(tmp_path)("sources", make, reach=0, oracle=None)
    assert make.times == 8
    monkeypatch.undo()
    for truth in told:
        kept(tmp_path)("sources", make, reach=0, oracle=truth)
    kept(tmp_path, dict(reversed(ABOUT.items())))("sources", make, oracle=None, reach=0)  # in another order
    assert make.times == 8 == len(files(tmp_path))


def test_attacks_that_begin_alike_share_their_stages(tmp_path: Path) -> None:
    make = Counted()
    for attack in ("one", "other"):
        Stages(attack, ABOUT, TrainingCache(tmp_path))("alike", make)
    assert make.times == 1


def forged(path: Path, change: Callable[[dict[str, Tensor]], None]) -> bytes:
    """The same file with other tensors, under the same words."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    tensors = load(data)
    change(tensors)
    return bytes(save(tensors, json.loads(data[8 : 8 + size])["__metadata__"]))


def other_values(tensors: dict[str, Tensor]) -> None:
    tensors["alike"][0, 0] += 1


def other_shape(tensors: dict[str, Tensor]) -> None:
    tensors["sources"] = tensors["sources"].view(4, 3)


def fewer(tensors: dict[str, Tensor]) -> None:
    del tensors["alike"]


DAMAGES: dict[str, Callable[[Path], bytes]] = {
    "nothing in it": lambda path: b"",
    "cut": lambda path: path.read_bytes()[:-1],
    "noise": lambda path: b"no tensors at all" * 50,
    "one bit": lambda path: path.read_bytes()[:-1] + bytes([path.read_bytes()[-1] ^ 1]),
    "other values": lambda path: forged(path, other_values),
    "other shape": lambda path: forged(path, other_shape),
    "fewer tensors": lambda path: forged(path, fewer),
    "no words": lambda path: bytes(save(load(path.read_bytes()))),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_or_forged_file_is_not_used_and_replaced(damage: str, tmp_path: Path) -> None:
    make = Counted()
    kept(tmp_path)("sources", make)
    (file,) = files(tmp_path)
    file.write_bytes(DAMAGES[damage](file))
    assert same(kept(tmp_path)("sources", make), kept(tmp_path)("sources", make)) and make.times == 2


def test_the_file_of_another_stage_is_not_used(tmp_path: Path) -> None:
    make = Counted()
    kept(tmp_path)("sources", make)
    (file,) = files(tmp_path)
    kept(tmp_path)("clusters", make)
    (other,) = {*files(tmp_path)} - {file}
    other.write_bytes(file.read_bytes())
    kept(tmp_path)("clusters", make)
    assert make.times == 3


def test_a_file_that_nothing_was_changed_in_is_used(tmp_path: Path) -> None:
    """Or else the test of forged files would show nothing."""
    make = Counted()
    kept(tmp_path)("sources", make)
    (file,) = files(tmp_path)
    file.write_bytes(forged(file, lambda tensors: None))
    kept(tmp_path)("sources", make)
    assert make.times == 1


def test_without_a_folder_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make, told = Counted(), list[str]()
    stage = kept(None, watch=told.append)
    assert same(stage("sources", make), Counted()()) and not same(stage("sources", make), Counted()())
    assert make.times == 2 and not [*tmp_path.iterdir()] and told == ["an attack: sources"] * 2


def test_a_stage_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def fails() -> dict[str, Tensor]:
        raise ArgumentError("no")

    with pytest.raises(ArgumentError):
        kept(tmp_path)("sources", fails)
    assert not files(tmp_path)


def test_an_oracle_refuses_unknown_stages_and_missing_truth() -> None:
    whole = oracle(given=STAGES)
    assert all(whole.knows(stage) for stage in STAGES) and not oracle().knows("moves")
    with pytest.raises(ArgumentError, match="labels"):
        replace(whole, stages=frozenset({"sources", cast("Stage", "labels")}))
    for name in ("signs", "moves"):
        nothing: dict[str, Any] = {name: None}
        with pytest.raises(ArgumentError, match=name):
            replace(whole, **nothing)
        assert replace(whole, stages=whole.stages - {name}, **nothing).about(STAGES) is not None


def test_what_an_oracle_decides_on_follows_from_what_it_is_asked_about() -> None:
    told = oracle(given=("sources", "signs"))
    assert told.about(("alike", "clusters")) is None and oracle(given=()).about(STAGES) is None
    about = [
        told.about(STAGES),
        told.about(STAGES[4:]),  # signs and moves
        oracle(2, ("sources", "signs")).about(STAGES),
        replace(told, weights=told.weights.flip(1)).about(STAGES),
        replace(told, moves=None).about(STAGES),
        oracle(given=("sources", "signs", "moves")).about(STAGES),
    ]
    written = [json.dumps(each) for each in about]
    assert None not in about and len({*written}) == len(written)
    assert told.about(("sources", "alike", "signs")) == told.about(STAGES)
    assert oracle(given=("signs", "sources")).about(STAGES) == told.about(STAGES)


@pytest.fixture
def processor(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Makes this machine one without a GPU, whose processor can do what is said."""

    def has(**told: bool) -> None:
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: told, raising=False)
        monkeypatch.setattr(training, "fastest", lambda: CPU)
        training._has_bfloat16.cache_clear()

    yield has
    training._has_bfloat16.cache_clear()


def test_networks_run_in_bfloat16_where_the_processor_can(processor: Callable[..., None]) -> None:
    layer, x = nets.started(nn.Linear(8, 8), DeviceStream(SeededStream(0)), CPU), torch.ones(2, 8)
    for told, precise in (
        ({"avx512_bf16": True}, torch.bfloat16),
        ({"amx_bf16": True}, torch.bfloat16),
        ({"avx512_bf16": False, "avx2": True}, torch.float32),
        ({}, torch.float32),
    ):
        processor(**told)
        with low_precision(CPU):
            assert layer(x).dtype == precise
        assert layer(x).dtype == torch.float32
        assert arithmetic() == {"device": "cpu", "bfloat16": precise == torch.bfloat16}
        assert json.loads(json.dumps(arithmetic())) == arithmetic()
        found = training.in_batches(layer, x)
        assert found.dtype == torch.float32 and torch.equal(found, found.bfloat16().float()) is (
            precise == torch.bfloat16
        )


def test_a_gpu_has_bfloat16_whatever_the_processor_has(
    processor: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    processor()
    monkeypatch.setattr(training, "fastest", lambda: torch.device("cuda"))
    assert arithmetic() == {"device": "cuda", "bfloat16": True}


def test_an_old_torch_that_says_nothing_of_the_processor_is_precise(
    processor: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    processor(avx512_bf16=True)
    monkeypatch.delattr(torch.cpu, "get_capabilities")
    training._has_bfloat16.cache_clear()
    assert arithmetic() == {"device": "cpu", "bfloat16": False}


def test_networks_of_another_arithmetic_are_not_used(processor: Callable[..., None], tmp_path: Path) -> None:
    steps = 0

    def loss(index: Tensor, draws: DeviceStream) -> Tensor:
        nonlocal steps
        steps += 1
        found: Tensor = net(torch.ones(1, 1)).square().sum()
        return found

    for told, expected in (({"amx_bf16": True}, 3), ({"avx512_bf16": True}, 3), ({}, 6), ({"amx_bf16": True}, 6)):
        processor(**told)
        net = nn.Linear(1, 1)
        draws = DeviceStream(SeededStream(0))
        about, cache = {"attack": "a test"}, TrainingCache(tmp_path)
        training.train(net, loss, 3, Schedule(1, 1), about=about, draws=draws, cache=cache)
        assert steps == expected
