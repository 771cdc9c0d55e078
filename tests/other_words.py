"""Every sentence is another one: `pytest -p tests.other_words` shows that no test and no program hangs on a word.

Tests that hold the words themselves are marked `words` and left out, and so are the examples of `SHOWN`.
"""

from __future__ import annotations

from string import Formatter

import pytest

from mixveil.core.wording import sentences

SHOWN = {"mixveil.audit.figures.attack_title", "mixveil.audit.figures.caption", "mixveil.report.pages.said"}
"""Examples in docstrings that show sentences."""


def _other(code: str, template: str) -> str:
    """The same figures in other words."""
    fields = [f"{{{name}}}" for _, name, _, _ in Formatter().parse(template) if name]
    return " ".join([f"«{code[::-1]}»", *fields])


def pytest_configure(config: pytest.Config) -> None:
    for code, template in sentences.WORDS.items():
        sentences.WORDS[code] = _other(code, template)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    golden = [item for item in items if item.get_closest_marker("words") or item.name in SHOWN]
    config.hook.pytest_deselected(items=golden)
    items[:] = [item for item in items if item not in golden]
