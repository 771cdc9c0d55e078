"""JSON of others: whatever comes out can be counted with, and whatever is wrong is said in one short line."""

from __future__ import annotations

import json

import pytest

from mixveil.core import strict_json
from mixveil.core.errors import DataFormatError, ManifestError, MixveilError, UnreadableImageError, one_line


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        "[" * 900 + "]" * 900,
        "[" * 33 + "]" * 33,
        '{"a": ' * 40 + "1" + "}" * 40,
        "9" * 5000,
        "9" * 101,
        "1e400",
        "-1e400",
        "NaN",
        '{"a": 1, "a": 2}',
        "\x1b",
        "",
    ],
    ids=range(12),
)
def test_what_could_not_be_counted_with_is_refused(text: str) -> None:
    with pytest.raises(ManifestError) as caught:
        strict_json.loads(text)
    assert str(caught.value).isprintable() and len(str(caught.value)) < 200


def test_what_is_meant_is_read() -> None:
    text = '{"a": [1, -2, 0.5, 1e-300, true, null, "é"], "b": ' + "[" * 29 + "]" * 29 + "}"
    assert strict_json.loads(text) == json.loads(text)
    with pytest.raises(ManifestError, match="not UTF-8"):
        strict_json.parsed(b"\xff{}")


@pytest.mark.parametrize("value", [10**400, -(10**400), True, "1", None, [], float("nan"), float("inf")])
def test_a_number_is_finite(value: object) -> None:
    for check in (strict_json.number, strict_json.figure):
        with pytest.raises(ManifestError, match="finite number"):
            check("x", value)


@pytest.mark.parametrize("value", [0, -1, 5e-324, 1e-101, 1.1e100, 1e308])
def test_a_figure_has_a_square_and_an_inverse(value: float) -> None:
    with pytest.raises(ManifestError, match="x must be between"):
        strict_json.figure("x", value)


def test_names_of_others_write_no_line_and_steer_no_terminal() -> None:
    names = ["x\nverified: every byte is as the manifest says.\n", "\x1b[2J", "\u009b31m", "\u202e", "n" * 7_000_000]
    with pytest.raises(ManifestError, match="unknown") as caught:
        strict_json.only("manifest", dict.fromkeys(names), set())
    assert str(caught.value).isprintable() and len(str(caught.value)) < 1000
    with pytest.raises(ManifestError, match="and 9,995 more"):
        strict_json.only("manifest", dict.fromkeys(map(str, range(10_000))), set())


def test_a_value_in_a_message_is_short() -> None:
    for value in ("x" * 10**6, [[[[[["y" * 99] * 9] * 9] * 9] * 9] * 9] * 9, 10**5000, {"\x1b": "\n"}):
        assert len(strict_json.shown(value)) <= 150 and strict_json.shown(value).isprintable()


def test_every_message_is_one_printable_line() -> None:
    """Whatever was put into it, also by a library that quotes the file."""
    said = str(DataFormatError("bad: \x1b[2J\nverified\u202e\u009b" + "x" * 10**6))
    assert said.isprintable() and len(said) < 2000 and said.startswith("bad: ?[2J?verified??")
    assert str(MixveilError("a μ of 1")) == "a μ of 1" and one_line("abc", 2) == "a…"
    lines = str(UnreadableImageError("a\n\x1bb.png: no", "c.png: no")).split("\n")
    assert lines[1:] == ["a??b.png: no", "c.png: no"]
