"""An attack that no audit could run is refused when it is registered, with what is wrong with it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar

import pytest

from mixveil.attacks.catalogue import ATTACKS, attacks
from mixveil.attacks.shared.base import BaseAttack
from mixveil.attacks.shared.training import NO_CACHE
from mixveil.audit.auditing import chosen
from mixveil.core.errors import ArgumentError
from mixveil.core.types import Guess, View
from tests.plugins.toy_attack import AbsoluteValues


class Bare:
    """Not on BaseAttack."""

    name = "bare"
    kind = "linkage"
    needs: frozenset[str] = frozenset()

    def __call__(self, view: View, **_: Any) -> Guess:
        return Guess()


class Silent(BaseAttack):
    name: ClassVar[str] = "silent"
    needs: ClassVar[frozenset[str]] = frozenset()


@dataclass(frozen=True)
class Asking(AbsoluteValues):
    """A setting without a default."""

    name: ClassVar[str] = "asking"
    most: int


def changed(**declared: Any) -> type[AbsoluteValues]:
    return type("Changed", (AbsoluteValues,), {"name": "changed", **declared})


@pytest.mark.parametrize(
    ("thing", "says"),
    [
        *((changed(name=name), "lower-case letters, digits and hyphens") for name in ("My_Attack", "a b", "-a", "a\n")),
        (changed(kind="guessing"), "reconstruction, linkage"),
        (changed(kind=["linkage"]), "reconstruction, linkage"),
        (changed(needs=frozenset({"candidate"})), "candidate_labels, candidates"),
        (changed(needs="candidates"), "frozenset"),
        (changed(bound="none"), "gdp"),
        (changed(trains=True), "cache"),
        (Bare, "payload, linear, trains, least_releases, bound, learns, threat, cannot, work, knowing"),
        (Silent, "kind, __call__"),
        (Asking, "default"),
    ],
)
def test_a_class_that_no_audit_could_run_is_refused(thing: Any, says: str) -> None:
    before = attacks()
    with pytest.raises(ArgumentError, match=says):
        ATTACKS.register(thing)
    assert attacks() == before


def test_which_fields_there_are_is_said() -> None:
    with pytest.raises(ArgumentError) as caught:
        ATTACKS.register(changed(needs=frozenset({"truth"})))
    assert all(field.name in str(caught.value) for field in fields(View) if field.name != "releases")


@pytest.mark.parametrize("name", sorted(attacks()))
def test_those_of_the_package_would_be_taken(name: str) -> None:
    with ATTACKS.including(attacks()[name]):
        pass


@pytest.mark.parametrize(("name", "meant"), [("lmse", "Did you mean lmmse"), ("xyzzy", "on records. There are")])
def test_a_name_that_is_not_there_is_answered_by_those_most_like_it(name: str, meant: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        chosen("records", [name], NO_CACHE)
    assert meant in str(caught.value) and "from Python" in str(caught.value) and "unit-membership" in str(caught.value)
