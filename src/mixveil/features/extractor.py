"""The public feature extractor that parties agree on by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mixveil.core import checks, strict_json
from mixveil.core.errors import ArgumentError
from mixveil.features.backbones import loading

LARGEST = 4096
"""Pixels of a side that others may ask for: more would fill the memory."""


@dataclass(frozen=True)
class Extractor:
    """The settings of a feature extractor.

    Attributes:
        names: the networks, whose features stand side by side; none for the pixels themselves.
        stage: use the whole map after this stage; None uses the last map, pooled.
        mirror: average with the features of the mirrored image.
        size: pixels of a side to which images are resized; None: the size that each network was trained for.
    """

    names: tuple[str, ...] = ()
    stage: str | None = None
    mirror: bool = False
    size: int | None = None

    @classmethod
    def parse(cls, text: str, *, stage: str | None = None, mirror: bool = False, size: int | None = None) -> Extractor:
        """From `none`, `NAME`, or `NAME+NAME`."""
        names = tuple(part.strip() for part in text.split("+")) if text != "none" else ()
        for name in names:
            if name not in loading.KNOWN:
                raise ArgumentError(f"backbone must be one of {', '.join(loading.KNOWN)} or none, got {name!r}")
        if not names and (stage is not None or mirror):
            raise ArgumentError("stage and mirror need a network: name a backbone (pixels are not mirrored)")
        if size is not None:
            checks.at_least("size", size, 32)
        return cls(names, stage, mirror, size)

    @property
    def side(self) -> int:
        """The most pixels of a side to which images are resized."""
        return max((loading.KNOWN[name].side if self.size is None else self.size for name in self.names), default=0)

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        return {"names": list(self.names), "stage": self.stage, "mirror": self.mirror, "size": self.size}

    @classmethod
    def read(cls, item: Any) -> Extractor:
        """From JSON that others wrote."""
        stated = strict_json.mapping("extractor", item)
        strict_json.only("extractor", stated, {"names", "stage", "mirror", "size"})
        names = [
            strict_json.text("names", name, r"[a-z0-9_-]+") for name in strict_json.items("names", stated["names"])
        ]
        if len(names) != len(set(names)):
            raise ArgumentError(f"names must be different networks, got {', '.join(names)[:100]}")
        size = None if stated["size"] is None else strict_json.count("size", stated["size"])
        if size is not None and size > LARGEST:
            raise ArgumentError(f"size must be at most {LARGEST}, got {size}")
        return cls.parse(
            "+".join(names) or "none",
            stage=None if stated["stage"] is None else strict_json.text("stage", stated["stage"], r"[a-z0-9_]+"),
            mirror=strict_json.flag("mirror", stated["mirror"]),
            size=size,
        )

    def __str__(self) -> str:
        parts = "+".join(self.names) or "none"
        return parts + (f", {self.stage}" if self.stage else "") + (", mirrored" if self.mirror else "")
