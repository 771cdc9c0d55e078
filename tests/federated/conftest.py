"""Jobs in one process have a clock of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mixveil.federated.jobs import asking
from tests.federated import here


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[here.Clock]:
    """The clock by which a server waits for parties: it stands still while one of them works."""
    found = here.Clock()
    monkeypatch.setattr(here, "CLOCK", found)
    monkeypatch.setattr(asking, "time", found)
    monkeypatch.setattr(asking, "threading", found)
    yield found
    found.over.set()
