"""The projection that comes with mixveil, and how it is named. Nothing here needs torch."""

from __future__ import annotations

from pathlib import Path
from typing import Final

PHOTOGRAPHS: Final = "photographs"
"""Fitted on the training images of Tiny-ImageNet, for features of the default network."""


def located(projection: Path | str) -> Path:
    """The file of a projection: a path as it is, or the name of the one that comes with mixveil.

    The name is the bare text `photographs`, whatever files lie in the current folder: what a command does must not
    depend on them. A `Path`, or a text with a folder before it (`./photographs`), is always a file.

    >>> located("photographs").name, str(located("./photographs")), str(located(Path("photographs")))
    ('photographs.safetensors', 'photographs', 'photographs')
    """
    if projection == PHOTOGRAPHS:  # no Path is equal to a text
        return Path(__file__).parent / "projections" / f"{PHOTOGRAPHS}.safetensors"
    return Path(projection)
