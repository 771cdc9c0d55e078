"""The site: `make docs`. Pages load nothing from elsewhere: no fonts, no scripts, no pictures."""

from __future__ import annotations

import sys
from importlib.metadata import version as installed
from pathlib import Path

from sphinx.application import Sphinx

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from docs.generate import repository  # noqa: E402
from docs.generate.pages import filled, is_made, without_empty_patterns  # noqa: E402

project = "mixveil"
author = "the authors of mixveil"
project_copyright = "the authors of mixveil, Apache-2.0"
version = release = installed("mixveil")

extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
root_doc = "index"
exclude_patterns = ["generate", "**/__pycache__"]

myst_heading_anchors = 4
pygments_style = "default"
highlight_language = "text"
smartquotes = False  # they would make one dash of the two of an option

html_theme = "furo"
html_title = f"mixveil {version}"
html_show_sourcelink = False
html_copy_source = False
html_use_index = False

repository.write_pages()


def _prepare(app: Sphinx, name: str, source: list[str]) -> None:
    text = repository.rewritten(filled(source[0]), name)
    source[0] = without_empty_patterns(text, HERE / f"{name}.md")


def _by_links_alone(app: Sphinx, tree: object) -> None:
    """Most copies of the repository's files are reached by links alone."""
    name = app.env.docname
    if name.startswith(f"{repository.PAGES}/"):
        app.env.metadata[name].setdefault("orphan", "")


def _outdated(*_: object) -> list[str]:
    """Pages made from the code are made in every build: their own files do not change."""
    pages = (HERE / "look-up").glob("*.md")
    return [f"look-up/{page.stem}" for page in pages if is_made(page.read_text(encoding="utf-8"))]


def setup(app: Sphinx) -> None:
    app.connect("source-read", _prepare)
    app.connect("env-get-outdated", _outdated)
    app.connect("doctree-read", _by_links_alone)
