"""Sentences about audits, attacks, metrics and verdicts."""

from __future__ import annotations

WORDS: dict[str, str] = {}
