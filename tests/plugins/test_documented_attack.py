"""The attack of docs/start/researcher.md is whole as it stands there: it holds to what every attack is held to."""

from __future__ import annotations

import re
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from mixveil.attacks.catalogue import ATTACKS, attacks
from mixveil.core.types import Attack
from mixveil.encoders.catalogue import encoders
from tests.conformance import test_attacks as held_to

PAGE = Path(__file__).parents[2] / "docs" / "start" / "researcher.md"


@pytest.fixture(scope="module")
def cosine(tmp_path_factory: pytest.TempPathFactory) -> Attack:
    """Made by the file that the page shows, which only registers it when it is imported."""
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    path = tmp_path_factory.mktemp("own") / "cosine.py"
    path.write_text(next(block for block in blocks if "class Cosine" in block), encoding="utf-8")
    spec = spec_from_file_location("cosine", path)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    with ATTACKS.including():  # what it registers is forgotten
        spec.loader.exec_module(module)
        attack: Attack = attacks()["cosine"]()
    return attack


def test_it_says_what_it_needs_and_nothing_more(cosine: Attack) -> None:
    held_to.test_an_attack_says_what_it_needs_and_nothing_more(cosine)


def test_it_attacks_every_encoder_and_repeats_itself(cosine: Attack) -> None:
    for name in sorted(encoders()):
        held_to.test_it_attacks_every_encoder_that_it_says_it_can(cosine, name)
    held_to.test_the_same_view_gives_the_same_guess_and_is_not_changed(cosine)


def test_where_there_is_no_defence_it_succeeds(cosine: Attack) -> None:
    held_to.test_where_there_is_no_defence_it_succeeds(cosine)
