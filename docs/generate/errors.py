"""Every error with its code and exit code, and every sentence with its code."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

from docs.generate.markdown import escaped, first_paragraph, span, table

from mixveil.attacks.catalogue import attacks
from mixveil.audit import auditing  # noqa: F401 - its modules have errors of their own
from mixveil.core.errors import EXIT_CODES, MixveilError
from mixveil.core.wording.sentences import TABLES
from mixveil.federated.jobs import messages  # noqa: F401 - it has an error of its own

KINDS = {
    "usage": "The command cannot be done as it was given.",
    "refused": "It would break a rule of the data owner, or a promise.",
    "invalid": "A release, a model or data are not what they should be.",
    "failed": "Nothing came of it: a training, a server or a disk failed.",
    "stopped": "The user stopped a training. The same command continues it.",
}


def all_errors() -> list[type[MixveilError]]:
    """The root and all its subclasses within mixveil, each after the one that it derives from; but those that one
    module keeps to itself."""
    attacks()  # their modules have errors of their own
    found = [error for error in _below(MixveilError) if error.__module__.startswith("mixveil.")]
    return [error for error in found if not error.__name__.startswith("_")]


def errors() -> str:
    """A table of errors for each exit code."""
    parts = []
    for kind, exit_code in EXIT_CODES.items():
        parts += [f"### Exit code {exit_code}: {kind}", KINDS[kind]]
        rows = [_row(error) for error in all_errors() if error.kind == kind]
        parts.append(table(["class", "code", "derives from", "when"], rows))
    return "\n\n".join(parts)


def sentences() -> str:
    """A table of codes and sentences for each module of `core/wording`."""
    parts = []
    for module in TABLES:
        title = module.__name__.rpartition(".")[2].capitalize()
        rows = [[span(code), _readable(words)] for code, words in module.WORDS.items()]
        parts += [f"### {title}", escaped(first_paragraph(inspect.getdoc(module) or ""))]
        parts.append(table(["code", "sentence"], rows))
    return "\n\n".join(parts)


def _below(error: type[MixveilError]) -> Iterator[type[MixveilError]]:
    yield error
    for derived in error.__subclasses__():
        yield from _below(derived)


def _row(error: type[MixveilError]) -> list[str]:
    parent = error.__mro__[1].__name__
    about = escaped(first_paragraph(inspect.getdoc(error) or ""))
    return [span(error.__name__), span(error.code), "–" if error is MixveilError else span(parent), about]


def _readable(template: str) -> str:
    """A template with the names of its figures: `{rows:n row}` is said as {rows} rows."""

    def figure(found: re.Match[str]) -> str:
        name, spec = found[1], found[2] or ""
        if not spec.startswith("n "):
            return f"{{{name}}}"
        one, _, several = spec[2:].partition("|")
        return f"{{{name}}} {several or one + 's'}"

    return escaped(re.sub(r"\{(\w+)(?:!\w)?(?::([^{}]*))?\}", figure, template))
