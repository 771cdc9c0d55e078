"""Attacks are given the records themselves, as candidates, and the traces. Both are in memory once: an attack that
writes to them would rewrite the truth that it, and every attack after it, is measured by. That is found, and undone."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from types import TracebackType

import torch
from torch import Tensor

from mixveil.core.errors import MixveilError
from mixveil.core.types import Rows, View

_BLOCK_VALUES = 1 << 22


class WrittenError(MixveilError):
    """An attack wrote to what it was given. All is as it was again."""


@dataclass(frozen=True)
class Candidates:
    """The records that attacks are asked about, (c, …), and where they were read: these rows, one after another.
    labels: (n,) the classes of the first of them."""

    x: Tensor
    labels: Tensor
    parts: tuple[Rows, ...]

    @classmethod
    def of(cls, own: Rows, others: Rows) -> Candidates:
        """Rows of records, and then others, whose classes nobody asks for."""
        one = own.take(torch.tensor([0])).x
        x, parts = one.new_empty(len(own) + len(others), *one.shape[1:]), (own, others)
        return cls(x, torch.cat([*_read(x, parts)])[: len(own)], parts)

    def restore(self) -> None:
        """All of them anew, in the same place."""
        for _ in _read(self.x, self.parts):
            pass


def _read(x: Tensor, parts: tuple[Rows, ...]) -> Iterator[Tensor]:
    """Into (c, …), a few rows at a time; gives their classes."""
    start, most = 0, max(1, _BLOCK_VALUES // max(1, x[:1].numel()))
    for rows in parts:
        for index in torch.split(torch.arange(len(rows)), most):
            if len(index):
                x[start + index], y = rows.take(index)
                yield y.argmax(1)
        start += len(rows)


class _Kept:
    """A tensor as it was. again: writes its values anew."""

    def __init__(self, tensor: Tensor, again: Callable[[], object]) -> None:
        self._tensor, self._again, self._sum = tensor, again, _checksum(tensor)

    def mend(self) -> bool:
        """Whether it was written to."""
        if _checksum(self._tensor) == self._sum:
            return False
        with torch.no_grad():
            self._again()
        self._sum = _checksum(self._tensor)  # a network makes other roundings of features the next time
        return True


class WriteGuard:
    """`with guard: attack(view)` raises WrittenError if the attack wrote to the view, and undoes it first.

    By checksums: the number of writes that torch counts for a tensor lacks those through NumPy."""

    def __init__(self, views: Sequence[View], candidates: Sequence[Candidates]) -> None:
        """candidates: those of the views; the rest of a view is small, and copied."""
        self._kept = [_Kept(given.x, given.restore) for given in candidates]
        small = {id(tensor): tensor for view in views for tensor in _small(view)}
        self._kept += [_Kept(tensor, partial(tensor.copy_, tensor.clone())) for tensor in small.values()]

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        written = [kept.mend() for kept in self._kept]
        if any(written) and (kind is None or issubclass(kind, Exception)):  # who stops an audit stops it
            raise WrittenError("an attack wrote to the records or traces that it was given")


def _small(view: View) -> Iterator[Tensor]:
    """What an attack sees of records besides their values."""
    for trace in view.traces or ():
        found = (trace.partner, trace.weight, trace.order, trace.kept, trace.covers, *trace.extra.values())
        yield from (tensor for tensor in found if tensor is not None)
    yield from (tensor for tensor in (view.labels, view.candidate_labels) if tensor is not None)


def _checksum(tensor: Tensor) -> int:
    return zlib.crc32(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().data)
