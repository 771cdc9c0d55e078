"""Text of the code as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_CODE = re.compile(r"(`+[^`]*`+)")
_BULLET = re.compile(r"^(?:- |\d+\. )")
_SECTION = re.compile(r"^(Args|Arguments|Attributes|Returns|Raises|Yields):$")


def escaped(text: str) -> str:
    """Text in which nothing but its spans of code is Markdown.

    >>> escaped("in [0.5, 1), `a*b` or <b>")
    'in \\\\[0.5, 1), `a*b` or \\\\<b>'
    """
    parts = _CODE.split(text)
    parts[::2] = [re.sub(r"([\\*\[\]<]|(?<!\w)_|_(?!\w))", r"\\\1", part) for part in parts[::2]]
    return "".join(parts)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are Markdown already."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def code(text: str, language: str = "text") -> str:
    return f"```{language}\n{text}\n```"


def span(text: str) -> str:
    return f"`{text}`"


def docstring(text: str) -> str:
    """A docstring as Markdown: its sections become lists, its examples and indented formulas blocks of code."""
    lines, made, place = text.split("\n"), list[str](), 0
    while place < len(lines):
        line = lines[place]
        indented = _block(lines, place + 1)
        if _SECTION.match(line) and indented:
            made += ["", f"**{line.removesuffix(':')}**", "", *_listed(indented), ""]
            place += 1 + len(indented)
        elif line.startswith(">>> "):
            example = _until_empty(lines, place)
            made += ["", code("\n".join(example), "pycon"), ""]
            place += len(example)
        elif line.startswith("    ") and (not made or not made[-1]):
            formula = [line, *_block(lines, place + 1)]
            made += [code("\n".join(part.removeprefix("    ") for part in formula).rstrip()), ""]
            place += len(formula)
        else:
            bullet = _BULLET.match(line)
            if bullet is None and made and _BULLET.match(made[-1]) and not line.startswith(" "):
                made.append("")  # else the line would go on with the last entry of the list
            start = bullet[0] if bullet else ""
            made.append(start + escaped(line.removeprefix(start)))
            place += 1
    return re.sub(r"\n{3,}", "\n\n", "\n".join(made)).strip()


def first_paragraph(text: str) -> str:
    return " ".join(text.split("\n\n")[0].split())


def _block(lines: Sequence[str], start: int) -> list[str]:
    """The indented lines from there on, with the empty ones between them."""
    end = start
    while end < len(lines) and (not lines[end].strip() or lines[end].startswith("    ")):
        end += 1
    while end > start and not lines[end - 1].strip():
        end -= 1
    return list(lines[start:end])


def _until_empty(lines: Sequence[str], start: int) -> list[str]:
    end = next((place for place in range(start, len(lines)) if not lines[place].strip()), len(lines))
    return list(lines[start:end])


def _listed(block: Sequence[str]) -> list[str]:
    """A bullet for each entry of a section, whose further lines are indented deeper."""
    entries: list[str] = []
    for line in filter(str.strip, block):
        if line.startswith("     ") and entries:
            entries[-1] += " " + line.strip()
        else:
            entries.append(line.strip())
    return [_entry(entry) for entry in entries]


def _entry(entry: str) -> str:
    named = re.match(r"^([\w.*]+(?:, [\w.*]+)*): (.*)$", entry)
    if not named:
        return f"- {escaped(entry)}"
    names = ", ".join(span(name) for name in named[1].split(", "))
    return f"- {names}: {escaped(named[2])}"
