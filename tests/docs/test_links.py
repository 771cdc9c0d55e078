"""Links of the documents, looked at without Sphinx."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

import pytest
from docs.generate import repository

from tests.docs import pages
from tests.documented import ROOT


def broken(page: Path) -> list[str]:
    """The links of a page that lead nowhere."""
    found = []
    for target in pages.targets(page):
        anchor, path = unquote(target.partition("#")[2]), pages.where(page, unquote(target))
        if not path.is_file() or not path.is_relative_to(ROOT) or path.is_relative_to(pages.COPIES):
            found.append(f"{target}: there is no such file")
        elif anchor and path.suffix == ".md" and anchor not in pages.anchors(path):
            found.append(f"{target}: there is no such heading")
    return found


@pytest.mark.parametrize("page", pages.documents(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    assert broken(page) == []


def test_a_broken_link_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.docs.test_links.ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text(
        "# One μ\n\n## One μ\n\n[a](page.md#one-μ-1) [b](#one-%CE%BC) `[c](c.md)`\n\n[d](d.md) [e](#two) ![f](f.png)"
    )
    assert [line.partition(":")[0] for line in broken(page)] == ["d.md", "#two", "f.png"]


def test_every_page_has_a_way_in() -> None:
    """From the README or the front page, by links and tables of contents."""
    waiting, seen = [ROOT / "README.md", pages.DOCS / "index.md"], set[Path]()
    while waiting:
        page = waiting.pop()
        if page not in seen and page.is_file():
            seen.add(page)
            linked = [pages.where(page, unquote(target)) for target in pages.targets(page)]
            waiting += [path for path in [*linked, *pages.in_toctrees(page)] if path.suffix == ".md"]
    assert [str(page.relative_to(ROOT)) for page in pages.documents() if page not in seen] == []


def test_the_site_finds_the_links_that_a_reader_of_markdown_finds() -> None:
    """Links are rewritten by a pattern; it must neither miss one nor take code for one."""
    for page in pages.documents():
        text = page.read_text(encoding="utf-8")
        found = [link[1] for link in repository.links(text) if not repository.is_outside(link[1])]
        if not pages.has_made_parts(page):
            assert [unquote(target) for target in pages.targets(page)] == [unquote(target) for target in found], page


def test_links_to_the_repository_become_links_of_the_site() -> None:
    rewritten = repository.rewritten
    assert rewritten("[a](../CONTRIBUTING.md#rules-that-tests-hold)", "architecture") == (
        "[a](repository/CONTRIBUTING.md#rules-that-tests-hold)"
    )
    assert rewritten("[a](../outside_checks)", "architecture") == "[a](repository/outside_checks/README.md)"
    assert rewritten("[a](../../examples/three_hospitals.py)", "do/index") == "[a](../../examples/three_hospitals.py)"
    assert rewritten("[a](docs/rounds.md) [b](LICENSE)", "repository/README") == "[a](../rounds.md) [b](../../LICENSE)"
    same = "[a](rounds.md) [b](https://example.org/x) [c](#d) `[e](../README.md)`\n\n```\n[f](../README.md)\n```\n"
    assert rewritten(same, "architecture") == same
