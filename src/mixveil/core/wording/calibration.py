"""Sentences about calibrations and what they would give away."""

from __future__ import annotations

WORDS: dict[str, str] = {}
