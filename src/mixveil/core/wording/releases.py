"""Sentences about guarantees, what is not promised, releases and their ledger."""

from __future__ import annotations

WORDS: dict[str, str] = {}
