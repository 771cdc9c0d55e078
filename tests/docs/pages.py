"""The documents of the repository, and where their links lead; no part of what builds the site is used for that."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from itertools import chain, pairwise
from pathlib import Path

from docs.generate import repository
from markdown_it import MarkdownIt
from markdown_it.token import Token

from tests.documented import ROOT

DOCS = ROOT / "docs"
COPIES = DOCS / "repository"
"""Copies that building the site leaves: no link may lead there."""

OUTSIDE = tuple(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"))
_DEEPEST = 4  # headings that have anchors on the site


def documents() -> list[Path]:
    """All pages of docs/, and the documents beside it."""
    return [*OUTSIDE, *(page for page in sorted(DOCS.rglob("*.md")) if not page.is_relative_to(COPIES))]


def targets(page: Path) -> list[str]:
    """Where the links and pictures of a page lead, but for other sites."""
    inner = chain.from_iterable(token.children or [] for token in _tokens(page))
    found = [str(token.attrs.get("href", token.attrs.get("src", ""))) for token in inner]
    return [target for target in found if target and not repository.is_outside(target)]


def in_toctrees(page: Path) -> Iterator[Path]:
    """The documents that the toctrees of a page name; of a copy the document itself."""
    for token in _tokens(page):
        if token.type == "fence" and token.info == "{toctree}":
            for line in token.content.splitlines():
                if line and not line.startswith(":"):
                    for found in page.parent.glob(f"{line}.md") if "*" in line else [page.parent / f"{line}.md"]:
                        path = found.resolve()
                        yield ROOT / path.relative_to(COPIES) if path.is_relative_to(COPIES) else path


@cache
def anchors(page: Path) -> frozenset[str]:
    """The anchors of a page as GitHub makes them: of each heading, numbered where several are alike."""
    slugs: list[str] = []
    for token, after in pairwise(_tokens(page)):
        if token.type == "heading_open" and int(token.tag[1]) <= _DEEPEST:
            text = "".join(part.content for part in after.children or [] if part.type in ("text", "code_inline"))
            slugs.append(re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-"))
    before = [slugs[:place].count(slug) for place, slug in enumerate(slugs)]
    return frozenset(f"{slug}-{count}" if count else slug for slug, count in zip(slugs, before, strict=True))


def where(page: Path, target: str) -> Path:
    """The file that a link leads to: of a folder its README."""
    path = target.partition("#")[0]
    found = (page.parent / path).resolve() if path else page
    return found / "README.md" if found.is_dir() else found


@cache
def _tokens(page: Path) -> list[Token]:
    from docs.generate.pages import filled  # all of mixveil, which tests of commands do not need

    return MarkdownIt().enable("table").parse(filled(page.read_text(encoding="utf-8")))


def has_made_parts(page: Path) -> bool:
    """Whether parts of it are made from the code."""
    from docs.generate.pages import is_made

    return is_made(page.read_text(encoding="utf-8"))
