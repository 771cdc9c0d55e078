"""What is put into pages when the site is built: parts made from the code, and the pages that a toctree finds."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from docs.generate.commands import commands
from docs.generate.errors import errors, sentences
from docs.generate.formats import formats
from docs.generate.names import names

BODIES: Mapping[str, Callable[[], str]] = {
    "commands": commands,
    "names": names,
    "errors": errors,
    "sentences": sentences,
    "formats": formats,
}
_MARK = re.compile(r"^<!-- made from the code: ([a-z]+) -->$", re.MULTILINE)
_TOCTREE = re.compile(r"^```\{toctree\}\n(.*?)^```$\n?", re.MULTILINE | re.DOTALL)


def is_made(text: str) -> bool:
    """Whether a part of a page is made from the code."""
    return _MARK.search(text) is not None


def filled(text: str) -> str:
    """A page with the parts that are made from the code."""
    return _MARK.sub(lambda found: BODIES[found[1]](), text)


def without_empty_patterns(text: str, page: Path) -> str:
    """A page whose toctrees name no pattern that finds no further page: a part of the site may have no pages yet."""

    def found(tree: re.Match[str]) -> str:
        left, seen = list[str](), {page}
        for line in tree[1].splitlines():
            pages = {*page.parent.glob(f"{line}.md")} if "*" in line else set[Path]()
            if "*" not in line or pages - seen:
                left.append(line)
            seen |= pages
        entries = [line for line in left if line and not line.startswith(":")]
        return "\n".join(["```{toctree}", *left, "```", ""]) if entries else ""

    return _TOCTREE.sub(found, text)
