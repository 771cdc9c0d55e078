"""Links from the site to files of the repository that lie outside docs/.

On a forge they are relative links. On the site a Markdown file becomes a page below `repository/`, a folder is its
README, and any other file is there to download.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1]
ROOT = DOCS.parent
PAGES = "repository"
"""The folder of docs/ with copies of the repository's Markdown files; it is not kept in the repository."""

START = ("CONTRIBUTING.md", "CHANGELOG.md")
"""Files that have a page, whether or not one links to them."""

_FENCED = re.compile(r"^( {0,3})(`{3,}|~{3,}).*?^ {0,3}\2[`~]*[ \t]*$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)
_LINK = re.compile(r"(?<=\]\()<?([^()\s<>]+(?:\([^()\s]*\)[^()\s<>]*)?)>?(?=(?:\s+\"[^\"]*\")?\))")


def links(text: str) -> Iterator[re.Match[str]]:
    """The target of every link of a Markdown text, but for those in code."""
    hidden = [found.span() for pattern in (_FENCED, _CODE) for found in pattern.finditer(text)]
    for found in _LINK.finditer(text):
        if not any(start <= found.start() < end for start, end in hidden):
            yield found


def is_outside(target: str) -> bool:
    """Whether a link leads to another site."""
    return re.match(r"[a-z][a-z0-9+.-]*:", target, re.IGNORECASE) is not None


def write_pages() -> list[str]:
    """Copy the Markdown files that the site links to; what is there and is not linked to goes. Returns their names."""
    waiting = [ROOT / name for name in START]
    waiting += [target for page in _own_pages() for target in _outside(page)]
    pages: dict[str, Path] = {}
    while waiting:
        page = waiting.pop()
        name = page.relative_to(ROOT).as_posix()
        if name not in pages:
            pages[name] = page
            waiting += _outside(page)
    for old in (DOCS / PAGES).rglob("*.md"):
        if old.relative_to(DOCS / PAGES).as_posix() not in pages:
            old.unlink()
    for name, page in pages.items():
        copy, data = DOCS / PAGES / name, page.read_bytes()
        if not copy.exists() or copy.read_bytes() != data:  # else it is built again
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(data)
    return sorted(pages)


def rewritten(text: str, name: str) -> str:
    """The text of a page of the site, with its links to the repository as the site has them.

    name: of the page in docs/, without its suffix."""
    place = DOCS / f"{name}.md"
    source = ROOT / place.relative_to(DOCS / PAGES) if place.is_relative_to(DOCS / PAGES) else place
    return _replaced(text, lambda target: _on_site(target, source, place))


def _replaced(text: str, new: Callable[[str], str]) -> str:
    parts, end = [], 0
    for found in links(text):
        parts += [text[end : found.start()], new(found[1])]
        end = found.end()
    return "".join([*parts, text[end:]])


def _on_site(target: str, source: Path, place: Path) -> str:
    path, hash_, anchor = target.partition("#")
    if is_outside(target) or not path:
        return target
    found = _page(source.parent / path)
    if found.suffix == ".md" and not found.is_relative_to(DOCS) and found.is_relative_to(ROOT):
        found = DOCS / PAGES / found.relative_to(ROOT)
    return f"{Path(os.path.relpath(found, place.parent)).as_posix()}{hash_}{anchor}"


def _page(path: Path) -> Path:
    """The file that a link leads to: of a folder its README."""
    found = path.resolve()
    return found / "README.md" if found.is_dir() else found


def _own_pages() -> Iterator[Path]:
    return (page for page in sorted(DOCS.rglob("*.md")) if not page.is_relative_to(DOCS / PAGES))


def _outside(page: Path) -> list[Path]:
    """The Markdown files outside docs/ that a file links to."""
    text = page.read_text(encoding="utf-8")
    targets = (found[1].partition("#")[0] for found in links(text) if not is_outside(found[1]))
    found = {_page(page.parent / target) for target in targets if target}
    return sorted(path for path in found if path.suffix == ".md" and path.is_file() and _is_repository(path))


def _is_repository(path: Path) -> bool:
    return path.is_relative_to(ROOT) and not path.is_relative_to(DOCS)
