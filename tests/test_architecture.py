"""The house rules, read off the sources: imports point one way, randomness has one room, nothing is unpickled."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import mixveil

SOURCE = Path(__file__).parents[1] / "src" / "mixveil"
FILES = sorted(SOURCE.rglob("*.py"))

# A room may import itself and the rooms above it, but for those that need not know each other.
ROOMS = (
    "core",
    "theory",
    "data",
    "features",
    "encoders",
    "releases",
    "attacks",
    "audit",
    "report",
    "learn",
    "federated",
    "cli",
)
STRANGERS = {"attacks": {"encoders", "releases"}}


def imports(tree: ast.AST) -> Iterator[str]:
    """Modules imported at run time: what is imported for type checkers only does not count."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        yield from imports(node)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_one_way(path: Path) -> None:
    if path.parent == SOURCE:
        return  # the door opens to every room
    here = path.relative_to(SOURCE).parts[0]
    ours = {name.split(".")[1] for name in imports(ast.parse(path.read_text())) if name.startswith("mixveil.")}
    allowed = {*ROOMS[: ROOMS.index(here) + 1]} - STRANGERS.get(here, set())
    assert ours <= allowed, f"{here} may not import {ours - allowed}"


def test_the_house_is_its_rooms() -> None:
    beside = {path.name for path in SOURCE.iterdir()} - {"__pycache__", "__init__.py", "__main__.py", "py.typed"}
    assert beside == {*ROOMS}


def test_the_map_names_files_that_exist() -> None:
    """Every name in lower case, in the paragraph of a room, is a file or a folder of that room."""
    text = (SOURCE.parents[1] / "docs" / "architecture.md").read_text(encoding="utf-8")
    paragraphs = re.findall(
        r"^\*\*(\w+)\*\* (.+?)\n\n", text.split("## The files")[1].split("## The walk")[0], re.M | re.S
    )
    assert [room for room, _ in paragraphs] == [*ROOMS]
    for room, paragraph in paragraphs:
        names = re.findall(r"`([a-z_/]+)`", paragraph)
        there = [(SOURCE / room / f"{name}.py").is_file() or (SOURCE / room / name).is_dir() for name in names]
        assert names and all(there), (room, dict(zip(names, there, strict=True)))
    for name in re.findall(r"`(\w+/[\w/]+\.py)`", text):
        assert any((place / name).is_file() for place in (SOURCE, SOURCE.parent, SOURCE.parents[1])), name


def test_flower_has_one_room() -> None:
    for path in FILES:
        names = {name.split(".")[0] for name in imports(ast.parse(path.read_text()))}
        assert (
            names.isdisjoint({"flwr", "uvicorn", "httpx"})
            or path.parent == SOURCE / "federated" / "transport" / "flower"
        ), path


def test_only_two_modules_of_core_draw() -> None:
    drawing = re.compile(
        r"torch\.(rand|randn|randint|randperm|normal|bernoulli|multinomial|manual_seed)\b|\brandom\.|urandom|secrets"
    )
    for path in FILES:
        if path not in (SOURCE / "core" / "randomness.py", SOURCE / "core" / "device_random.py"):
            assert not drawing.search(path.read_text()), path


def test_nothing_is_unpickled_and_nothing_asserted() -> None:
    for path in FILES:
        text = path.read_text()
        assert not re.search(
            r"import pickle|torch\.load\((?!.*weights_only=True)|allow_pickle=True|(?<!\.)\beval\(|\bexec\(", text
        ), path
        assert not any(isinstance(node, ast.Assert) for node in ast.walk(ast.parse(text))), path


def test_public_names_are_there() -> None:
    for name in mixveil.__all__:
        assert getattr(mixveil, name) is not None
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        getattr(mixveil, "nothing_of_the_kind")  # noqa: B009
