"""A format of JSON, and its fields as the code writes them."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple


class FileFormat(NamedTuple):
    """A format of JSON. made: the function that writes it; fields: what each field holds."""

    title: str
    file: str
    about: str
    name: str
    version: int
    made: Callable[..., Any]
    fields: Mapping[str, str]


def fields_of(made: Callable[..., Any]) -> set[str]:
    """The fields of the JSON that a function writes, read off its source."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(made)))
    assigned = {
        node.targets[0].id: node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and isinstance(node.value, ast.Dict)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict) and "format" in _keys(node):
            starred = [assigned[value.id] for key, value in zip(node.keys, node.values, strict=True)
                       if key is None and isinstance(value, ast.Name)]  # fmt: skip
            return _keys(node).union(*map(_keys, starred)) - {"format", "version"}
    raise LookupError(f"{made.__qualname__} writes no JSON with a format")


def _keys(node: ast.Dict) -> set[str]:
    return {str(key.value) for key in node.keys if isinstance(key, ast.Constant)}
