"""Attacks may be anyone's code. What goes wrong inside of one, and a guess that does not fit what was asked, is told of
that attack and stops no audit: it is found here, before anything is measured."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import NamedTuple

import torch
from torch import Tensor

from mixveil.core.errors import ArgumentError, MixveilError, TrainingError, one_line
from mixveil.core.randomness import Stream
from mixveil.core.types import Attack, AttackKind, Guess, OfUpdates, Sizes, View
from mixveil.core.wording.notes import Note, note

JUDGED_BY: Mapping[AttackKind, tuple[str, ...]] = {
    "prior": ("images",),
    "reconstruction": ("images", "pictures"),
    "linkage": ("links", "rows"),
    "pairs": ("pairs",),
    "membership": ("scores",),
    "labels": ("labels", "counts"),
    "covers": ("covers",),
    "signs": ("signs",),
    "grouping": ("alike",),
    "distribution": ("apart",),
}
"""The fields of a guess, one of which an attack of this kind must set. Others may be set too."""

_FIGURES = ("images", "doubts", "links", "scores", "pictures", "covers", "alike", "apart")
_INTEGERS = ("sources", "pairs", "rows", "labels")
_MOST = 200  # characters of an error of others
_LARGE = 2.0**53  # where no largest number is known


class BrokenAttackError(MixveilError):
    """An attack failed, or its guess does not fit what it was asked; `why` is a note."""

    def __init__(self, why: Note) -> None:
        super().__init__(str(why))
        self.why = why


def guess_of(attack: Attack, view: View, *, stream: Stream) -> Guess:
    """What an attack makes of a view: on the CPU, without slopes, and of the shapes that `Guess` says."""
    with own_code():
        guess = attack(view, stream=stream)
    if not isinstance(guess, Guess):
        raise BrokenAttackError(note("guess-no-guess", came=type(guess).__name__))
    said = {field.name: x for field in fields(guess) if (x := getattr(guess, field.name)) is not None}
    wanted = JUDGED_BY[attack.kind]
    if not any(name in said for name in wanted):
        told = {"kind": attack.kind, "wanted": " / ".join(wanted)}
        raise BrokenAttackError(note("guess-lacks", **told, came=[*said]) if said else note("guess-empty", **told))
    shapes = _shapes(attack, view)
    return replace(guess, **{name: fitting(name, x, shapes[name]) for name, x in said.items()})


@contextmanager
def own_code() -> Iterator[None]:
    """Around what an attack itself does. What it refuses, a training that fails and a user who stops it are passed on;
    all other errors are told of the attack."""
    try:
        yield
    except Exception as error:
        if isinstance(error, ArgumentError | TrainingError) or getattr(error, "kind", None) == "stopped":
            raise
        message = one_line(next(iter(str(error).splitlines()), ""), _MOST)
        shown = ": ".join(filter(None, (type(error).__name__, message)))
        raise BrokenAttackError(note("attack-failed", error=shown)) from error


def unable(attack: Attack, view: View) -> bool:
    """Whether it says that it cannot be run on a view, or fails to say it."""
    try:
        with own_code():
            return attack.cannot(view) is not None
    except (BrokenAttackError, ArgumentError, TrainingError):
        return True


def work_of(attack: Attack, sizes: Sizes) -> float:
    """How much work one call is, as it says; 0 where it fails to say it."""
    try:
        with own_code():
            work = float(attack.work(sizes))
    except (BrokenAttackError, ArgumentError, TrainingError):
        return 0.0
    return work if math.isfinite(work) else 0.0


class Axis(NamedTuple):
    """Of a shape: what is counted, and how many there must be; None where any number will do."""

    name: str
    size: int | None

    def __str__(self) -> str:
        return " = ".join(str(part) for part in self if part not in ("", None))


class Due(NamedTuple):
    """What a field of a guess must be: of one of these shapes, and in this range."""

    shapes: tuple[tuple[Axis, ...], ...]
    least: float = -math.inf
    most: float = math.inf


def fitting(name: str, x: Tensor, due: Due) -> Tensor:
    """A field of a guess, if it is what it must be."""
    if not isinstance(x, Tensor):
        raise BrokenAttackError(note("guess-no-tensor", field=name, came=type(x).__name__))
    came = str(x.dtype).removeprefix("torch.")
    if name in _FIGURES and not x.is_floating_point():
        raise BrokenAttackError(note("guess-no-figures", field=name, came=came))
    if name in _INTEGERS and (x.is_floating_point() or x.is_complex() or x.dtype == torch.bool):
        raise BrokenAttackError(note("guess-no-integers", field=name, came=came))
    if not any(_fits(tuple(x.shape), shape) for shape in due.shapes):
        wanted = " / ".join(f"({', '.join(map(str, shape))})" for shape in due.shapes)
        raise BrokenAttackError(note("guess-of-other-shape", field=name, wanted=wanted, came=str(tuple(x.shape))))
    x = x.detach().cpu()
    low, high = (0.0, 0.0) if x.numel() == 0 else (float(end) for end in torch.aminmax(x))
    if name != "doubts" and not (math.isfinite(low) and math.isfinite(high)):
        wrong = x.numel() - int(x.isfinite().sum())
        raise BrokenAttackError(note("guess-not-finite", field=name, wrong=wrong, values=x.numel()))
    if low < due.least or high > due.most:
        ends = {"least": due.least, "most": due.most, "low": low, "high": high}
        raise BrokenAttackError(note("guess-out-of-range", field=name, **ends))
    if name == "signs" and not bool((x.abs() == 1).all()):
        raise BrokenAttackError(note("guess-no-signs", came=float(x[x.abs() != 1][0])))
    return x


def _fits(shape: tuple[int, ...], wanted: tuple[Axis, ...]) -> bool:
    if len(shape) != len(wanted):
        return False
    return all(size == axis.size or (axis.size is None and size > 0) for size, axis in zip(shape, wanted, strict=True))


def of_records(count: int, shape: tuple[int, ...]) -> Due:
    """So many guessed records of this shape."""
    return Due(((Axis("records", count), *(Axis("", size) for size in shape)),))


def _shapes(attack: Attack, view: View) -> Mapping[str, Due]:
    """What each field of a guess at a view must be, as `Guess` says."""
    release = view.releases[0]
    settings, classes = release.envelope.settings, len(release.classes)
    rows: int | None = None  # an update shows no rows
    counts: list[int] = []
    if isinstance(settings, OfUpdates):
        shape = settings.shape
    else:
        shape = release.shape if view.client is None else view.client.shape
        counts = [len(one.payload) for one in view.releases]
        rows = counts[0]
    records = rows if view.records is None else view.records
    row, record, two = Axis("rows", rows), Axis("records", records), Axis("", 2)
    candidates = 0 if view.candidates is None else len(view.candidates)
    asked = Axis("candidates", candidates)
    if view.units is not None and "units" in attack.needs:
        asked = Axis("groups", int(view.units.group.max()) + 1)
    pictures = (None, None, None) if view.pictures is None else view.pictures.take(torch.arange(1)).x.shape[1:]
    sums: list[int | None] = [sum(counts[: last + 1]) for last in range(len(counts))] or [None]
    every = Axis("rows", sums[-1])
    last = _LARGE if rows is None else rows - 1
    return {
        "images": Due(((record, *(Axis("", size) for size in shape)),)),
        "sources": Due(((every, Axis("sources", None)),), -1, _LARGE if records is None else records - 1),
        "pairs": Due(((row, two),), -1, candidates - 1),
        "doubts": Due(((row,),)),
        "links": Due(((Axis("candidates", candidates), row),)),
        "rows": Due(((Axis("candidates", candidates),),), -1, last),
        "scores": Due(((asked,),)),
        "labels": Due(((row, two),), 0, classes - 1),
        "pictures": Due(((record, *(Axis("size", size) for size in pictures)),)),
        "covers": Due(((row, Axis("covers", None if view.covers is None else len(view.covers))),)),
        "signs": Due(((row, Axis("values", math.prod(shape))),)),
        "alike": Due(tuple((Axis("rows", count), Axis("rows", count)) for count in sums)),
        "apart": Due(((record, Axis("p-values", None)),), 0, 1),
        "counts": Due(((Axis("classes", classes),),), 0, _LARGE),
    }
