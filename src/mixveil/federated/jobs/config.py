"""Settings as Flower carries them, a table of plain values: read strictly, into a frozen dataclass."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from mixveil.core import strict_json
from mixveil.core.errors import ArgumentError

T = TypeVar("T")


def read(kind: type[T], config: Mapping[str, Any], whose: str) -> T:
    """Every value must be known and of its type; dashes in names are underscores here. whose: for errors."""
    given = {name.replace("-", "_"): value for name, value in config.items()}
    hints = typing.get_type_hints(kind)
    if unknown := given.keys() - hints.keys():
        raise ArgumentError(f"{whose} has no setting {', '.join(sorted(unknown))!r:.80}")
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        if field.default is dataclasses.MISSING and field.name not in given:
            raise ArgumentError(f"the setting {field.name} is missing")
    for name, value in given.items():
        if not strict_json.fits(value, hints[name]):
            raise ArgumentError(f"the setting {name} cannot be {strict_json.shown(value)}")
    return kind(**given)


def plain(item: Any) -> dict[str, Any]:
    """What was given, as a table."""
    return {name.replace("_", "-"): value for name, value in dataclasses.asdict(item).items() if value is not None}
