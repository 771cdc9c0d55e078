"""Sentences about jobs between machines: states, events, refusals."""

from __future__ import annotations

WORDS: dict[str, str] = {}
