"""Every public name of mixveil with its signature and its docstring."""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Any

from docs.generate.markdown import code, docstring, escaped, first_paragraph, span

import mixveil

ROOMS = {
    "data": "Data",
    "encoders": "Encoders",
    "releases": "Releases and the ledger",
    "audit": "Audits and challenges",
    "attacks": "Attacks",
    "report": "Reports",
    "learn": "Learning",
    "features": "Split networks",
    "federated": "Learning together",
    "core": "Types, errors and randomness",
}
"""The rooms of the package that export names, in the order of the page, by what the page calls them."""


def names() -> str:
    """All public names by room."""
    homes: dict[str, str] = vars(mixveil)["_homes"]
    rooms = {name: homes[name].split(".")[1] for name in mixveil.__all__}
    if unknown := {*rooms.values()} - {*ROOMS}:
        raise KeyError(f"public names of the rooms {sorted(unknown)} have no place in the look-up page")
    parts = []
    for room, title in ROOMS.items():
        parts.append(f"## {title}")
        for name in sorted((name for name in mixveil.__all__ if rooms[name] == room), key=str.lower):
            parts += _told(name, getattr(import_module(homes[name]), name))
    return "\n\n".join(parts)


def _told(name: str, thing: Any) -> list[str]:
    parts = [f"### mixveil.{name}", code(_signature(f"mixveil.{name}", thing), "python")]
    parts.append(docstring(_own_docstring(thing)))
    if inspect.isclass(thing):
        members = [line for member, value in vars(thing).items() if (line := _member(member, value))]
        parts += ["**Methods and properties**", "\n".join(members)] if members else []
    return parts


def _own_docstring(thing: Any) -> str:
    """A dataclass without a docstring has its signature there."""
    text = inspect.getdoc(thing) or ""
    if text and not text.startswith(f"{thing.__name__}("):
        return text
    module = inspect.getdoc(inspect.getmodule(thing)) or ""
    return first_paragraph(module)


def _member(name: str, value: Any) -> str:
    """A public method or property, in a line."""
    function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
    text = inspect.getdoc(function) if inspect.isfunction(function) else None
    if name.startswith("_") or not text:
        return ""
    shown = name if isinstance(value, property) else _signature(name, function, longest=1000)
    return f"- {span(shown)}: {escaped(first_paragraph(text))}"


def _signature(name: str, thing: Any, longest: int = 100) -> str:
    """As the source has it; a parameter a line where it is long."""
    try:
        found = inspect.signature(thing)
    except ValueError:
        return name
    shown, keyword_only = list[str](), False
    for parameter in found.parameters.values():
        if parameter.name in ("self", "cls"):
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not keyword_only:
            keyword_only = True
            shown += [] if any(part.startswith("*") for part in shown) else ["*"]
        shown.append(_parameter(parameter))
    returns = found.return_annotation
    after = "" if inspect.isclass(thing) or returns is found.empty else f" -> {_annotation(returns)}"
    line = f"{name}({', '.join(shown)}){after}"
    if len(line) <= longest:
        return line
    return f"{name}(\n" + "".join(f"    {part},\n" for part in shown) + f"){after}"


def _parameter(parameter: inspect.Parameter) -> str:
    stars = "*" * ((parameter.kind is parameter.VAR_POSITIONAL) + 2 * (parameter.kind is parameter.VAR_KEYWORD))
    typed = "" if parameter.annotation is parameter.empty else f": {_annotation(parameter.annotation)}"
    if parameter.default is parameter.empty:
        return f"{stars}{parameter.name}{typed}"
    default = parameter.default
    shown = "..." if repr(default).startswith("<") else repr(default)
    if inspect.isfunction(default):
        shown = "..." if default.__name__ == "<lambda>" else default.__name__
    return f"{stars}{parameter.name}{typed}{' = ' if typed else '='}{shown}"


def _annotation(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
