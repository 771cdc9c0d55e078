"""The formats of files, with names, versions and fields as the code has them.

What a field holds is said here. A field that the code adds or drops stops the build until this page says so too.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from docs.generate import repository
from docs.generate.formats_exchanged import EXCHANGED, PAYLOADS, PROJECTION
from docs.generate.formats_fields import FileFormat, fields_of
from docs.generate.formats_jobs import kept_by_parties, kept_by_servers, state_folder
from docs.generate.formats_measured import MEASURED
from docs.generate.markdown import code, docstring, escaped, first_paragraph, span, table

from mixveil.encoders.catalogue import encoders
from mixveil.features import projection
from mixveil.releases import ledger_file
from mixveil.releases.kinds.catalogue import KINDS

_TYPES = {
    "array": "a list",
    "object": "an object",
    "integer": "a whole number",
    "number": "a number",
    "string": "a text",
}
SOURCE = repository.ROOT / "src" / "mixveil"


def formats() -> str:
    """All formats: an overview, then each with its fields."""
    everything = [*EXCHANGED, *MEASURED]
    rows = [[item.title, span(item.file), span(item.name), str(item.version)] for item in everything]
    for path, schema in schemas():
        name, version = _const(schema, "format"), _const(schema, "version")
        rows.append([_title(path), span(f"{_title(path).lower()}.json"), span(name), version])
    rows.append(["Ledger", span("ledger.sqlite"), "–", str(vars(ledger_file)["_VERSION"])])
    parts = ["## Overview", table(["what", "file", "format", "version"], rows)]
    parts += ["## Files that are exchanged", *map(_told, EXCHANGED[:1]), _kinds(), _encoders()]
    parts += [_told(PROJECTION), _tensors(), *map(_told, EXCHANGED[2:])]
    parts += ["## Reports and measurements", *map(_schema, *zip(*schemas(), strict=True)), *map(_told, MEASURED)]
    parts += ["## The data owner's own files", state_folder(), _ledger(), kept_by_parties()]
    parts += ["## The coordinator's own files", kept_by_servers()]
    return "\n\n".join(parts)


def _told(item: FileFormat) -> str:
    written = fields_of(item.made)
    if written != {*item.fields}:
        differ = ", ".join(sorted(written ^ {*item.fields}))
        raise LookupError(f"{item.title}: the page and the code do not name the same fields: {differ}")
    head = f"{span(item.file)}, format `{item.name}`, version {item.version}."
    rows = [[span(name), words] for name, words in item.fields.items()]
    return "\n\n".join([f"### {item.title}", head, item.about, table(["field", "what it holds"], rows)])


def _kinds() -> str:
    parts = [
        "#### Kinds of payload",
        f"`kind` is one of {', '.join(map(span, PAYLOADS))}. It says what `payload` holds.",
    ]
    ours = [name for name, kind in KINDS.all().items() if kind.__module__.startswith("mixveil.")]  # plug-ins are not
    if {*PAYLOADS} != {*ours}:
        raise LookupError(f"the page tells of the payloads {', '.join(PAYLOADS)}; there are {', '.join(ours)}")
    for name, files in PAYLOADS.items():
        parts += [f"**{span(name)}**: {files}", docstring(inspect.getdoc(KINDS.named(name)) or "")]
    return "\n\n".join(parts)


def _encoders() -> str:
    rows = [[span(name), escaped(first_paragraph(inspect.getdoc(inspect.getmodule(encoder)) or ""))]
            for name, encoder in encoders().items()]  # fmt: skip
    return "#### Encoders of records\n\n" + table(["`encoder.name`", "what it is"], rows)


def _tensors() -> str:
    rows = [[span(name), span(str(dtype).removeprefix("torch.")), str(dimensions)]
            for name, (dtype, dimensions) in projection.TENSOR_KINDS.items()]  # fmt: skip
    return "Its tensors:\n\n" + table(["tensor", "type", "dimensions"], rows)


def schemas() -> list[tuple[Path, dict[str, Any]]]:
    """All JSON schemas of the package."""
    return [(path, json.loads(path.read_text(encoding="utf-8"))) for path in sorted(SOURCE.rglob("*.schema.json"))]


def _schema(path: Path, schema: Mapping[str, Any]) -> str:
    parts = schema.get("$defs", {})
    rows = [[span(field), escaped(_described(item, parts))] for field, item in schema["properties"].items()]
    head = f"{schema['title']}. Format `{_const(schema, 'format')}`, version {_const(schema, 'version')}."
    whole = f"The whole schema: [{path.name}](../../{path.relative_to(repository.ROOT).as_posix()})."
    return "\n\n".join([f"### {_title(path)}", head, whole, table(["field", "what it holds"], rows)])


def _title(path: Path) -> str:
    return path.name.partition(".")[0].replace("_", " ").capitalize()


def _const(schema: Mapping[str, Any], field: str) -> str:
    return str(schema["properties"][field]["const"])


def _described(item: Mapping[str, Any], parts: Mapping[str, Any]) -> str:
    """A field of a schema in words."""
    if "$ref" in item:
        item = {**parts[item["$ref"].rpartition("/")[2]], **item}
    said = _said(item, parts)
    return f"{said}: {item['description']}" if "description" in item else said


def _said(item: Mapping[str, Any], parts: Mapping[str, Any]) -> str:
    if "const" in item:
        return f"always `{item['const']}`"
    if "enum" in item:
        return "one of " + ", ".join(f"`{value}`" for value in item["enum"])
    if either := item.get("oneOf", item.get("anyOf")):
        return ", or ".join(_described(choice, parts) for choice in either)
    kinds: list[str] = item["type"] if isinstance(item.get("type"), list) else [item.get("type", "object")]
    inner = item.get("items", item)
    if "$ref" in inner:
        inner = parts[inner["$ref"].rpartition("/")[2]]
    names = ", ".join(f"`{name}`" for name in inner.get("properties", {}))
    return " or ".join(_TYPES.get(kind, kind) for kind in kinds) + (f" with {names}" if names else "")


def _ledger() -> str:
    about = docstring(inspect.getdoc(ledger_file) or "")
    tables = "\n".join(f"{text.strip()};" for text in vars(ledger_file)["_TABLES"])
    version = vars(ledger_file)["_VERSION"]
    return "\n\n".join(["### Ledger", f"`ledger.sqlite`, version {version}.", about, code(tables, "sql")])
