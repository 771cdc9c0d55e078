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

# A room may import itself and what stands before it.
ROOMS = [
    "errors",
    "files",
    "checks",
    "types",
    "keys",
    "theory",
    "registry",
    "data",
    "encoders",
    "strict",
    "tensors",
    "backbones",
    "extractor",
    "screen",
    "manifest",
    "state",
    "units",
    "labels",
    "spending",
    "ledger_file",
    "ledger",
    "release",
]
ALLOWED: dict[str, set[str]] = {room: set(ROOMS[: place + 1]) for place, room in enumerate(ROOMS)}
ALLOWED["theory"] -= {"registry"}
ALLOWED["data"] = {"errors", "files", "checks", "types", "data"}
ALLOWED["encoders"] -= {"data"}
ALLOWED["release"] -= {"data"}
ALLOWED["release"] |= {"parts"}
ALLOWED["units"] = {"types", "data"}
ALLOWED["labels"] = {"types", "keys", "theory", "parts"}
ALLOWED["spending"] = {"types"}
ALLOWED["prints"] = {"types"}
ALLOWED["ledger_file"] = {"errors", "files", "types", "keys", "spending"}
ALLOWED["ledger"] = {"errors", "checks", "types", "state", "units", "spending", "ledger_file", "prints"}
ALLOWED["projection"] = {"errors", "files", "checks", "types", "theory", "strict", "tensors", "extractor", "features"}
ALLOWED["projection"] |= {"prints"}
ALLOWED["tensors"] = {"errors", "files", "strict"}
ALLOWED["statistics"] = set(ROOMS) - {"data", "registry"} | {"projection", "statistics"}
ALLOWED["train"] = {
    "errors",
    "files",
    "checks",
    "types",
    "keys",
    "mixing",
    "theory",
    "extractor",
    "features",
    "projection",
    "statistics",
    "release",
    "transforms",
    "saved",
    "train",
}
ALLOWED["model"] = {"errors", "files", "strict", "tensors", "extractor", "train"}
ALLOWED["protocol"] = ALLOWED["train"] | {"checks", "keys", "encoders", "calibration"}
ALLOWED["scatter"] = {"checks", "units", "keys", "encoders", "projection"}
ALLOWED["train"] |= {"scatter"}
ALLOWED["protocol"] |= {"scatter"}
ALLOWED["federated"] = ALLOWED["protocol"] | {"data", "protocol", "results", "strict", "files", "federated"}
ALLOWED["federated"] |= {
    "ledger",
    "state",
    "manifest",
    "model",
    "units",
    "spending",
}  # a party keeps, a server believes nothing unchecked
ALLOWED["results"] = {"errors", "files", "strict"}
ALLOWED["backbones"] = {"errors", "backbones"}
ALLOWED["extractor"] = {"errors", "checks", "strict", "backbones"}
ALLOWED["screen"] = {"errors", "checks", "types", "strict", "metrics"}
ALLOWED["features"] = {"errors", "files", "checks", "types", "data", "backbones", "extractor"}
ALLOWED["displacement"] = {"errors", "checks", "types", "keys", "theory", "data", "features", "extractor", "backbones"}
ALLOWED["calibration"] = {"errors", "types", "checks", "keys", "theory", "encoders", "units", "prints"}
ALLOWED["survey"] = {"checks", "types", "keys", "theory", "encoders", "units", "calibration"}
ALLOWED["metrics"] = {"errors", "checks", "backbones", "metrics"}
ALLOWED["saved"] = {"errors", "files", "strict", "tensors"}
ALLOWED["attacks"] = {"errors", "types", "checks", "keys", "theory", "registry", "mixing", "parts", "attacks"}
ALLOWED["attacks"] |= {"files", "saved", "backbones"}
ALLOWED["__init__"] = set(ROOMS) | {"attacks", "calibration", "transforms"}
ALLOWED["transforms"] = {"errors", "checks", "keys", "types", "encoders"}
ALLOWED["mixing"] = {"types"}
ALLOWED["parts"] = {"checks", "types"}
ALLOWED["audit"] = {"errors", "types", "keys", "theory", "encoders", "metrics", "attacks", "parts", "units", "audit"}
ALLOWED["audit"] |= {"checks", "calibration", "release"}  # a sweep encodes anew, in memory
ALLOWED["report"] = {"errors", "files", "strict", "tensors", "theory", "metrics", "audit", "report"}
ALLOWED["__main__"] = {"cli"}
ALLOWED["cli"] = (
    set(ROOMS)
    | {"features", "displacement", "projection", "statistics", "train", "model", "protocol", "federated", "results"}
    | {"calibration", "survey", "attacks", "parts", "metrics", "audit", "report", "saved", "prints", "cli"}
)


def room(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


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
    ours = {name.split(".")[1] for name in imports(ast.parse(path.read_text())) if name.startswith("mixveil.")}
    assert ours <= ALLOWED[room(path)], f"{room(path)} may not import {ours - ALLOWED[room(path)]}"


def test_flower_has_one_room() -> None:
    for path in FILES:
        names = {name.split(".")[0] for name in imports(ast.parse(path.read_text()))}
        assert names.isdisjoint({"flwr", "uvicorn", "httpx"}) or path.parent == SOURCE / "federated" / "flower", path


def test_randomness_has_one_room() -> None:
    drawing = re.compile(
        r"torch\.(rand|randn|randint|randperm|normal|bernoulli|multinomial|manual_seed)\b|\brandom\.|urandom|secrets"
    )
    for path in FILES:
        if path.name != "keys.py":
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
        mixveil.nothing_of_the_kind  # noqa: B018
