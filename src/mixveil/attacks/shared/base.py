"""What an attack declares of itself, with the defaults that most attacks share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import ClassVar

from torch import Tensor

from mixveil.core.errors import ArgumentError
from mixveil.core.randomness import Stream
from mixveil.core.types import AttackBound, AttackKind, Guess, KnownRecords, Sizes, View
from mixveil.core.wording.notes import Note, note

PASS = 100.0
"""A pass over all values is limited by memory: it takes the time of so many operations a value in a product of
matrices."""


class CannotAttackError(ArgumentError):
    """An attack found while it ran that it cannot be used on this view; `why` is a note."""

    def __init__(self, why: Note) -> None:
        super().__init__(str(why))
        self.why = why


class BaseAttack(ABC):
    """The declarations of `core.types.Attack`. A new attack sets `name`, `kind`, and what differs here. The sentence of
    its threat model has the code `threat-` and its name, if it sets no other.

    Attributes:
        passes: How often it goes through the values of all rows, roughly.
        products: How many products of all rows with all directions that records vary in it forms.
    """

    name: ClassVar[str]
    kind: ClassVar[AttackKind]
    needs: ClassVar[frozenset[str]] = frozenset()
    payload: ClassVar[str] = "records"
    linear: ClassVar[bool] = True
    trains: ClassVar[bool] = False
    least_releases: ClassVar[int] = 1
    bound: ClassVar[AttackBound | None] = None
    learns: ClassVar[bool] = True
    threat: ClassVar[str]
    passes: ClassVar[float] = 10
    products: ClassVar[float] = 2

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "name" in vars(cls) and "threat" not in vars(cls):
            cls.threat = f"threat-{cls.name}"
        if "__call__" in vars(cls):
            cls.__call__ = _with_its_needs(cls.__call__)  # type: ignore[method-assign]

    def cannot(self, view: View) -> Note | None:
        """Why this attack cannot be run on a view; None if it can. Attacks that need more than fields add to it."""
        return self.missing(view) or (not_linear(view) if self.linear else None)

    def missing(self, view: View) -> Note | None:
        """Which fields it needs that a view does not have. A call on such a view is refused before it begins."""
        fields = [field for field in sorted(self.needs) if getattr(view, field) is None]
        return note("attack-needs", fields=", ".join(fields)) if fields else None

    def work(self, sizes: Sizes) -> float:
        """Floating-point operations of one call, roughly."""
        values = float(sizes.rows * sizes.releases) * sizes.values
        compared = 4 * sizes.candidates if "candidates" in self.needs else 0
        return values * (PASS * self.passes + 2 * self.products * sizes.directions + compared)

    @abstractmethod
    def __call__(self, view: View, *, stream: Stream) -> Guess: ...

    def knowing(self, view: View, *, stream: Stream) -> Callable[[KnownRecords, Tensor], Tensor]:
        """What the attack guesses of wanted records (m,), with others known: (m, …). An audit asks with many sets of
        them, one after another."""

        def asked(known: KnownRecords, wanted: Tensor) -> Tensor:
            images = self(replace(view, known=known), stream=stream.fork("known")).images
            if images is None:
                raise ArgumentError(f"{self.name} needs known records, and guesses no others")
            return images[wanted]

        return asked


def _with_its_needs(call: Callable[..., Guess]) -> Callable[..., Guess]:
    @wraps(call)
    def checked(self: BaseAttack, view: View, *, stream: Stream) -> Guess:
        if (why := self.missing(view)) is not None:
            raise CannotAttackError(why)
        return call(self, view, stream=stream)

    return checked


def not_linear(view: View) -> Note | None:
    """Why linear attacks cannot be run on a view, where rows of a release are no weighed sums of records."""
    others = [release.encoder.name for release in view.releases if not release.encoder.linear]
    return note("attack-needs-linear", encoder=others[0]) if others else None


def mixes_covers(view: View) -> Note | None:
    """Why attacks that simulate releases of records alone cannot be run, where public images are mixed in."""
    others = [release.encoder.name for release in view.releases if release.encoder.covers]
    return note("attack-not-with-covers", encoder=others[0]) if others else None


class ImageAttack(BaseAttack):
    """An attack on rows that have the shape of images."""

    def cannot(self, view: View) -> Note | None:
        missing = super().cannot(view)
        return missing or (note("attack-needs-images") if len(view.releases[0].shape) != 3 else None)
