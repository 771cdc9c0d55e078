"""The documentation as a site."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import click
import typer
from docs.generate.errors import all_errors
from docs.generate.formats_exchanged import EXCHANGED
from docs.generate.formats_fields import fields_of
from docs.generate.formats_measured import MEASURED

import mixveil
from mixveil.cli.main import VERBS, app
from mixveil.core.wording.sentences import TABLES
from mixveil.report import audit_page, results
from tests.browser import browse
from tests.documented import ROOT

PARTS = ("start", "choose", "understand", "do", "look-up", "results", "findings")


class Loads(HTMLParser):
    """What a page loads: the addresses of scripts, styles and pictures."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag != "a":
            self.addresses += [value for name, value in attrs if name in ("src", "href", "srcset", "data") and value]


def words(page: Path) -> str:
    """The text of a built page."""
    return html.unescape(re.sub(r"<[^>]*>", "", page.read_text(encoding="utf-8")))


def verbs() -> Iterator[str]:
    """Every verb, and every verb of a group."""
    root = typer.main.get_command(app)
    assert isinstance(root, click.Group)
    context = click.Context(root)
    for name in VERBS:
        command = root.get_command(context, name)
        yield name
        if isinstance(command, click.Group):
            yield from (f"{name} {inner}" for inner in command.commands)


def test_the_site_is_built_without_a_warning(site: Path) -> None:
    assert (site / "index.html").is_file() and (site / "repository" / "CONTRIBUTING.html").is_file()


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    pages = [*site.rglob("*.html")]
    assert len(pages) > 20
    for page in pages:
        loaded = Loads(page.read_text(encoding="utf-8")).addresses
        assert loaded and not [address for address in loaded if re.match(r"(?:[a-z]+:)?//", address)], page
    for style in site.rglob("*.css"):
        assert not re.search(r"(?:url\(|@import)\s*['\"]?(?:[a-z]+:)?//", style.read_text(encoding="utf-8")), style


def test_an_address_elsewhere_is_found() -> None:
    page = '<a href="https://x.org">x</a><link href="//x.org/y.css"><script src="https://x.org/z.js"></script>'
    assert Loads(page).addresses == ["//x.org/y.css", "https://x.org/z.js"]


def test_every_page_of_the_site_is_there_that_a_page_links_to(site: Path) -> None:
    for page in site.rglob("*.html"):
        for address in re.findall(r'href="([^"#?]+)[^"]*"', page.read_text(encoding="utf-8")):
            if not re.match(r"[a-z]+:", address):
                assert (page.parent / html.unescape(address)).exists(), f"{page.relative_to(site)}: {address}"


def test_every_verb_and_every_option_is_in_the_look_up_page(site: Path) -> None:
    text = words(site / "look-up" / "commands.html")
    assert [verb for verb in verbs() if f"mixveil {verb}\n" not in text and f"mixveil {verb} [" not in text] == []
    root = typer.main.get_command(app)
    assert isinstance(root, click.Group)
    encode = root.get_command(click.Context(root), "encode")
    assert encode is not None
    for parameter in encode.params:
        assert parameter.opts[0] in text or parameter.make_metavar(click.Context(encode)) in text
    for panel in {verb.panel for verb in VERBS.values()}:
        assert f"\n{panel}" in text


def test_every_public_name_is_in_the_look_up_page(site: Path) -> None:
    text = words(site / "look-up" / "python.html")
    assert [name for name in mixveil.__all__ if not re.search(rf"^mixveil\.{name}\b", text, re.MULTILINE)] == []


def test_every_error_and_every_code_is_in_the_look_up_page(site: Path) -> None:
    text = words(site / "look-up" / "errors.html")
    assert len(all_errors()) > 40
    assert [error for error in all_errors() if error.__name__ not in text or f"\n{error.code}\n" not in text] == []
    ours = [code for table in TABLES for code in table.WORDS]  # plug-ins of other tests bring codes of their own
    assert [code for code in ours if f"\n{code}\n" not in text] == []


def test_every_format_is_in_the_look_up_page(site: Path) -> None:
    """With its version and its fields; the build itself fails where the page and the code name other fields."""
    text = words(site / "look-up" / "formats.html")
    sources = (path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    named = {name for source in sources for name in re.findall(r'^FORMAT\b.*"(mixveil-[a-z-]+)"', source, re.MULTILINE)}
    assert len(named) > 10 and [name for name in named if f"\n{name}\n" not in text] == []
    for module in (audit_page, results):
        assert f"Format {module.FORMAT}, version {module.VERSION}." in text
    for item in (*EXCHANGED, *MEASURED):
        assert f"{item.name}, version {item.version}." in text
        assert all(f"\n{name}\n" in text for name in fields_of(item.made))


def test_a_page_of_each_part_opens_in_a_browser(site: Path, tmp_path: Path) -> None:
    """It is shown with its heading and its contents, its scripts run, and nothing goes wrong or comes by network."""
    firsts = (min((site / part).glob("*.html"), default=None) for part in PARTS)
    others = [site / f"{name}.html" for name in ("index", "across", "faq", "architecture")]
    pages = [page for page in (*others, *filter(None, firsts)) if page.exists()]
    assert len(pages) >= 4
    for page in pages:
        shown, said, asked = browse(page, tmp_path)
        assert "<h1>" in shown and "sidebar-tree" in shown, page
        assert 'class="no-js"' in page.read_text(encoding="utf-8") and 'class="no-js"' not in shown, page
        assert "CONSOLE" not in said and asked == [], f"{page}: {said}"


def test_what_a_browser_complains_of_is_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("<script>nothing.there()</script><img src='http://127.0.0.1:9/x.png'>")
    _, said, asked = browse(page, tmp_path)
    assert "CONSOLE" in said and asked == ["http://127.0.0.1:9/x.png"]
