"""The page of attacks: it names every attack of the catalogue, and its pictures are there and small."""

from __future__ import annotations

import re
from pathlib import Path

from mixveil.attacks.catalogue import attacks

PAGE = Path(__file__).parents[2] / "docs" / "understand" / "gallery.md"
MOST_BYTES = 400_000


def test_every_attack_of_the_catalogue_is_on_the_page_and_no_other() -> None:
    named = re.findall(r"^(?:- )?\*\*`([a-z-]+)`\*\* needs ", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(named) == sorted(attacks())


def test_the_page_shows_all_pictures_that_the_script_made_and_they_are_small() -> None:
    shown = {PAGE.parent / path for path in re.findall(r"!\[[^\]]+\]\(([^)]+)\)", PAGE.read_text(encoding="utf-8"))}
    pictures = {*(PAGE.parents[1] / "pictures").glob("*.png")}
    assert {path.resolve() for path in shown} == {path.resolve() for path in pictures} and len(pictures) >= 12
    assert sum(path.stat().st_size for path in pictures) < MOST_BYTES
    assert {path.stem for path in pictures} <= {*attacks()}
