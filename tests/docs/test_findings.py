"""Blocks of `python - <<'END'` print what their pages say that they print, up to the rounding of machines."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
PAGES = sorted([*(ROOT / "docs" / "findings").glob("*.md"), *(ROOT / "docs" / "understand").glob("*.md")])
_BLOCK = re.compile(r"^```\npython - <<'END'\n(.*?)\nEND\n```\n(?:\n```\n(.*?)\n```\n)?", re.MULTILINE | re.DOTALL)
_NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?")
BLOCKS = [
    pytest.param(code, said, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, (code, said) in enumerate(_BLOCK.findall(page.read_text(encoding="utf-8")))
]


def alike(printed: str, said: str) -> bool:
    """The same words, and numbers that differ by a tenth or by 2 at most: another processor may round otherwise, and
    so recognise one record more or less."""
    one, other = ([float(number) for number in _NUMBER.findall(text)] for text in (printed, said))
    words = _NUMBER.sub("#", printed) == _NUMBER.sub("#", said)
    return words and all(abs(a - b) <= max(2.0, 0.1 * abs(b)) for a, b in zip(one, other, strict=True))


def test_pages_have_blocks() -> None:
    assert len(BLOCKS) >= 8


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # of files that a block leaves open: they are for reading
@pytest.mark.parametrize(("code", "said"), BLOCKS)
def test_it_prints_what_the_page_says(
    code: str, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run as a program of its own would be, but in this process, which has imported already what it imports."""
    assert said, "a block of code is followed by what it prints"
    monkeypatch.chdir(ROOT)
    with torch.random.fork_rng(devices=()):
        exec(compile(code, "<stdin>", "exec"), {"__name__": "__main__"})  # noqa: S102 - it is ours
    printed = capsys.readouterr().out
    assert alike(printed.strip(), said), printed


def test_another_answer_is_noticed() -> None:
    assert alike("found for 95 of 100", "found for 96 of 100") and not alike(
        "found for 80 of 100", "found for 96 of 100"
    )
    assert not alike("found for 96 rows", "lost for 96 rows")
