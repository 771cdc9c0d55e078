"""How a party trains, as JSON and back; what cannot be is refused."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from mixveil.core import strict_json
from mixveil.core.errors import ArgumentError, ManifestError
from mixveil.core.local_training import AugMix, LocalTraining

KINDS = (
    LocalTraining(5, 2, (0.1,)),
    LocalTraining(40, 8, (0.1, 0.05, 0.0), momentum=0.9, proximal=0.01, augmix=AugMix(4.0)),
    LocalTraining(40, 64, (1e-3,) * 9, "adamw", weight_decay=1e-4),
    LocalTraining(3, 3, (1.0,), proximal=0.0, augmix=AugMix(10.0, 3, 2, 1, 0.5, 0.0, 0.0, 12.0)),
)


def plain() -> dict[str, Any]:
    """With everything in it."""
    return KINDS[1].plain()


@pytest.mark.parametrize("training", KINDS)
def test_what_is_written_is_read(training: LocalTraining) -> None:
    text = json.dumps(training.plain(), allow_nan=False)
    assert LocalTraining.read(strict_json.loads(text)) == training
    assert {*training.plain()} == {*LocalTraining.FIELDS}


def test_whole_numbers_in_json_are_floats_here() -> None:
    found = LocalTraining.read({**plain(), "rates": [1, 0], "momentum": 0})
    assert found.rates == (1.0, 0.0) and all(type(rate) is float for rate in found.rates)
    assert found.augmix == AugMix(4.0)


@pytest.mark.parametrize("name", LocalTraining.FIELDS)
def test_every_field_must_be_there(name: str) -> None:
    item = plain()
    del item[name]
    with pytest.raises(ManifestError, match=f"missing {name}"):
        LocalTraining.read(item)
    with pytest.raises(ManifestError, match="unknown"):
        LocalTraining.read({**plain(), f"{name}_": 1})


@pytest.mark.parametrize("name", [*AugMix(1.0).__dataclass_fields__])
def test_every_field_of_augmix_must_be_there(name: str) -> None:
    item = plain()
    value = item["augmix"].pop(name)
    with pytest.raises(ManifestError, match=f"missing {name}"):
        LocalTraining.read(item)
    item["augmix"] |= {name: value, "others": 1}
    with pytest.raises(ManifestError, match="unknown"):
        LocalTraining.read(item)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rows", 0),
        ("rows", 2.0),
        ("rows", True),
        ("batch", -1),
        ("rates", []),
        ("rates", 0.1),
        ("rates", [-0.1]),
        ("rates", ["0.1"]),
        ("rates", [0.1] * ((1 << 20) + 1)),
        ("optimiser", "adam"),
        ("optimiser", None),
        ("momentum", 1.0),
        ("momentum", -0.1),
        ("momentum", None),
        ("weight_decay", -1e-9),
        ("proximal", -1.0),
        ("proximal", "1"),
        ("augmix", 4.0),
        ("shuffled", 1),
    ],
)
def test_what_others_wrote_is_refused(name: str, value: object) -> None:
    with pytest.raises(ManifestError):
        LocalTraining.read({**plain(), name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("severity", 0),
        ("severity", 10.1),
        ("severity", "4"),
        ("views", 0),
        ("views", 9),
        ("views", 2.0),
        ("chains", 17),
        ("longest", 17),
        ("longest", 0),
        ("alpha", 0.0),
        ("alpha", 1e-300),
        ("weight", -1.0),
        ("scale", 1e13),
        ("large", None),
    ],
)
def test_what_others_wrote_of_augmix_is_refused(name: str, value: object) -> None:
    item = plain()
    with pytest.raises(ManifestError):
        LocalTraining.read({**item, "augmix": {**item["augmix"], name: value}})


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"severity": 11.0}, "severity"),
        ({"severity": math.nan}, "severity"),
        ({"alpha": -1.0}, "alpha"),
        ({"views": 0}, "views"),
        ({"chains": 99}, "chains"),
        ({"weight": math.nan}, "weight"),
        ({"large": math.inf}, "large"),
    ],
)
def test_settings_of_augmix_out_of_their_domain_are_named(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(ArgumentError, match=named):
        AugMix(**{"severity": 2.0, **settings})


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"rows": 0}, "rows"),
        ({"batch": 0}, "batch"),
        ({"rates": ()}, "steps"),
        ({"rates": (0.1, math.nan)}, "learning rate"),
        ({"rates": (math.inf,)}, "learning rate"),
        ({"optimiser": "lbfgs"}, "optimiser"),
        ({"momentum": 1.0}, "momentum"),
        ({"momentum": math.nan}, "momentum"),
        ({"weight_decay": math.inf}, "weight_decay"),
        ({"proximal": -0.5}, "proximal"),
        ({"proximal": math.nan}, "proximal"),
    ],
)
def test_settings_out_of_their_domain_are_named(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(ArgumentError, match=named):
        LocalTraining(**{"rows": 4, "batch": 2, "rates": (0.1,), **settings})
