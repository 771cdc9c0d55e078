"""How far an audit is: all its steps with their work are known before it begins, and add up to the whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from mixveil.core.watching import Moment, Observe, unobserved


class Step(NamedTuple):
    """A part of an audit: what it is called, and its work, in any unit that all steps share."""

    name: str
    work: float


class Course:
    """Tells a watcher how far an audit is. Every step is entered once, in any order; whatever of its work turns out not
    to be needed, all of it is done when the step ends."""

    def __init__(self, steps: Sequence[Step], watch: Observe = unobserved) -> None:
        self.steps, self.watch = tuple(steps), watch
        self.total = sum(step.work for step in steps)
        self.done = 0.0
        self._most = 0.0

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        work = sum(step.work for step in self.steps if step.name == name)
        start, self._most = self.done, self.done + work
        self._tell(name)
        yield
        self.done = start + work
        self._tell(name)

    def did(self, work: float, name: str) -> None:
        """So much of the present step, called so; it is never more done than whole."""
        self.done = min(self.done + work, self._most)
        self._tell(name)

    def _tell(self, name: str) -> None:
        self.watch(Moment(name, self.done / self.total if self.total > 0 else None))
