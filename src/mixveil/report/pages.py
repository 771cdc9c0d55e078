"""What all pages share: templates that escape what they are given, and load nothing."""

from __future__ import annotations

from importlib.resources import files as resources
from typing import Any

from mixveil.core.errors import MissingDependencyError


def environment() -> Any:
    try:
        from jinja2 import Environment, FunctionLoader, StrictUndefined
    except ImportError:
        raise MissingDependencyError("the report needs jinja2: pip install jinja2") from None
    found = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, loader=FunctionLoader(_source)
    )
    found.filters["figure"] = figure
    return found


def figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"


def amount(count: float) -> str:
    """Bytes for people.

    >>> amount(0), amount(999), amount(25_600), amount(3.2e9)
    ('0 B', '999 B', '25.6 kB', '3.2 GB')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.5:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def _source(name: str) -> str:
    return (resources("mixveil.report") / name).read_text(encoding="utf-8")
